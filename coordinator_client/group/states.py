"""The states of a group member and all transitions, as one literal table.

There are two machines. *Membership* (`MemberState`) is the state of the member in the group and the progress of a
rebalance. *The coordinator* (`CoordinatorState`) is the search for the coordinating broker. They are separate because
they fail separately. If a coordinator dies, the member keeps its generation and partitions, and fetching goes on. A
group may also expel a member through a healthy coordinator. A client that mixes the two rejoins whenever a broker
restarts.

There are two rules for this file. All transitions are here: `state_tracker.py` changes the state only through
`TRANSITIONS`, and an absent pair is a bug of this library (`IllegalTransition`). The causes of transitions are
elsewhere: `classic_member.py` and its parts interpret a response, a timer or a hook, and choose a `Trigger`.

COOPERATIVE and EAGER have the same states. They differ in the partitions of `REVOKING`: all of them before a join, or
only those that move away after a sync.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kohort.common.errors import KohortError


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
    """LeaveGroup is in flight after unsubscribe or close. Any response ends it, also an error, and the deadline
    does."""

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

TRANSITIONS: Final[Mapping[MemberState, Mapping[Trigger, MemberState]]] = {
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
"""state -> trigger -> state. An absent pair is impossible. `docs/states.md` is drawn from this table.

States without `CLOSED` end at once at close, by a revocation or a leave."""

CONSUMER_GROUP_TRANSITIONS: Final[Mapping[MemberState, Mapping[Trigger, MemberState]]] = {
    **{state: TRANSITIONS[state] for state in (_M.OUT, _M.LOSING, _M.STALLED, _M.LEAVING, _M.FAILED, _M.CLOSED)},
    _M.REVOKING: TRANSITIONS[_M.REVOKING],
    _M.COMMITTING: TRANSITIONS[_M.COMMITTING],
    # A member that subscribes again during a revocation joins with partitions.
    _M.JOINING: {
        _T.ASSIGNED: _M.ASSIGNING,
        _T.MUST_REVOKE: _M.REVOKING,
        _T.LOST: _M.LOSING,
        _T.MUST_LEAVE: _M.LEAVING,
        _T.LOST_NOTHING: _M.JOINING,
        _T.STALLED: _M.STALLED,
        _T.GAVE_UP: _M.FAILED,
    },
    _M.ASSIGNING: TRANSITIONS[_M.ASSIGNING],
    _M.STABLE: {
        _T.ASSIGNED: _M.ASSIGNING,
        _T.MUST_REVOKE: _M.REVOKING,
        _T.MUST_LEAVE: _M.LEAVING,
        _T.LOST: _M.LOSING,
        _T.LOST_NOTHING: _M.JOINING,
        _T.STALLED: _M.STALLED,
        _T.GAVE_UP: _M.FAILED,
    },
}
"""The table for the consumer group protocol (KIP-848), where the coordinator assigns. There is no planning and no sync.
A member gets its assignment in heartbeat responses, without joining again."""

_C, _U = CoordinatorState, CoordinatorTrigger

COORDINATOR_TRANSITIONS: Final[Mapping[CoordinatorState, Mapping[CoordinatorTrigger, CoordinatorState]]] = {
    _C.UNKNOWN: {_U.SENT: _C.LOOKING},
    _C.LOOKING: {_U.FOUND: _C.KNOWN, _U.NOT_FOUND: _C.UNKNOWN},
    _C.KNOWN: {_U.GONE: _C.UNKNOWN},
}

HEARTBEATING: Final = frozenset({_M.REVOKING, _M.COMMITTING, _M.PLANNING, _M.SYNCING, _M.ASSIGNING, _M.STABLE})
"""States with heartbeats. Not JOINING: the coordinator counts a member with a pending join as alive."""

IN_GROUP: Final = HEARTBEATING | {_M.JOINING}
"""States of a member in the group, or with a pending join."""

REBALANCING: Final = frozenset({_M.REVOKING, _M.COMMITTING, _M.JOINING, _M.PLANNING, _M.SYNCING, _M.ASSIGNING})
"""States between a stable generation and the next."""

COMMITS_HELD: Final = frozenset({_M.PLANNING, _M.SYNCING})
"""States in which a coordinator refuses every commit, so commits are held. While a join is in flight the old generation
is still valid. A commit that loses that race is held, not failed."""


class IllegalTransition(KohortError):
    """A transition that the table does not have: a defect of this library, never of the user."""


def after(
    state: MemberState,
    trigger: Trigger,
    table: Mapping[MemberState, Mapping[Trigger, MemberState]] = TRANSITIONS,
) -> MemberState:
    """The state that `trigger` leads to. Raises `IllegalTransition` if the table has none."""
    try:
        return table[state][trigger]
    except KeyError:
        raise IllegalTransition(
            "the table has no such transition",
            hint="this is a bug in kohort: please report it",
            state=state.name,
            trigger=trigger.name,
        ) from None


def coordinator_after(state: CoordinatorState, trigger: CoordinatorTrigger) -> CoordinatorState:
    """As `after`, for the coordinator's machine."""
    try:
        return COORDINATOR_TRANSITIONS[state][trigger]
    except KeyError:
        raise IllegalTransition(
            "the table has no such transition",
            hint="this is a bug in kohort: please report it",
            state=state.name,
            trigger=trigger.name,
        ) from None
