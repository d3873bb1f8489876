"""The states of a group member: all transitions as one literal table, the history of rebalances, and the state tracker.

There are two machines. *Membership* (`MemberState`) is the state of the member in the group and the progress of a
rebalance. *The coordinator* (`CoordinatorState`) is the search for the coordinating broker. They are separate because
they fail separately. If a coordinator dies, the member keeps its generation and partitions, and fetching goes on. A
group may also expel a member through a healthy coordinator. A client that mixes the two rejoins whenever a broker
restarts.

There are two rules for this file. All transitions are here: `StateTracker` changes the state only through
`TRANSITIONS`, and an absent pair is a bug of this library (`IllegalTransition`). The causes of transitions are
elsewhere: `classic_member.py` and its parts interpret a response, a timer or a hook, and choose a `Trigger`.

COOPERATIVE and EAGER have the same states. They differ in the partitions of `REVOKING`: all of them before a join, or
only those that move away after a sync.

The history has the cause, the members, the length of each phase and the moves of each rebalance (`RebalanceRecord`).
The machine writes it with the machine's own time. Every entry is a frozen value and the history is a tuple that is
replaced, so any thread may read it at any moment.
"""

from collections.abc import Mapping
from enum import Enum
from math import inf
from typing import Final, TypeVar

from kohort.common.foreign_text import MOST_NOTICE_CHARACTERS, cut, escaped
from kohort.common.named_tuple import NamedTuple
from kohort.common.state_table import state_table
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.hooks import RebalanceCause
from kohort.network.notices import Notice


class MemberState(Enum):
    """The state of this member in its group. Each value is the sentence `health()` shows."""

    OUT = "not in the group"
    """There is no subscription. This is the state at the start and after a leave. Nothing is sent, and no partition is
    owned. There is no search for the coordinator. Ends with a subscription."""

    LOSING = "calling on_lost"
    """The group expelled or fenced the member, or a fatal error ended the membership, while it owned partitions. Other
    members may own them already, so their records are not returned and nothing is committed. `on_lost` waits for, or
    runs on, the caller's thread. No heartbeats are sent. Ends when the hook is done: with a new join, or in `FAILED`
    after a fatal error."""

    REVOKING = "calling on_revoked"
    """The member must release partitions. Before an EAGER join these are all partitions. Before a COOPERATIVE join they
    are those of topics that are no longer subscribed, and after a COOPERATIVE sync those that move away. At unsubscribe
    and close they are all partitions. Their records are no longer returned. `on_revoked` waits for the caller's next
    poll, and heartbeats go on meanwhile. Ends when the hook is done."""

    COMMITTING = "committing offsets of revoked partitions"
    """`on_revoked` returned offsets. They are committed under the old generation, before the next join. Heartbeats go
    on. Ends with the commit's response or deadline."""

    JOINING = "waiting for the group to join"
    """A JoinGroup is due or in flight. It may wait for the search for a coordinator, for a backoff, or for the other
    members, up to the rebalance timeout. There are no heartbeats and no failure detection, since the coordinator counts
    a joining member as alive. Under COOPERATIVE, kept partitions are still fetched. Ends with a response."""

    PLANNING = "leading: planning the assignment"
    """The member leads. A plan needs the metadata of topics of other members and, for some assignors, the lag. Data
    that is missing at its deadline is left out; an unknown topic counts as a topic without partitions. Then the
    assignor runs on a separate thread. Heartbeats are sent all the time. Ends when the plan is made."""

    SYNCING = "waiting for the assignment"
    """SyncGroup is in flight. Heartbeats are sent. Their REBALANCE_IN_PROGRESS is ignored, since SyncGroup returns it
    too. Commits are held, because the coordinator refuses them between join and sync."""

    ASSIGNING = "calling on_assigned"
    """The assignment has arrived. `on_assigned` waits for, or runs on, the caller's thread. New partitions are owned,
    but not fetched before the hook is done, since it may return start offsets. Heartbeats are sent. Ends when the hook
    is done."""

    STABLE = "in the group"
    """All assigned partitions are owned and fetched. The state is the same for an empty assignment. Heartbeats are
    sent. Ends with a rebalance, with the loss of the membership, or with a leave."""

    STALLED = "left the group: the handler took longer than max_poll_interval_ms"
    """The user's code has not polled for max.poll.interval.ms (KIP-62). A dynamic member has sent LeaveGroup, so that
    others take over. Nothing is sent until the next poll, which calls `on_lost` first."""

    LEAVING = "leaving the group"
    """LeaveGroup is in flight after unsubscribe or close. A response ends it, also an error, and the deadline does. If
    the coordinator moves, LeaveGroup is sent again."""

    FAILED = "stopped by an error"
    """A fatal error (no permission, fenced, inconsistent protocols, ...). Every poll raises it. Nothing is sent. Ends
    with a new subscription or with close."""

    CLOSED = "closed"
    """The final state."""


