"""The work that a group member hands out: one ordered, frozen value, the only output of `GroupMember`.

How a driver must use it
------------------------
The machine belongs to one thread (the driver's). A turn of that thread is:

0. Take the published hook call back, under the driver's small lock; if the caller has taken it already, its
   `HookStarted` is in the queue. While the machine steps, no call is on offer, so none can be replaced under a caller.
1. `member.step(event, now)` for everything that happened, in the order in which it happened. What came from the
   caller's thread (`HookStarted`, `Polled`, ...) goes before what came from sockets: the caller acted on an older view.
2. `ready = member.ready(now)`. It drains: what it holds under "edges" is given once and never again. What it holds
   under "levels" is given every time, and is true until the next `Ready`.
3. Do what it says, in the order of its fields: the order is the promise.
4. Sleep until `ready.wake_at`, a socket or the caller, whichever comes first; then go to 1. There is no tick event:
   `ready(now)` itself looks at the time, so waking up and calling it is enough.

`now` is monotonic seconds and never goes back. Requests go out in the order of `sends`. A `Send` to the coordinator
uses a connection of its own (not the one that fetches from the same node), and has exactly one outcome: its answer
(`events.RESPONSE_EVENTS[send.api](send.serial, response)`), or `Disconnected(serial, ...)` at close or timeout, or
`RequestFailed(serial, error)`. A `Send` that is not written yet when the machine stops waiting for it may still go out:
answers nobody waits for are discarded. Before building, pass the request through `fit.fit(request, version)`:
the machine chooses nothing by version.

The caller's thread, inside poll, takes `ready.hook` under the driver's small lock, has `HookStarted` queued, sets its
visible assignment to `hook.before`, lays its pause marks with `marks.settled(hook)`, calls the user's hook without any
lock, sets the visible assignment to `hook.after`, has `HookDone` queued, and raises what the hook raised. A serial that
it has taken once it never takes again.

The fetch barrier: a record may be returned to the user only if its partition is in `view.fetchable`, was fetched under
the epoch that `view.assignment[tp].epoch` still shows, is not paused, and `now < view.ownership_deadline`. Fetching
itself goes on past the lease (a coordinator that is away takes nothing from us); showing does not, for a process that
slept through its session may not own anything any more.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kohort.common.errors import KohortError
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group.states import CoordinatorState, MemberState
from kohort.coordinator_client.hooks import HookCall, RebalanceCause
from kohort.coordinator_client.subscription_state import AssignedPartitions
from kohort.network.find_coordinator import CoordinatorNode
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.metadata_refresh import WantedTopics
from kohort.network.notices import Notice

if TYPE_CHECKING:
    from kohort.coordinator_client.group.leader_assignment import PlanOrder
    from kohort.protocol.apis.find_coordinator import FindCoordinatorRequest
    from kohort.protocol.apis.heartbeat import HeartbeatRequest
    from kohort.protocol.apis.join_group import JoinGroupRequest
    from kohort.protocol.apis.leave_group import LeaveGroupRequest
    from kohort.protocol.apis.sync_group import SyncGroupRequest


class Send(NamedTuple):
    """A request to send. `to` is None for any broker (FindCoordinator), else the coordinator at the time of asking.

    `api` is Kafka's name of it ("JoinGroup"), `request` the typed value, `timeout_ms` how long its answer may take:
    for JoinGroup at least the rebalance timeout and 5 s, since the coordinator sits on it while members gather.

    `use_other_connection`: a JoinGroup waits on the coordinator's own connection, and brokers read nothing
    behind a request that they
    have not answered: send this one by another connection to the same node, or it will be as late as that join. (While
    `view.state` is JOINING the same is true of commits and of fetching committed offsets.)

    `use_new_connection`: close the coordinator's own connection first, if there is one, and send this by
    another: what was asked by
    the old one gets no answer.
    """

    serial: int
    to: CoordinatorNode | None
    api: str
    request: "FindCoordinatorRequest | JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest"
    timeout_ms: int
    use_other_connection: bool = False
    use_new_connection: bool = False


class CommitOrder(NamedTuple):
    """Commit these offsets now, under `identity`, and say `CommitSettled(serial, ...)` when all of them are settled or
    `deadline` (monotonic seconds) has come. The join that would end this generation waits for it."""

    serial: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    identity: ConsumerGroupMetadata
    deadline: float


class BacklogOrder(NamedTuple):
    """Find out how many records wait in these partitions of these topics, from where the group has committed to the
    log's end, and say `LagKnown(serial, ...)` with what is known at `deadline` (monotonic seconds)."""

    serial: int
    topics: Mapping[str, int]
    deadline: float


class MemberView(NamedTuple):
    """The member as it stands; immutable, so any thread may keep and read it.

    `since`: monotonic seconds at which `state` was entered. `assignment`: what is owned, by partition, with the epoch
    its ownership began under. `fetchable`: what may be fetched and returned (pause marks not considered).
    `ownership_deadline`: membership is certain until then (monotonic seconds; infinity while nothing can take it away).
    `commits_open`: false while the coordinator would refuse every commit; hold them until it is true again, and then
    send those of partitions still owned under the same epoch with the new `identity`. While a subscribed member's
    `identity.generation` is -1 it has nothing to commit, whatever `assignment` still names: fail it.
    `held`: the identity that was last in a generation.
    `rejoin_wanted`: a rebalance is wanted and will begin as soon as the state allows. `fatal`: raise it from poll,
    every time. `protocol`: the assignor that the group chose, once there is a generation. `last_beat_at`: when the
    last heartbeat that was answered well had been sent.
    """

    state: MemberState
    since: float
    coordinator_state: CoordinatorState
    coordinator: CoordinatorNode | None
    identity: ConsumerGroupMetadata
    held: ConsumerGroupMetadata
    leader: bool
    protocol: str | None
    assignment: AssignedPartitions
    fetchable: frozenset[TopicPartition]
    ownership_deadline: float
    commits_open: bool
    rejoin_wanted: bool
    last_beat_at: float | None
    cause: RebalanceCause | None
    fatal: KohortError | None


class Ready(NamedTuple):
    """Everything a driver has to do now. Fields are in the order in which they must be done."""

    view: MemberView
    """Level. First: publish it. What is not in `view.fetchable` must not be returned any more *before* the hook that
    lets it go is published, else a record could follow its own revocation. `view.fatal`, if any, is raised by poll."""

    hook: HookCall | None
    """Level: the call that is due, until its `HookDone`. Published after the view. Never two at a time; a call that
    differs from the one published before replaces it, unless the caller has taken that already."""

    commit: CommitOrder | None
    """Edge. Before `sends`: a join in `sends` ends the generation which this commit is fenced by (the machine waits for
    `CommitSettled` before it joins, so the order holds by itself; a driver must not reorder it all the same)."""

    sends: tuple[Send, ...]
    """Edge. In this order, on one connection per destination."""

    wanted: WantedTopics
    """Level. Refresh at once whatever of it has never been asked for, and keep it fresh; tell by `TopicsChanged`."""

    backlog: BacklogOrder | None
    """Edge. A question for the group's coordinator and the partitions' leaders. The plan waits for its answer, but not
    long."""

    plan: "PlanOrder | None"
    """Edge. Have `plan.run()` called on a thread that has nothing else to do, for it runs the user's assignor, and step
    what it returns."""

    notices: tuple[Notice, ...]
    """Edge. Last, since they only tell."""

    wake_at: float | None
    """Level: call `ready` again at this time (monotonic seconds) if nothing happens before; None: only on events."""
