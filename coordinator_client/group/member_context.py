"""State shared by the components of a group member: its coordinator, requests in flight, topics and owned partitions.

`MemberContext`, at the end, has all of it. Two parts have files of their own: `states.py` and `member_timers.py`.
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any, Final, Self

from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group.member_timers import MemberSettings, MemberTimers
from kohort.coordinator_client.group.ready import Send
from kohort.coordinator_client.group.states import (
    COORDINATOR_TRANSITIONS,
    CoordinatorState,
    CoordinatorTrigger,
    StateTracker,
)
from kohort.coordinator_client.hooks import Assigned, HookCall, HookEvent
from kohort.coordinator_client.subscription_state import AssignedPartitions, Subscription
from kohort.network.find_coordinator import CoordinatorNode
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.network.metadata import TopicInfo, TopicsChanged
from kohort.network.metadata_refresh import WantedTopics

# ---------------------------------------------------------------------------------------------------------- coordinator


class CoordinatorSearch:
    """The address of the coordinator, and the time of the next search, with a growing pause while that fails.

    Its states are `CoordinatorState`.

    A FindCoordinator response does not end the failure by itself: a cluster names a dead broker until it has noticed.
    Only a response *from* the coordinator does (`proved`). Otherwise a member would send requests to both in turn
    without a pause.
    """

    __slots__ = ("_settings", "coordinator", "failures", "retry_at", "state")

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self.state = CoordinatorState.UNKNOWN
        self.coordinator: CoordinatorNode | None = None
        self.failures = 0
        self.retry_at = 0.0

    def due(self, now: float) -> bool:
        """True if a FindCoordinator is to be sent now."""
        return self.state is CoordinatorState.UNKNOWN and now >= self.retry_at

    def requested(self) -> None:
        self.state = COORDINATOR_TRANSITIONS[self.state][CoordinatorTrigger.SENT]

    def found(self, coordinator: CoordinatorNode) -> None:
        self.state = COORDINATOR_TRANSITIONS[self.state][CoordinatorTrigger.FOUND]
        self.coordinator = coordinator

    def not_found(self, now: float) -> None:
        self.state = COORDINATOR_TRANSITIONS[self.state][CoordinatorTrigger.NOT_FOUND]
        self.failures += 1
        self.retry_at = now + self._settings.backoff_s(self.failures)

    def gone(self, now: float) -> None:
        """The coordinator is dead or is not the coordinator.

        The first search after a success starts at once.
        """
        self.state = COORDINATOR_TRANSITIONS[self.state][CoordinatorTrigger.GONE]
        self.coordinator = None
        self.retry_at = now + self._settings.backoff_s(self.failures)
        self.failures += 1

    def proved(self) -> None:
        """The coordinator responded as one."""
        self.failures = 0


# --------------------------------------------------------------------------------------------------- requests in flight

RESPONSE_GRACE_MS: Final = 2_000
"""Time (ms) after a request's own time-out at which the machine stops waiting.