class CoordinatorState(Enum):
    """States of the search for the group's coordinator."""

    UNKNOWN = "unknown"
    """The coordinator is unknown. FindCoordinator is sent when a request needs it and the backoff is over."""

    LOOKING = "search in progress"
    """FindCoordinator is in flight, to any broker."""

    KNOWN = "known"
    """Node, host and port of the coordinator are known. Ends when the broker responds that it is not the coordinator,
    when its connection closes, or after a session timeout without a heartbeat response."""


class Trigger(Enum):
    """The conclusions of the member. Transitions depend on these, not on raw events."""

    SUBSCRIBED = "there is a subscription"
    LOST = "membership ended while partitions were owned"
    LOST_NOTHING = "membership ended without owned partitions"
    MUST_REVOKE = "partitions must be revoked"
    MUST_JOIN = "nothing to revoke, join"
    LET_GO = "on_revoked returned offsets to commit"
    FREE_TO_JOIN = "all is released, join"
    FREE_TO_TAKE = "moved partitions are released, take the new ones"
    FREE_TO_LEAVE = "all is released, leave"
    FREE_TO_STOP = "all is released, and there is a fatal error"
    MUST_LEAVE = "nothing to revoke, leave"
    JOINED = "joined as a follower, or as a leader that need not assign"
    LEADS = "joined as the leader"
    PLANNED = "the plan is made"
    ASSIGNED = "the sync returned an assignment, and nothing moves away"
    TAKEN = "on_assigned is done"
    AGAIN = "this attempt is void, join again"
    STALLED = "max_poll_interval_ms passed without a poll"
    POLLED_AGAIN = "poll was called again"
    LEFT = "the leave has ended"
    GAVE_UP = "a fatal error without owned partitions"
    CLOSED = "all steps of close are done, or its time is over"


class CoordinatorTrigger(Enum):
    """The events of the search for the coordinator."""

    SENT = "FindCoordinator was sent"
    FOUND = "the response had a coordinator"
    NOT_FOUND = "the response had no coordinator"
    GONE = "the connection ended, or the broker is not the coordinator any more"


_M, _T = MemberState, Trigger

