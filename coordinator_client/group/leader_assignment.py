"""The leader's work between JoinGroup and SyncGroup: read the subscriptions, collect the inputs, run the assignor.

The inputs must not delay a rebalance: topics and lag are awaited for a limited time each, and omitted if they do not
arrive. Only the assignor gets the whole rebalance timeout, because without it there is no plan.

The plan is checked here, before it is sent, because later steps rely on it. Two members would read a partition that is
assigned twice. A member that is assigned a topic outside of its subscription would rejoin for ever.
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from kohort.assignors import Assignor, GroupView, MemberSubscription, Plan, run_assignor
from kohort.assignors.group import NO_GENERATION
from kohort.common.errors import KohortError, WireError
from kohort.common.foreign_text import exception_text
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group.events import LagKnown, PlanMade
from kohort.coordinator_client.group.member_context import NO_TOPICS, MemberComponent, MemberContext, TopicSubscription
from kohort.coordinator_client.group.ready import BacklogOrder, MemberMetadata, PlanOrder
from kohort.coordinator_client.group.states import MemberState
from kohort.network.metadata import TopicInfo
from kohort.protocol.apis.join_group import JoinGroupResponseMember
from kohort.protocol.apis.sync_group import SyncGroupRequestAssignment
from kohort.protocol.codec import Message
from kohort.protocol.membership import (
    Subscription,
    TopicPartitions,
    build_subscription,
    parse_cooperative_sticky,
    parse_subscription,
)

# -------------------------------------------------------------------------------------------------------- subscriptions

COOPERATIVE_STICKY: Final = "cooperative-sticky"

TopicShape = tuple[int, Mapping[int, frozenset[str]]]
"""The facts of a topic that an assignment depends on: its number of partitions and, with racks, its replicas."""


class AssignorFailed(KohortError):
    """The assignor raised, or its result is invalid: `assignor`, `group`, `generation`.

    Cure:
        Correct the assignor. The message has its exception.
    """


def read_members(
    members: Iterable[JoinGroupResponseMember], assignor: str, generation: int
) -> dict[str, MemberMetadata]:
    """Return member id -> its subscription under `assignor`, as of its join of `generation`.

    If a subscription does not parse in its declared version, it is read as version 0, which all clients encode alike.
    Some clients put their own bytes behind it. A subscription that is still invalid counts as one without topics. Owned
    partitions of `generation` or later are ignored (KIP-792): no member can have them yet. A cooperative plan would
    keep them with that member for ever. Both cases are in `MemberMetadata.error`.
    """
    said = {}
    for member in members:
        trouble = ""
        try:
            subscription = _read_subscription(bytes(member.metadata))
        except WireError as error:
            subscription, trouble = Subscription(topics=()), f"unreadable subscription, so no partitions: {error}"
        claimed = _claimed_generation(subscription, assignor)
        if claimed >= generation:
            subscription = subscription._replace(owned_partitions=(), generation_id=NO_GENERATION)
            trouble = f"owned partitions ignored: they are as of generation {claimed}"
        said[member.member_id] = MemberMetadata(subscription, member.group_instance_id, trouble)
    return said


def _read_subscription(data: bytes) -> Subscription:
    try:
        return parse_subscription(data)
    except WireError:
        if len(data) < 2:
            raise
        subscription, _ = Message.of(Subscription).parse_from(data, 2, 0)
        return subscription


def _claimed_generation(subscription: Subscription, assignor: str) -> int:
    """Return the generation in which a member was assigned its owned partitions.

    Before version 2 of the subscription, members with cooperative-sticky have it in their user data.
    """
    generation, user_data = subscription.generation_id, subscription.user_data
    if generation != NO_GENERATION or assignor != COOPERATIVE_STICKY or not user_data:
        return generation
    try:
        return parse_cooperative_sticky(user_data).generation
    except WireError:
        return generation


def topics_of(said: Mapping[str, MemberMetadata]) -> frozenset[str]:
    """All topics that members of the group subscribe to."""
    return frozenset(topic for each in said.values() for topic in each.subscription.topics)


def run_plan(order: PlanOrder) -> PlanMade:
    """Return the plan, or the reason for its failure. It raises nothing, for any exception of the assignor."""
    try:
        plan = make_plan(order.assignor, order.said, order.topics, order.lag)
        assignments = (  # also of members that get nothing
            SyncGroupRequestAssignment(member_id=member_id, assignment=plan.encode(member_id)) for member_id in plan
        )
        return PlanMade(order.serial, tuple(assignments))
    except AssignorFailed as error:
        return PlanMade(order.serial, error=error)
    except BaseException as error:  # even SystemExit must not end the thread: the member would wait for ever
        reported = f"the group cannot be assigned: {exception_text(error)}"
        return PlanMade(order.serial, error=AssignorFailed(reported, assignor=order.assignor.name))


def wants_backlog(assignor: Assignor) -> bool:
    """True if the assignor needs the lag of the partitions (`needs_lag`)."""
    return bool(getattr(assignor, "needs_lag", False))


def make_plan(
    assignor: Assignor,
    said: Mapping[str, MemberMetadata],
    topics: Mapping[str, TopicInfo],
    lag: Mapping[TopicPartition, int] | None = None,
) -> Plan:
    """Return the assignor's plan for this group, checked. Raises `AssignorFailed` for any exception of the assignor."""
    wanted = topics_of(said)
    try:
        group = GroupView.of(
            partitions={topic: topics[topic].partitions for topic in wanted if topic in topics},
            members={member_id: _described(each) for member_id, each in said.items()},
            racks=_racks(wanted, topics),
            lag=lag,
        )
        return run_assignor.make_plan(assignor, group)
    except KohortError as error:
        raise AssignorFailed(
            f"the group cannot be assigned: {error}", assignor=assignor.name, replay=error.place.get("replay")
        ) from error


