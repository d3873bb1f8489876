"""The events of a group member, as frozen values: the only input of its `step`.

Answers name the request they belong to by its `serial` (from `Send`), and the machine knows what it had asked under
which generation: an answer to a question that nobody waits for any more is discarded. Nothing here is compared with
the present state by whoever delivers it; deliver everything, in the order in which it happened.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kohort.common.errors import KohortError
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.subscription_state import Start, Subscription
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.metadata import TopicsChanged

if TYPE_CHECKING:
    from kohort.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
    from kohort.protocol.apis.find_coordinator import FindCoordinatorResponse
    from kohort.protocol.apis.heartbeat import HeartbeatResponse
    from kohort.protocol.apis.join_group import JoinGroupResponse
    from kohort.protocol.apis.leave_group import LeaveGroupResponse
    from kohort.protocol.apis.sync_group import SyncGroupRequestAssignment, SyncGroupResponse


# ------------------------------------------------------------------------------------------------ answers to requests


class FindCoordinatorResponded(NamedTuple):
    """FindCoordinator was answered (the answer may still be a refusal)."""

    serial: int
    response: "FindCoordinatorResponse"


class JoinGroupResponded(NamedTuple):
    """JoinGroup was answered."""

    serial: int
    response: "JoinGroupResponse"


class SyncGroupResponded(NamedTuple):
    """SyncGroup was answered."""

    serial: int
    response: "SyncGroupResponse"


class HeartbeatResponded(NamedTuple):
    """Heartbeat was answered."""

    serial: int
    response: "HeartbeatResponse"


class LeaveGroupResponded(NamedTuple):
    """LeaveGroup was answered."""

    serial: int
    response: "LeaveGroupResponse"


class ConsumerGroupHeartbeatResponded(NamedTuple):
    """ConsumerGroupHeartbeat was answered (KIP-848): a join, a report, a leave, whichever it was."""

    serial: int
    response: "ConsumerGroupHeartbeatResponse"


class RequestFailed(NamedTuple):
    """A request was not and will not be sent, for a reason that trying again does not cure: no common version,
    authentication failed, values that the version cannot carry. The error is raised in poll."""

    serial: int
    error: KohortError


class Disconnected(NamedTuple):
    """A connection ended, or could not be made, or an answer did not come in time (then `reason` says "timeout").

    Once for each request that was waiting (`serial`), and once without serial when the coordinator's connection closes
    while none was: that is news too.
    """

    serial: int | None = None
    node_id: int | None = None
    reason: str = ""


RESPONSE_EVENTS: Final[Mapping[str, Any]] = {
    "FindCoordinator": FindCoordinatorResponded,
    "JoinGroup": JoinGroupResponded,
    "SyncGroup": SyncGroupResponded,
    "Heartbeat": HeartbeatResponded,
    "LeaveGroup": LeaveGroupResponded,
    "ConsumerGroupHeartbeat": ConsumerGroupHeartbeatResponded,
}
"""`Send.api` -> the event its answer becomes: `RESPONSE_EVENTS[send.api](send.serial, response)`."""


# ------------------------------------------------------------------------------------------------------ from the user


class Subscribed(NamedTuple):
    """The user subscribed, or changed the subscription."""

    subscription: Subscription


class Unsubscribed(NamedTuple):
    """The user gave the subscription up: let go, commit, leave."""


class Polled(NamedTuple):
    """The caller's thread entered poll (or any call that waits and runs hooks) at `at`, monotonic seconds."""

    at: float


class PollEnded(NamedTuple):
    """The caller's thread left poll at `at`: user code runs from now on, and max.poll.interval with it.

    Of several `Polled`/`PollEnded` that happened between two turns of the driver only the last of each is needed.
    """

    at: float


class HookStarted(NamedTuple):
    """The caller's thread took the hook call with this serial and is about to run it. Required: until it comes, a call
    may be replaced by another (`on_revoked` by `on_lost`, when membership is lost first)."""

    serial: int
    at: float


class HookDone(NamedTuple):
    """The hook call is over.

    `commit`: what to commit before letting go: the hook's answer, over whatever auto-commit adds; only for `Revoked`.
    `start`: the answer of `on_assigned`. `error`: what it raised (the driver raises it from poll; here it goes into
    the timeline).
    """

    serial: int
    at: float
    commit: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({})
    start: Mapping[TopicPartition, Start] = MappingProxyType({})
    error: BaseException | None = None


class RebalanceEnforced(NamedTuple):
    """`enforce_rebalance(reason)` was called (KIP-568)."""

    reason: str = ""


class CoordinatorWanted(NamedTuple):
    """Somebody beside membership needs the coordinator (commits or committed offsets of a manual assignment): look for
    it also while out of the group, from now on. Without this, a member that is OUT asks no broker anything."""

    wanted: bool = True


class CloseRequested(NamedTuple):
    """Let go, commit, leave, and be done by `deadline` (monotonic seconds), come what may."""

    deadline: float
    reason: str = "the consumer is being closed"


# ----------------------------------------------------------------------------------------- from metadata and commits


class CommitRefused(NamedTuple):
    """An OffsetCommit was answered with `code` for at least one partition. `sent` is the identity it was sent under.

    One event for each distinct code in an answer is enough. What to do with the commit itself: `commit_verdict` in
    `error_actions.py`, asked after this event was stepped.
    """

    code: int
    sent: ConsumerGroupMetadata
    partitions: frozenset[TopicPartition] = frozenset()


class CommitSettled(NamedTuple):
    """The `CommitOrder` with this serial is settled: all committed, but for `refused` (partition -> error code; -1
    where the outcome is unknown because the deadline came first)."""

    serial: int
    refused: Mapping[TopicPartition, int] = MappingProxyType({})


class LagKnown(NamedTuple):
    """The `BacklogOrder` with this serial has its answer: records waiting by partition. `unknown` partitions of those
    asked for are not in it, and `reason` tells what kept them from being found out."""

    serial: int
    lag: Mapping[TopicPartition, int]
    unknown: int = 0
    why: str = ""


class PlanMade(NamedTuple):
    """The `PlanOrder` with this serial has run: what SyncGroup is to carry, or the error that came of it."""

    serial: int
    assignments: "tuple[SyncGroupRequestAssignment, ...]" = ()
    error: KohortError | None = None


Event = (
    FindCoordinatorResponded
    | JoinGroupResponded
    | SyncGroupResponded
    | HeartbeatResponded
    | LeaveGroupResponded
    | ConsumerGroupHeartbeatResponded
    | RequestFailed
    | Disconnected
    | Subscribed
    | Unsubscribed
    | Polled
    | PollEnded
    | HookStarted
    | HookDone
    | RebalanceEnforced
    | CoordinatorWanted
    | CloseRequested
    | TopicsChanged
    | CommitRefused
    | CommitSettled
    | LagKnown
    | PlanMade
)