TRANSITIONS: Final[Mapping[MemberState, Mapping[Trigger, MemberState]]] = state_table(
    {
        _M.OUT: {
            _T.SUBSCRIBED: _M.JOINING,
            _T.GAVE_UP: _M.FAILED,
            _T.CLOSED: _M.CLOSED,
        },
        _M.LOSING: {
            _T.FREE_TO_JOIN: _M.JOINING,
            _T.FREE_TO_LEAVE: _M.LEAVING,
            _T.FREE_TO_STOP: _M.FAILED,
            _T.CLOSED: _M.CLOSED,
        },
        _M.REVOKING: {
            _T.LET_GO: _M.COMMITTING,
            _T.FREE_TO_JOIN: _M.JOINING,
            _T.FREE_TO_TAKE: _M.ASSIGNING,
            _T.FREE_TO_LEAVE: _M.LEAVING,
            _T.FREE_TO_STOP: _M.FAILED,
            _T.MUST_REVOKE: _M.REVOKING,
            _T.LOST: _M.LOSING,
            _T.STALLED: _M.STALLED,
            _T.CLOSED: _M.CLOSED,
        },
        _M.COMMITTING: {
            _T.FREE_TO_JOIN: _M.JOINING,
            _T.FREE_TO_TAKE: _M.ASSIGNING,
            _T.FREE_TO_LEAVE: _M.LEAVING,
            _T.FREE_TO_STOP: _M.FAILED,
            _T.MUST_REVOKE: _M.REVOKING,
            _T.LOST: _M.LOSING,
            _T.STALLED: _M.STALLED,
            _T.CLOSED: _M.CLOSED,
        },
        _M.JOINING: {
            _T.JOINED: _M.SYNCING,
            _T.LEADS: _M.PLANNING,
            _T.AGAIN: _M.JOINING,
            _T.MUST_REVOKE: _M.REVOKING,
            _T.MUST_LEAVE: _M.LEAVING,
            _T.LOST: _M.LOSING,
            _T.LOST_NOTHING: _M.JOINING,
            _T.STALLED: _M.STALLED,
            _T.GAVE_UP: _M.FAILED,
        },
        _M.PLANNING: {
            _T.PLANNED: _M.SYNCING,
            _T.MUST_REVOKE: _M.REVOKING,
            _T.MUST_LEAVE: _M.LEAVING,
            _T.LOST: _M.LOSING,
            _T.LOST_NOTHING: _M.JOINING,
            _T.STALLED: _M.STALLED,
            _T.GAVE_UP: _M.FAILED,
        },
        _M.SYNCING: {
            _T.ASSIGNED: _M.ASSIGNING,
            _T.MUST_REVOKE: _M.REVOKING,
            _T.AGAIN: _M.JOINING,
            _T.MUST_LEAVE: _M.LEAVING,
            _T.LOST: _M.LOSING,
            _T.LOST_NOTHING: _M.JOINING,
            _T.STALLED: _M.STALLED,
            _T.GAVE_UP: _M.FAILED,
        },
        _M.ASSIGNING: {
            _T.TAKEN: _M.STABLE,
            _T.MUST_REVOKE: _M.REVOKING,
            _T.MUST_LEAVE: _M.LEAVING,
            _T.LOST: _M.LOSING,
            _T.LOST_NOTHING: _M.JOINING,
            _T.STALLED: _M.STALLED,
            _T.GAVE_UP: _M.FAILED,
            _T.CLOSED: _M.CLOSED,
        },
        _M.STABLE: {
            _T.MUST_REVOKE: _M.REVOKING,
            _T.MUST_JOIN: _M.JOINING,
            _T.MUST_LEAVE: _M.LEAVING,
            _T.LOST: _M.LOSING,
            _T.LOST_NOTHING: _M.JOINING,
            _T.STALLED: _M.STALLED,
            _T.GAVE_UP: _M.FAILED,
        },
        _M.STALLED: {
            _T.LOST: _M.LOSING,
            _T.POLLED_AGAIN: _M.JOINING,
            _T.GAVE_UP: _M.FAILED,
            _T.MUST_LEAVE: _M.LEAVING,
            _T.CLOSED: _M.CLOSED,
        },
        _M.LEAVING: {
            _T.LEFT: _M.OUT,
            _T.SUBSCRIBED: _M.JOINING,
            _T.CLOSED: _M.CLOSED,
        },
        _M.FAILED: {
            _T.SUBSCRIBED: _M.JOINING,
            _T.MUST_LEAVE: _M.LEAVING,
        },
        _M.CLOSED: {},
    }
)
"""state -> trigger -> state. An absent pair is impossible. `docs/states.md` is drawn from this table.

States without `CLOSED` end at once at close, by a revocation or a leave."""

_WITH_A_TARGET: Final = {
    _T.ASSIGNED: _M.ASSIGNING,
    _T.MUST_REVOKE: _M.REVOKING,
    _T.MUST_LEAVE: _M.LEAVING,
    _T.LOST: _M.LOSING,
    _T.LOST_NOTHING: _M.JOINING,
    _T.STALLED: _M.STALLED,
    _T.GAVE_UP: _M.FAILED,
}

CONSUMER_GROUP_TRANSITIONS: Final[Mapping[MemberState, Mapping[Trigger, MemberState]]] = state_table(
    {
        **{state: row for state, row in TRANSITIONS.items() if state not in (_M.PLANNING, _M.SYNCING)},
        _M.JOINING: _WITH_A_TARGET,  # a member that subscribes again during a revocation joins with partitions
        _M.STABLE: _WITH_A_TARGET,
    }
)
"""The table for the consumer group protocol (KIP-848), where the coordinator assigns. There is no planning and no sync.
A member gets its assignment in heartbeat responses, without joining again."""