def _described(said: MemberMetadata) -> dict[str, object]:
    subscription = said.subscription
    owned: dict[str, tuple[int, ...]] = {}
    for each in subscription.owned_partitions:  # a topic may be repeated
        owned[each.topic] = owned.get(each.topic, ()) + each.partitions
    return {
        "topics": subscription.topics,
        "owned": owned,
        "generation": subscription.generation_id,
        "rack": subscription.rack_id,
        "user_data": subscription.user_data,
        "instance_id": said.instance_id,
    }


def _racks(wanted: Iterable[str], topics: Mapping[str, TopicInfo]) -> dict[str, list[frozenset[str]]] | None:
    racks = {
        topic: [info.racks.get(number, frozenset()) for number in range(info.partitions)]
        for topic in wanted
        if (info := topics.get(topic)) is not None and info.racks
    }
    return racks or None


def write_subscription(
    assignor: Assignor, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int, rack_id: str | None
) -> bytes:
    """Return the subscription that this member sends to the leader for one assignor.

    Raises `AssignorFailed` for any exception of the assignor.
    """
    try:
        return _written(assignor.subscription(sorted(topics), sorted(owned), generation), generation, rack_id)
    except BaseException as error:  # a user's code may raise anything, and this is the driver's thread
        raise AssignorFailed(
            f"assignor {assignor.name!r} failed in subscription(): {exception_text(error)}", assignor=assignor.name
        ) from error


def _written(reported: MemberSubscription, generation: int, rack_id: str | None) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(reported.owned_partitions):
        by_topic.setdefault(topic, []).append(number)
    return build_subscription(
        Subscription(
            topics=tuple(reported.topics),
            user_data=reported.user_data,
            owned_partitions=tuple(
                TopicPartitions(topic=topic, partitions=tuple(numbers)) for topic, numbers in by_topic.items()
            ),
            # Without it, a follower's joins could be equal. A coordinator rebalances only for one that differs.
            generation_id=generation if reported.generation_id == NO_GENERATION else reported.generation_id,
            rack_id=reported.rack_id if reported.rack_id is not None else rack_id,
        )
    )


# ------------------------------------------------------------------------------------------ the members of a generation

BACKLOG_KEEPS_S: Final = 30.0
"""Time (s) for which a measured lag is used.

A cooperative plan takes two rounds. If the second used other numbers, it would move other partitions, and require a
third round.
"""


