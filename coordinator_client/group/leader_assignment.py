"""The leader's work: parse the subscriptions, let the assignor plan, check the plan, and encode it.

Pure functions of a JoinGroup response and metadata. The plan is checked here, before it is sent, because later steps
rely on it. Two members would read a partition that is assigned twice. A member that is assigned a topic outside of its
subscription would rejoin for ever.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kohort.assignors import Assignor, GroupView, MemberSubscription, Plan, run_assignor
from kohort.assignors.group import NO_GENERATION
from kohort.common.errors import KohortError, WireError
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group.events import PlanMade
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

COOPERATIVE_STICKY: Final = "cooperative-sticky"

TopicShape = tuple[int, Mapping[int, frozenset[str]]]
"""The facts of a topic that an assignment depends on: its number of partitions and, with racks, its replicas."""


class AssignorFailed(KohortError):
    """The assignor raised, or its result is invalid: `assignor`, `group`, `generation`."""


class MemberMetadata(NamedTuple):
    """The subscription of one member. `error`: the reason why part of it could not be used; "" for none."""

    subscription: Subscription
    instance_id: str | None
    error: str = ""


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


def shape_of(info: TopicInfo | None, racks_matter: bool) -> TopicShape:
    """The facts about a topic that an assignment depends on; a missing topic has no partitions."""
    if info is None:
        return 0, {}
    return info.partitions, dict(info.racks) if racks_matter else {}


class PlanOrder(NamedTuple):
    """Let `assignor` plan this group, then check and encode the result.

    All fields are frozen, so `run` may be called on any thread. `lag`: the lag by partition, None if the assignor does
    not need it.
    """

    serial: int
    assignor: Assignor
    said: Mapping[str, MemberMetadata]
    topics: Mapping[str, TopicInfo]
    lag: Mapping[TopicPartition, int] | None = None

    def run(self) -> PlanMade:
        """Return the plan, or the reason for its failure. It raises nothing, for any exception of the assignor."""
        try:
            plan = make_plan(self.assignor, self.said, self.topics, self.lag)
            return PlanMade(self.serial, write_plan(plan))
        except AssignorFailed as error:
            return PlanMade(self.serial, error=error)
        except BaseException as error:  # even SystemExit must not end the thread: the member would wait for ever
            reported = f"the group cannot be assigned: {type(error).__name__}: {error}"
            return PlanMade(self.serial, error=AssignorFailed(reported, assignor=self.assignor.name))


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


def write_plan(plan: Plan) -> tuple[SyncGroupRequestAssignment, ...]:
    """The plan as SyncGroup carries it: one entry a member, also for those that get nothing."""
    return tuple(
        SyncGroupRequestAssignment(
            member_id=member_id,
            assignment=plan.encode(member_id),
        )
        for member_id in plan
    )


def write_subscription(
    assignor: Assignor, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int, rack_id: str | None
) -> bytes:
    """Return the subscription that this member sends to the leader for one assignor.

    Raises `AssignorFailed` for any exception of the assignor.
    """
    try:
        return _written(assignor.subscription(sorted(topics), sorted(owned), generation), rack_id)
    except BaseException as error:  # a user's code may raise anything, and this is the driver's thread
        reported = f"{type(error).__name__}: {error}"
        raise AssignorFailed(
            f"assignor {assignor.name!r} failed in subscription(): {reported}", assignor=assignor.name
        ) from error


def _written(reported: MemberSubscription, rack_id: str | None) -> bytes:
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
            generation_id=reported.generation_id,
            rack_id=reported.rack_id if reported.rack_id is not None else rack_id,
        )
    )