_C, _U = CoordinatorState, CoordinatorTrigger

COORDINATOR_TRANSITIONS: Final[Mapping[CoordinatorState, Mapping[CoordinatorTrigger, CoordinatorState]]] = state_table(
    {
        _C.UNKNOWN: {_U.SENT: _C.LOOKING},
        _C.LOOKING: {_U.FOUND: _C.KNOWN, _U.NOT_FOUND: _C.UNKNOWN},
        _C.KNOWN: {_U.GONE: _C.UNKNOWN},
    }
)

HEARTBEATING: Final = frozenset({_M.REVOKING, _M.COMMITTING, _M.PLANNING, _M.SYNCING, _M.ASSIGNING, _M.STABLE})
"""States with heartbeats. Not JOINING: the coordinator counts a member with a pending join as alive."""

IN_GROUP: Final = HEARTBEATING | {_M.JOINING}
"""States of a member in the group, or with a pending join."""

REBALANCING: Final = frozenset({_M.REVOKING, _M.COMMITTING, _M.JOINING, _M.PLANNING, _M.SYNCING, _M.ASSIGNING})
"""States between a stable generation and the next."""

COMMITS_HELD: Final = frozenset({_M.PLANNING, _M.SYNCING})
"""States in which a coordinator refuses every commit, so commits are held. While a join is in flight the old generation
is still valid. A commit that loses that race is held, not failed."""


# ---------------------------------------------------------------------------------------------------------- the history

KEPT_REBALANCES: Final = 100
KEPT_STEPS: Final = 100  # of one rebalance: a group that finds no end may try for weeks

T = TypeVar("T")


class RebalancePhase(NamedTuple):
    """Time spent in one state. `ended_at` is None while it lasts; times are the machine's monotonic seconds."""

    state: MemberState
    started_at: float
    ended_at: float | None = None

    def lasted_s(self, now: float) -> float:
        return (now if self.ended_at is None else self.ended_at) - self.started_at


class RebalanceRecord(NamedTuple):
    """One rebalance, from its cause to the state that ended it.

    `generation`, `protocol`, `leader`: of the resulting generation (-1 and None if there is none). `members_joined` and
    `members_left`: known only if this member leads. `revoked`, `added`, `lost`, `kept`: partitions. `attempts`: the
    number of JoinGroups. `commits_refused`: partition -> last error code of a commit. `troubles`: errors on the way,
    including exceptions of hooks, one line each. Of these and of `phases`, the last 100 are kept.
    """

    cause: RebalanceCause
    started_at: float
    ended_at: float | None = None
    outcome: MemberState | None = None
    generation: int = -1
    protocol: str | None = None
    leader: bool = False
    phases: tuple[RebalancePhase, ...] = ()
    members_joined: frozenset[str] = frozenset()
    members_left: frozenset[str] = frozenset()
    revoked: frozenset[TopicPartition] = frozenset()
    kept: frozenset[TopicPartition] = frozenset()
    added: frozenset[TopicPartition] = frozenset()
    lost: frozenset[TopicPartition] = frozenset()
    attempts: int = 0
    commits_refused: tuple[tuple[TopicPartition, int], ...] = ()
    troubles: tuple[str, ...] = ()

    def seconds_in(self, state: MemberState, now: float) -> float:
        """The time spent in `state`, in seconds, all its phases together."""
        return sum(phase.lasted_s(now) for phase in self.phases if phase.state is state)