The driver owes each request an outcome within its time-out. With this limit even a defect of the driver cannot block a
member for ever.
"""

LEAVE_APIS: Final = ("LeaveGroup", "ConsumerGroupHeartbeat")
"""The APIs by which a member leaves."""

HEARTBEAT_APIS: Final = ("Heartbeat", "ConsumerGroupHeartbeat")
"""The APIs by which a member stays."""

OTHER_CONNECTION_APIS: Final[Mapping[str, frozenset[str]]] = {
    "JoinGroup": frozenset({"LeaveGroup", "Heartbeat"}),
    "SyncGroup": frozenset({"LeaveGroup"}),
}
"""A request that waits for other members -> the requests that use another connection meanwhile. Brokers read nothing
behind a request without a response."""


class InFlightRequest(NamedTuple):
    """A request in flight. Times are monotonic seconds.

    `use_other_connection`: it was sent while a join or sync waited on the coordinator's own connection.
    """

    api: str
    identity: ConsumerGroupMetadata
    sent_at: float
    node_id: int | None
    overdue_at: float
    use_other_connection: bool = False


class InFlightRequests:
    """The requests in flight with the identities they were sent under, and those to be handed out (`drain_sends`).

    Responses to cancelled requests are dropped: `cancel` removes the request, and `complete` then returns None.
    """

    __slots__ = ("_distrusted", "_on_wire", "_requests", "_sends", "_serial")

    def __init__(self) -> None:
        self._serial = 0
        self._distrusted = False
        self._requests: dict[int, InFlightRequest] = {}
        self._on_wire: Send | None = None  # the newest join or sync, also after it was cancelled
        self._sends: list[Send] = []

    def next_serial(self) -> int:
        """A number not used before by this member: one sequence for requests, hook calls and commit orders."""
        self._serial += 1
        return self._serial

    def send(
        self,
        api: str,
        request: Any,
        timeout_ms: int,
        *,
        to: CoordinatorNode | None,
        identity: ConsumerGroupMetadata,
        now: float,
        awaited: bool = True,
    ) -> None:
        """Hand out a request. If it is not `awaited`, its outcome is ignored."""
        serial = self.next_serial()
        aside = self._on_wire is not None and api in OTHER_CONNECTION_APIS[self._on_wire.api]
        renew = self._distrusted and to is not None and not aside
        # The coordinator may never respond to the sync of a member that has left.
        self._distrusted = (self._distrusted and not renew) or (aside and api == "LeaveGroup")
        send = Send(serial, to, api, request, timeout_ms, aside, renew)
        self._sends.append(send)
        if api in OTHER_CONNECTION_APIS:
            self._on_wire = send
        if awaited:
            node_id = None if to is None else to.node_id
            overdue_at = now + (timeout_ms + RESPONSE_GRACE_MS) / 1000
            self._requests[serial] = InFlightRequest(api, identity, now, node_id, overdue_at, aside)

    def use_new_connection_next(self) -> None:
        """Send the next request to a coordinator by a new connection.

        Called when requests on the coordinator's own connection get no response although they should.
        """
        self._distrusted = True

    def drain_sends(self) -> tuple[Send, ...]:
        """The requests added since the last call, in order."""
        sends, self._sends = tuple(self._sends), []
        return sends

    def on_result(self, serial: int | None) -> None:
        """The request of this serial has had its outcome, in flight or cancelled."""
        if self._on_wire is not None and serial == self._on_wire.serial:
            self._on_wire = None

    @property
    def is_held_up(self) -> bool:
        """True if a join or sync, also a cancelled one, has no response yet. Brokers read nothing behind it."""
        return self._on_wire is not None

    def complete(self, serial: int) -> InFlightRequest | None:
        """Remove and return the request that an outcome belongs to; None if it is not in flight."""
        return self._requests.pop(serial, None)

    def get(self, serial: int) -> InFlightRequest | None:
        """As `complete`, without removing the request."""
        return self._requests.get(serial)

    def is_in_flight(self, api: str) -> bool:
        return any(requested.api == api for requested in self._requests.values())

    def cancel(self, *apis: str) -> None:
        """Forget the requests to these APIs. Their responses will be dropped."""
        self._requests = {
            serial: requested for serial, requested in self._requests.items() if requested.api not in apis
        }

    def overdue(self, now: float) -> list[int]:
        """Serials of the requests that have timed out."""
        return [serial for serial, requested in self._requests.items() if now >= requested.overdue_at]

    def overdue_times(self) -> Iterable[float]:
        """The time (monotonic s) at which each request will have timed out."""
        return (requested.overdue_at for requested in self._requests.values())


# --------------------------------------------------------------------------------------------------------------- topics

NO_TOPICS: Final[frozenset[str]] = frozenset()

TOPICS_PATIENCE_S: Final = 1.0
"""Maximum wait (s) of a rebalance for the topics of a pattern as they are now."""


class TopicSubscription:
    """The known topics of the cluster, and the topics that the subscription means because of them.

    `known`: the existing topics. `meant`: those of the current subscription, None while a pattern waits for the
    cluster's topics. `joined`: those of the last JoinGroup. `awaited_until`: the time (monotonic s) until which a
    rebalance waits for the topics of a pattern, None if it has not requested them.
    """

    __slots__ = (
        "_everything_known",
        "_hide_internal",
        "_looked_up",
        "_reported",
        "_requested",
        "awaited_until",
        "joined",
        "known",
        "meant",
        "subscription",
    )

    def __init__(self, *, hide_internal: bool) -> None:
        self._hide_internal = hide_internal
        self.subscription: Subscription | None = None
        self.known: dict[str, TopicInfo] = {}
        self._looked_up: set[str] = set()  # topics with a Metadata response, existing or not
        self._everything_known = False
        # Topics of the pattern that the leader assigned before this member's metadata had them.
        self._reported = NO_TOPICS
        self.meant: frozenset[str] | None = None
        self.joined = NO_TOPICS
        self.awaited_until: float | None = None
        self._requested = 0

    @property
    def by_pattern(self) -> bool:
        return self.subscription is not None and self.subscription.by_pattern

    def subscribe(self, subscription: Subscription | None) -> None:
        """The user replaced the subscription, or gave it up (None)."""
        self.subscription = subscription
        self._reported = NO_TOPICS
        self._resolve()

    def refresh(self, now: float) -> bool:
        """Request the topics of a pattern, once a rebalance. True while they are waited for."""
        if self.awaited_until is None and self.by_pattern:
            self._requested += 1
            self.awaited_until = now + TOPICS_PATIENCE_S
        return self.awaited_until is not None and now < self.awaited_until

    def learn(self, event: TopicsChanged) -> None:
        """Add metadata: of the whole cluster, or of the requested topics."""
        if event.complete and self.awaited_until is not None:
            self.awaited_until = -inf
        usable = {name: info for name, info in event.topics.items() if info.partitions >= 0}
        if event.complete:
            self.known = usable
            self._looked_up = set(usable)
            self._everything_known = True
            self._reported = NO_TOPICS
        else:
            for name in event.requested:
                self.known.pop(name, None)
            self.known.update(usable)
            self._looked_up |= event.requested | usable.keys()
        self._resolve()

    def believe(self, reported: frozenset[str]) -> None:
        """Add topics that the leader assigned and the join did not name: its metadata is newer."""
        self._reported |= reported
        self.joined |= reported
        self._resolve()

    def never_looked_up(self, topics: frozenset[str]) -> frozenset[str]:
        """Those of `topics` of which not even the absence is known."""
        return NO_TOPICS if self._everything_known else topics - self._looked_up

    def wanted(self, group_topics: frozenset[str]) -> WantedTopics:
        """The topics with needed metadata: the subscribed ones, and those that a leader has to assign."""
        subscription = self.subscription
        if subscription is None:
            return WantedTopics()
        own = subscription.topics
        return WantedTopics(own | group_topics, subscription.by_pattern, self._requested, group_topics - own)

    def _resolve(self) -> None:
        """Work out the topics of the subscription from what is known of the cluster."""
        subscription = self.subscription
        if subscription is None:
            self.meant = NO_TOPICS
        elif not subscription.by_pattern:
            self.meant = subscription.topics
        elif not self._everything_known:
            self.meant = None
        else:
            hidden = self._hide_internal
            found = subscription.resolved({name: hidden and info.internal for name, info in self.known.items()})
            self.meant = found | self._reported


# ----------------------------------------------------------------------------------------------------- owned partitions

NOTHING: Final[frozenset[TopicPartition]] = frozenset()


class OwnedPartitions:
    """The partitions that a member owns, and the one due hook call about them.

    At most one call is due. While it runs, the member leaves its state only by loss or stall. Hooks are therefore
    called in the order of the events, each before its consequences.

    `assignment`: the owned partitions. `newly_assigned`: those of the last sync, until their `on_assigned` is done.
    `previously_owned`, `last_generation`: the result of the last assignment that came, for sticky assignors.
    `claimed_generation`: the last generation that ended for this member, by an assignment or by a refusal of one.
    `hook`: the due call. `callback_running`: the caller has taken it.
    """

    __slots__ = (
        "_fetchable",
        "_fetchable_for",
        "assignment",
        "callback_running",
        "claimed_generation",
        "hook",
        "last_generation",
        "newly_assigned",
        "previously_owned",
    )

    def __init__(self) -> None:
        self.assignment = AssignedPartitions()
        self.newly_assigned = NOTHING
        self.previously_owned = NOTHING
        self.last_generation = self.claimed_generation = -1
        self.hook: HookCall | None = None
        self.callback_running = False
        self._fetchable = NOTHING
        self._fetchable_for: tuple[AssignedPartitions, HookCall | None, bool] = (self.assignment, None, False)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """All that is owned."""
        return self.assignment.partitions

    def accept(self, generation: int) -> None:
        """The newly assigned partitions are owned now, in this generation."""
        self.assignment = self.assignment.brought(self.newly_assigned)
        self.end_generation(generation)

    def end_generation(self, generation: int) -> None:
        """The assignment of this generation was accepted or refused. Nothing is owned besides `partitions`."""
        self.previously_owned = self.partitions
        self.last_generation = self.claimed_generation = generation

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that are not owned any more."""
        self.assignment = self.assignment.without(partitions)

    def forget_generation(self) -> None:
        """Membership is gone: nothing arrives any more, and nothing is worth remembering to an assignor."""
        self.newly_assigned = NOTHING
        self.previously_owned = NOTHING
        self.last_generation = self.claimed_generation = -1

    # -- the hook

    def call(
        self, serial: int, event: HookEvent, before: frozenset[TopicPartition], then: frozenset[TopicPartition]
    ) -> None:
        """Set the due call. `before` and `then` are the user's visible assignment while it runs and after it."""
        self.hook = HookCall(serial, event, before, then)
        self.callback_running = False

    def withdraw(self) -> None:
        """Withdraw the call that was not taken. Partitions it would have brought are dropped."""
        if self.hook is not None and isinstance(self.hook.event, Assigned):
            self.drop(self.hook.event.partitions)
        self.hook = None

    def started(self, serial: int) -> bool:
        """The caller took the call of this serial. Returns True if it is the due one."""
        if self.hook is None or serial != self.hook.serial:
            return False
        self.callback_running = True
        return True

    def ended(self, serial: int) -> HookCall | None:
        """The call of this serial is done: the call, if that is the one that was due."""
        hook = self.hook
        if hook is None or serial != hook.serial:
            return None
        self.hook, self.callback_running = None, False
        return hook

    # -- the view

    def fetchable(self, *, alive: bool) -> frozenset[TopicPartition]:
        """Owned, of a living membership, not on its way out, and past its `on_assigned`."""
        assignment, hook = self.assignment, self.hook
        before = self._fetchable_for
        if before[0] is not assignment or before[1] is not hook or before[2] is not alive:
            waiting = NOTHING if hook is None else hook.event.partitions
            self._fetchable = assignment.partitions - waiting if alive else NOTHING
            self._fetchable_for = (assignment, hook, alive)
        return self._fetchable


# ------------------------------------------------------------------------------------------------------------ all of it


class MemberContext(NamedTuple):
    """The shared state of one member: its tracker, coordinator, timers, topics, requests and partitions."""

    settings: MemberSettings
    tracker: StateTracker
    coordinator: CoordinatorSearch
    timers: MemberTimers
    topics: TopicSubscription
    in_flight: InFlightRequests
    owned: OwnedPartitions

    @classmethod
    def of(cls, settings: MemberSettings, walk: StateTracker) -> Self:
        """A member that has not begun."""
        topics = TopicSubscription(hide_internal=settings.exclude_internal_topics)
        return cls(
            settings,
            walk,
            CoordinatorSearch(settings),
            MemberTimers(settings),
            topics,
            InFlightRequests(),
            OwnedPartitions(),
        )


class MemberComponent:
    """A part of a member that acts on what is shared."""

    def __init__(self, shared: MemberContext) -> None:
        self._settings = shared.settings
        self._tracker = shared.tracker
        self._coordinator = shared.coordinator
        self._timers = shared.timers
        self._topics = shared.topics
        self._in_flight = shared.in_flight
        self._owned = shared.owned
