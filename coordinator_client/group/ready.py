"""The work that a group member hands out: one ordered, frozen value, the only output of `MemberBase`.

The duties of a driver
----------------------
The machine belongs to one thread (the driver's). A turn of that thread is:

0. Withdraw the published hook call, under the driver's small lock. If the caller has taken it already, its
   `HookStarted` is in the queue. While the machine steps, no call is published, so none can be replaced under a caller.
1. `member.step(event, now)` for every event, in the order of occurrence. Events of the caller's thread (`HookStarted`,
   `Polled`, ...) go before those of sockets, because the caller acted on an older view.
2. `ready = member.ready(now)`. It drains: values under "edges" are given once and never again. Values under "levels"
   are given every time, and are true until the next `Ready`.
3. Do the work, in the order of the fields. The order is part of the contract.
4. Sleep until `ready.wake_at`, a socket event or the caller, then go to 1. There is no tick event: `ready(now)` itself
   checks the time.

`now` is monotonic seconds and never goes back. Requests are sent in the order of `sends`. A `Send` to the coordinator
uses a connection of its own (not the one that fetches from the same node), and has exactly one outcome. It is its
response (`events.RESPONSE_EVENTS[send.api](send.serial, response)`), or `Disconnected(serial, ...)` at close or
time-out, or `RequestFailed(serial, error)`. A `Send` that is not written yet when the machine stops waiting for it may
still be sent, and its response is discarded. Before encoding, pass the request through `request_versions.fit`, because
the machine does not depend on versions.

The caller's thread, inside poll, handles `ready.hook` in these steps:

1. Take it under the driver's small lock, and queue `HookStarted`.
2. Set the visible assignment to `hook.before`, and set the pause marks with `marks.settled(hook)`.
3. Call the user's hook without any lock.
4. Set the visible assignment to `hook.after`, queue `HookDone`, and raise the hook's exception, if any.

It never takes a serial twice.

The fetch barrier: a record may be returned to the user only under these conditions. Its partition is in
`view.fetchable`, was fetched under the current `view.assignment[tp].epoch`, and is not paused. `now` is below
`view.ownership_deadline`. Fetching itself continues past the lease, because a lost coordinator revokes nothing. Records
are not returned then, because a process that slept through its session may not own anything any more.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kohort.common.errors import KohortError
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group.states import MemberState
from kohort.coordinator_client.hooks import HookCall
from kohort.coordinator_client.subscription_state import AssignedPartitions
from kohort.network.find_coordinator import CoordinatorNode
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.metadata import TopicInfo
from kohort.network.metadata_refresh import WantedTopics
from kohort.network.notices import Notice

if TYPE_CHECKING:
    from kohort.assignors import Assignor
    from kohort.protocol.apis.find_coordinator import FindCoordinatorRequest
    from kohort.protocol.apis.heartbeat import HeartbeatRequest
    from kohort.protocol.apis.join_group import JoinGroupRequest
    from kohort.protocol.apis.leave_group import LeaveGroupRequest
    from kohort.protocol.apis.sync_group import SyncGroupRequest
    from kohort.protocol.membership import Subscription


class Send(NamedTuple):
    """A request to send. `to` is None for any broker (FindCoordinator), else the coordinator at the time of the
    request.

    `api` is Kafka's name of it ("JoinGroup"), `request` the typed value, `timeout_ms` the time-out of its response. For
    JoinGroup it is at least the rebalance timeout and 5 s, because the coordinator responds after all members have
    joined.

    `use_other_connection`: send this by another connection to the same node. A JoinGroup or SyncGroup waits on the
    coordinator's own connection, and brokers read nothing behind a request without a response. (While `view.state` is
    JOINING, this also applies to commits and OffsetFetch.)

    `use_new_connection`: close the coordinator's own connection first, if there is one, and send this by a new one.
    Requests on the old one get no response.
    """

    serial: int
    to: CoordinatorNode | None
    api: str
    request: "FindCoordinatorRequest | JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest"
    timeout_ms: int
    use_other_connection: bool = False
    use_new_connection: bool = False


class CommitOrder(NamedTuple):
    """Commit these offsets now, under `identity`. The join that would end this generation waits for it.

    Step `CommitSettled(serial, ...)` when all of them are settled or `deadline` (monotonic seconds) has come.
    """

    serial: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    identity: ConsumerGroupMetadata
    deadline: float


class BacklogOrder(NamedTuple):
    """Measure the lag of these partitions of these topics, from the group's committed offsets to the log end.

    Step `LagKnown(serial, ...)` with the values known at `deadline` (monotonic seconds).
    """

    serial: int
    topics: Mapping[str, int]
    deadline: float


class MemberMetadata(NamedTuple):
    """The subscription of one member. `error`: the reason why part of it could not be used; "" for none."""

    subscription: "Subscription"
    instance_id: str | None
    error: str = ""


class PlanOrder(NamedTuple):
    """Let `assignor` plan this group: run `leader_assignment.run_plan` with this order, and step its `PlanMade`.

    All fields are frozen, so any thread may run it. `lag`: the lag by partition, None if the assignor does not need it.
    """

    serial: int
    assignor: "Assignor"
    said: Mapping[str, MemberMetadata]
    topics: Mapping[str, TopicInfo]
    lag: Mapping[TopicPartition, int] | None = None


class MemberView(NamedTuple):
    """The current state of the member. It is immutable, so any thread may keep and read it.

    `since`: monotonic seconds at which `state` was entered. `held`: the last identity in a generation. `assignment`:
    the owned partitions, each with the epoch of its ownership. `fetchable`: the partitions that may be fetched and
    returned (without regard to pause marks). `ownership_deadline`: membership is certain until then (monotonic seconds;
    infinity while nothing can end it). `commits_open`: false while the coordinator would reject every commit. Hold
    commits until it is true, then send those of partitions still owned under the same epoch with the new `identity`.
    While a subscribed member's `identity.generation` is -1 it has nothing to commit, also if `assignment` still has
    partitions: fail the commit. `last_beat_at`: the sending time of the last heartbeat with a successful response.
    `fatal`: raise it from every poll.
    """

    state: MemberState
    since: float
    coordinator: CoordinatorNode | None
    identity: ConsumerGroupMetadata
    held: ConsumerGroupMetadata
    assignment: AssignedPartitions
    fetchable: frozenset[TopicPartition]
    ownership_deadline: float
    commits_open: bool
    last_beat_at: float | None
    fatal: KohortError | None


class Ready(NamedTuple):
    """Everything a driver has to do now. Fields are in the order in which they must be done."""

    view: MemberView
    """Level. Publish it first. A partition that is missing from `view.fetchable` must not be returned any more *before*
    its hook is published. Otherwise a record could follow its own revocation. poll raises `view.fatal`, if any.
    """

    hook: HookCall | None
    """Level: the due call, until its `HookDone`. It is published after the view, never two at a time. A call that
    differs from the published one replaces it, unless the caller has taken that already.
    """

    commit: CommitOrder | None
    """Edge. Before `sends`: a join in `sends` ends the generation that fences this commit. The machine waits for
    `CommitSettled` before it joins, so the order holds by itself, but a driver must not change it.
    """

    sends: tuple[Send, ...]
    """Edge. In this order, on one connection per destination."""

    wanted: WantedTopics
    """Level. Request metadata of new topics at once, and keep it fresh. Report it by `TopicsChanged`."""

    backlog: BacklogOrder | None
    """Edge. Requests to the group's coordinator and the partitions' leaders. The plan waits briefly for the result."""

    plan: PlanOrder | None
    """Edge. Run it on a thread of its own, because it runs the user's assignor."""

    error: KohortError | None
    """Edge. The next poll raises it, and the membership goes on."""

    notices: tuple[Notice, ...]
    """Edge. They are last, because they have no effect."""

    wake_at: float | None
    """Level: the time of the next call of `ready` (monotonic seconds) without an event. None: only after events."""