class Timeline:
    """The history of one member, newest last. The machine writes it, and any thread may read `rebalances`."""

    __slots__ = ("rebalances",)

    def __init__(self) -> None:
        self.rebalances: tuple[RebalanceRecord, ...] = ()

    @property
    def current(self) -> RebalanceRecord | None:
        """The rebalance under way, if one is."""
        return self.rebalances[-1] if self.rebalances and self.rebalances[-1].ended_at is None else None

    def begin(self, cause: RebalanceCause, now: float) -> None:
        """Begin a rebalance. An open one continues instead, because a retry is not a new rebalance."""
        if self.current is None:
            self.rebalances = (*self.rebalances[-(KEPT_REBALANCES - 1) :], RebalanceRecord(cause, now))

    def entered(self, state: MemberState, now: float) -> None:
        """The member entered `state`: the phase before it is over."""
        if (current := self.current) is not None:
            self._put(current._replace(phases=_last(*_closed(current.phases, now), RebalancePhase(state, now))))

    def noted(self, **facts: object) -> None:
        """Facts of the rebalance under way: sets grow, numbers and names are replaced."""
        if (current := self.current) is None:
            return
        merged = {
            name: getattr(current, name) | fact if isinstance(fact, frozenset) else fact for name, fact in facts.items()
        }
        self._put(current._replace(**merged))  # type: ignore[arg-type]

    def add_error(self, text: str) -> None:
        """Record an error with the newest rebalance, even after it ended, because the cause is there."""
        if self.rebalances:
            newest = self.rebalances[-1]
            self._put(newest._replace(troubles=_last(*newest.troubles, text)))

    def attempt(self) -> None:
        """One more JoinGroup was sent."""
        if (current := self.current) is not None:
            self._put(current._replace(attempts=current.attempts + 1))

    def commit_refused(self, partitions: frozenset[TopicPartition], code: int) -> None:
        """A commit was refused; recorded with the newest rebalance."""
        if self.rebalances:
            newest = self.rebalances[-1]
            refusals = {**dict(newest.commits_refused), **dict.fromkeys(partitions, code)}
            self._put(newest._replace(commits_refused=tuple(sorted(refusals.items()))))

    def end(self, outcome: MemberState, now: float) -> None:
        """The member reached a state from which nothing moves by itself."""
        if (current := self.current) is not None:
            self._put(current._replace(ended_at=now, outcome=outcome, phases=_closed(current.phases, now)))

    def _put(self, rebalance: RebalanceRecord) -> None:
        self.rebalances = (*self.rebalances[:-1], rebalance)


def _last(*steps: T) -> tuple[T, ...]:
    return steps[-KEPT_STEPS:]


def _closed(phases: tuple[RebalancePhase, ...], now: float) -> tuple[RebalancePhase, ...]:
    if not phases or phases[-1].ended_at is not None:
        return phases
    return (*phases[:-1], phases[-1]._replace(ended_at=now))


# ------------------------------------------------------------------------------------------------------------ the state

_ENDS: Final = frozenset(
    {MemberState.STABLE, MemberState.OUT, MemberState.STALLED, MemberState.FAILED, MemberState.CLOSED}
)


class StateTracker:
    """The state in a protocol's table, with its clock (`now`, monotonic seconds) and its history (`timeline`).

    `cause`: of the rebalance under way, else of the last one. `transition` raises `IllegalTransition` for a defect.
    """

    __slots__ = ("_notices", "_table", "cause", "now", "since", "state", "timeline")

    def __init__(self, table: Mapping[MemberState, Mapping[Trigger, MemberState]] = TRANSITIONS) -> None:
        self._table = table
        self.now = -inf
        self.state = MemberState.OUT
        self.since = -inf
        self.cause: RebalanceCause | None = None
        self.timeline = Timeline()
        self._notices: list[Notice] = []

    def at(self, now: float) -> None:
        """Set the time to `now`. A clock that went back is ignored."""
        self.now = max(now, self.now)

    def transition(self, trigger: Trigger) -> None:
        """The only place that changes the state."""
        came_from, self.state = self.state, self._table[self.state][trigger]
        if self.state is came_from:
            return  # another attempt: it has been in this state since it came here first
        self.since = self.now
        if self.state not in _ENDS:
            self.timeline.entered(self.state, self.now)
        elif (ended := self.timeline.current) is not None:
            self.timeline.end(self.state, self.now)
            took_s = self.now - ended.started_at
            self.notice("rebalance_ended", f"{ended.cause}: {self.state.value}, after {took_s:.3f} s")

    def begin_rebalance(self, cause: RebalanceCause) -> None:
        """A rebalance begins, or the one under way has one more cause."""
        self.cause = cause
        if self.timeline.current is not None:
            self.timeline.add_error(str(cause))
        self.timeline.begin(cause, self.now)

    def notice(self, kind: str, text: str) -> None:
        self._notices.append(Notice(kind, cut(escaped(text), MOST_NOTICE_CHARACTERS)))

    def drain_notices(self) -> tuple[Notice, ...]:
        """The notices since the last call."""
        notices, self._notices = tuple(self._notices), []
        return notices