class Leadership:
    """The leader's view of a generation: its members, their turnover, and the metadata its plan depended on.

    It is empty in a follower.

    `leads`: this member is the leader. `group_topics`: all topics that members of the group subscribe to. `moved`:
    topics that have changed since they were assigned. `racks_matter`: a change of replicas' racks alone needs another
    plan.
    """

    __slots__ = (
        "_lag",
        "_measured_at",
        "_measured_topics",
        "_members_before",
        "_racks_matter",
        "_said",
        "_snapshot",
        "_topics",
        "group_topics",
        "leads",
        "moved",
    )

    def __init__(self, topics: TopicSubscription, *, racks_matter: bool) -> None:
        self._topics = topics
        self._racks_matter = racks_matter
        self.leads = False
        self._said: dict[str, MemberMetadata] = {}
        self.group_topics = NO_TOPICS
        self._snapshot: dict[str, TopicShape] = {}
        self._members_before: frozenset[str] | None = None
        self.moved: tuple[str, ...] = ()
        self._lag: Mapping[TopicPartition, int] | None = None
        self._measured_at = -inf
        self._measured_topics: Mapping[str, int] = {}

    def begin(self, *, leads: bool) -> None:
        """A generation begins; the subscriptions of the last one are dropped."""
        self.leads = leads
        self.set_members({})

    def end(self) -> None:
        """Membership is gone."""
        self.begin(leads=False)
        self._members_before = None
        self._lag, self._measured_at = None, -inf

    def set_members(self, said: dict[str, MemberMetadata]) -> None:
        """Set the subscriptions of the generation's members, which only its leader receives."""
        self._said, self.group_topics = said, topics_of(said)
        self._snapshot, self.moved = {}, ()

    def turnover(self) -> tuple[frozenset[str], frozenset[str]] | None:
        """The ids of members that joined, and of those that left, since the last generation.

        Only a leader can see it, and only between two generations that it led in a row: None in the first of them.
        """
        before, members = self._members_before, frozenset(self._said)
        self._members_before = members
        return None if before is None else (members - before, before - members)

    @property
    def missing(self) -> frozenset[str]:
        """Topics that are to be assigned and were never looked up."""
        return self._topics.never_looked_up(self.group_topics)

    @property
    def partition_counts(self) -> dict[str, int]:
        """The number of partitions of each topic that is to be assigned and exists."""
        known = self._topics.known
        return {topic: known[topic].partitions for topic in sorted(self.group_topics) if topic in known}

    def measured(self, topics: Mapping[str, int], lag: Mapping[TopicPartition, int], now: float) -> None:
        """Store the lag of the partitions of these topics, as far as it is known."""
        self._lag, self._measured_at, self._measured_topics = lag, now, topics

    def backlog_is_fresh(self, now: float) -> bool:
        """True if the last measured lag is of the present topics and not older than `BACKLOG_KEEPS_S`."""
        return now - self._measured_at < BACKLOG_KEEPS_S and self._measured_topics == self.partition_counts

    def plan_order(self, serial: int, assignor: Assignor) -> PlanOrder:
        """The order to plan what is known now. Topics of the group that differ later have moved."""
        self._snapshot = {topic: self._shape(topic) for topic in self.group_topics}
        self.moved = ()
        lag = self._lag if wants_backlog(assignor) else None
        return PlanOrder(serial, assignor, dict(self._said), dict(self._topics.known), lag)

    def look_again(self) -> None:
        """Find the topics that have changed since they were assigned. A first look-up of a topic is no change."""
        if not self.leads:
            return
        for topic in self.group_topics - self.missing:
            self._snapshot.setdefault(topic, self._shape(topic))
        self.moved = tuple(sorted(topic for topic, was in self._snapshot.items() if was != self._shape(topic)))

    def _shape(self, topic: str) -> TopicShape:
        """The shape of a topic. A missing topic has no partitions."""
        info = self._topics.known.get(topic)
        if info is None:
            return 0, {}
        return info.partitions, dict(info.racks) if self._racks_matter else {}


# -------------------------------------------------------------------------------------------------- the steps to a plan

BACKLOG_PATIENCE_S: Final = 5.0
"""Maximum time (s) that a plan waits for the lag, and never more than a quarter of the session."""

