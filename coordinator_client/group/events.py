"""The events of a group member, as frozen values: the only input of `MemberBase.step`.

Response events name their request by its `serial` (from `Send`). The machine keeps the generation under which each
request was sent, and drops responses to requests that are no longer in flight. The caller compares nothing with the
present state: it delivers every event, in the order in which they happened.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kohort.common.errors import KohortError
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.hooks import Start
from kohort.coordinator_client.subscription_state import Subscription
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.metadata import TopicsChanged

if TYPE_CHECKING:
    from kohort.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
    from kohort.protocol.apis.find_coordinator import FindCoordinatorResponse
    from kohort.protocol.apis.heartbeat import HeartbeatResponse
    from kohort.protocol.apis.join_group import JoinGroupResponse
    from kohort.protocol.apis.leave_group import LeaveGroupResponse
    from kohort.protocol.apis.sync_group import SyncGroupRequestAssignment, SyncGroupResponse


# ------------------------------------------------------------------------------------------------------- responses


class FindCoordinatorResponded(NamedTuple):
    """A FindCoordinator response arrived (it may carry an error code)."""

    serial: int
    response: "FindCoordinatorResponse"


class JoinGroupResponded(NamedTuple):
    """A JoinGroup response arrived."""

    serial: int
    response: "JoinGroupResponse"


class SyncGroupResponded(NamedTuple):
    """A SyncGroup response arrived."""

    serial: int
    response: "SyncGroupResponse"


class HeartbeatResponded(NamedTuple):
    """A Heartbeat response arrived."""

    serial: int
    response: "HeartbeatResponse"


class LeaveGroupResponded(NamedTuple):
    """A LeaveGroup response arrived."""

    serial: int
    response: "LeaveGroupResponse"


class ConsumerGroupHeartbeatResponded(NamedTuple):
    """A ConsumerGroupHeartbeat response arrived (KIP-848): to a join, a report or a leave."""

    serial: int
    response: "ConsumerGroupHeartbeatResponse"


class RequestFailed(NamedTuple):
    """A request was not sent and will not be, with an error that no retry cures.

    Examples: no common version, failed authentication, values that the version cannot carry. The error is raised in
    poll.
    """

    serial: int
    error: KohortError


class Disconnected(NamedTuple):
    """A connection ended or could not be made, or a request timed out (`reason` is then "timeout").

    Delivered once for each request in flight (`serial`). Delivered without a serial if the coordinator's connection
    closes while no request is in flight. So is the end of a request of another part to which it did not respond.
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
"""`Send.api` -> the event of its response: `RESPONSE_EVENTS[send.api](send.serial, response)`."""


# ------------------------------------------------------------------------------------------------------ from the user


class Subscribed(NamedTuple):
    """The user subscribed, or changed the subscription."""

    subscription: Subscription


class Unsubscribed(NamedTuple):
    """The user has unsubscribed: revoke, commit, leave."""


class Polled(NamedTuple):
    """The caller's thread entered poll (or any call that waits and runs hooks) at `at`, monotonic seconds."""

    at: float


class PollEnded(NamedTuple):
    """The caller's thread left poll at `at`: user code runs from now on, and max.poll.interval with it.

    Of several `Polled`/`PollEnded` that happened between two turns of the driver only the last of each is needed.
    """

    at: float


class HookStarted(NamedTuple):
    """The caller's thread took the hook call with this serial and is about to run it.

    Required: until it comes, a call may be replaced by another (`on_revoked` by `on_lost`, if membership is lost
    first).
    """

    serial: int
    at: float


class HookDone(NamedTuple):
    """The hook call is over.

    `commit`: offsets to commit before letting go, from the return value of the hook and from auto-commit; only for
    `Revoked`. `start`: the return value of `on_assigned`. `error`: the exception that the hook raised. The driver
    raises it from poll; here it goes into the timeline.
    """

    serial: int
    at: float
    commit: Mapping[TopicPartition, OffsetAndMetadata] = MappingProxyType({})
    start: Mapping[TopicPartition, Start] = MappingProxyType({})
    error: BaseException | None = None


class RebalanceEnforced(NamedTuple):
    """`enforce_rebalance(reason)` was called (KIP-568)."""

    reason: str = ""


class CloseRequested(NamedTuple):
    """Revoke, commit, leave, and end by `deadline` (monotonic seconds) in any case."""

    deadline: float
    reason: str = "the consumer is being closed"


# ----------------------------------------------------------------------------------------- from metadata and commits


class CommitRefused(NamedTuple):
    """An OffsetCommit response has error `code` for at least one partition.

    `sent` is the identity it was sent under. One event for each distinct code in a response is enough. `commit_verdict`
    in `error_actions.py` decides about the commit itself; call it after this event was stepped.
    """

    code: int
    sent: ConsumerGroupMetadata
    partitions: frozenset[TopicPartition] = frozenset()


class CommitSettled(NamedTuple):
    """The `CommitOrder` with this serial is settled: all is committed except `refused`.

    `refused`: partition -> error code; -1 if the outcome is unknown because the deadline came first.
    """

    serial: int
    refused: Mapping[TopicPartition, int] = MappingProxyType({})


class LagKnown(NamedTuple):
    """The result of the `BacklogOrder` with this serial: records waiting, by partition.

    `unknown`: the number of partitions of the order that are not in it. `why`: the reason.
    """

    serial: int
    lag: Mapping[TopicPartition, int]
    unknown: int = 0
    why: str = ""


class PlanMade(NamedTuple):
    """The `PlanOrder` with this serial has run: the assignments for SyncGroup, or the error."""

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
    | CloseRequested
    | TopicsChanged
    | CommitRefused
    | CommitSettled
    | LagKnown
    | PlanMade
)