BACKLOG_GRACE_S: Final = 1.0
"""Time (s) after the deadline of a lag measurement at which the plan stops waiting for it."""


class Planning(MemberComponent):
    """The steps of one plan, in order; each is taken by `advance` when its time has come. Times: monotonic seconds."""

    def __init__(self, shared: MemberContext, assignors: Mapping[str, Assignor], leadership: Leadership) -> None:
        super().__init__(shared)
        self._assignors = assignors
        self._leadership = leadership
        self._topics_deadline = inf
        self._requested: BacklogOrder | None = None
        self._running: PlanOrder | None = None
        self._plan_deadline = inf
        self._new_backlog: BacklogOrder | None = None
        self._new_plan: PlanOrder | None = None

    def begin(self) -> None:
        """This member leads a new generation. Orders of the previous one are dropped."""
        patience_ms = min(self._settings.request_timeout_ms, self._settings.session_timeout_ms / 2)
        self._topics_deadline = self._tracker.now + patience_ms / 1000
        self._requested = self._running = self._new_backlog = self._new_plan = None

    def advance(self, protocol: str) -> AssignorFailed | None:
        """Order what is due. The error, if the assignor has had its time."""
        now, leadership = self._tracker.now, self._leadership
        if self._running is not None:
            return self._too_late(protocol) if now >= self._plan_deadline else None
        if leadership.missing and now < self._topics_deadline:
            return None
        assignor = self._assignors[protocol]
        if wants_backlog(assignor) and not leadership.backlog_is_fresh(now):
            if self._requested is None:
                self._measure()
                return None
            if now < self._requested.deadline + BACKLOG_GRACE_S:
                return None
            self._measured({}, sum(self._requested.topics.values()), "no response in time")
        order = leadership.plan_order(self._in_flight.next_serial(), assignor)
        self._running = self._new_plan = order
        self._plan_deadline = now + self._settings.rebalance_ms / 1000
        return None

    def _measure(self) -> None:
        patience_s = min(BACKLOG_PATIENCE_S, self._settings.session_timeout_ms / 4000)
        serial, topics = self._in_flight.next_serial(), self._leadership.partition_counts
        self._requested = self._new_backlog = BacklogOrder(serial, topics, self._tracker.now + patience_s)

    def on_backlog(self, event: LagKnown) -> None:
        """Take in the measured lag, as far as it is known."""
        if (
            self._waits
            and self._requested is not None
            and event.serial == self._requested.serial
            and self._running is None
        ):
            self._measured(event.lag, event.unknown, event.why)

    def _measured(self, lag: Mapping[TopicPartition, int], unknown: int, why: str) -> None:
        assert self._requested is not None
        self._leadership.measured(self._requested.topics, lag, self._tracker.now)
        if unknown:
            text = f"planned without knowing how many records wait in {unknown} partitions: {why}"
            self._tracker.notice("backlog_unknown", text)
            self._tracker.timeline.add_error(text)

    def is_due(self, event: PlanMade) -> bool:
        """True if this is the plan that is waited for."""
        return self._waits and self._running is not None and event.serial == self._running.serial

    @property
    def _waits(self) -> bool:
        return self._tracker.state is MemberState.PLANNING

    def _too_late(self, protocol: str) -> AssignorFailed:
        return AssignorFailed(
            f"the assignor made no plan in {self._settings.rebalance_ms / 1000:.0f} s, which is all a rebalance has",
            hint="make it faster, or raise max_poll_interval_ms",
            assignor=protocol,
            group=self._settings.group_id,
        )

    def drain_backlog(self) -> BacklogOrder | None:
        """The lag query ordered since the last call, if there is one."""
        order, self._new_backlog = self._new_backlog, None
        return order

    def drain_plan(self) -> PlanOrder | None:
        """The plan that was ordered since the last call, if one was."""
        order, self._new_plan = self._new_plan, None
        return order

    def wake_at(self) -> float:
        """The time (monotonic s) at which to call `advance` again if nothing happens."""
        if self._running is not None:
            return self._plan_deadline
        return self._topics_deadline if self._requested is None else self._requested.deadline + BACKLOG_GRACE_S
