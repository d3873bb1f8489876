"""The states of a group member, and all transitions, as one literal table.

There are two state machines. *Membership* (`MemberState`) is the member's place in the group and the progress of a
rebalance. *The coordinator* (`CoordinatorState`) is the search for the coordinating broker. They are separate because
they fail separately. If a coordinator dies, the member keeps its generation and partitions, and fetching continues. A
group may also expel a member through a healthy coordinator. A client that mixes the two rejoins whenever a broker
restarts.

There are two rules for this file. All transitions are here: `state_tracker.py` may only change state through
`TRANSITIONS`, and an absent pair is a defect of kohort (`IllegalTransition`). The causes of transitions are elsewhere:
`classic_member.py` and its parts interpret responses, timers and hooks, and name their conclusion by a `Trigger`.

COOPERATIVE and EAGER have the same states. They differ in the partitions of `REVOKING`: all before a join, or only the
moving ones after a sync.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kohort.common.errors import KohortError


class MemberState(Enum):
    """The state of this member in its group. Each value is the sentence `health()` shows."""

    OUT = "not in the group"
    """No subscription, or it was cancelled. Entered at the start and after a leave. Nothing is sent or owned, and no
    coordinator is looked for. Ends with a subscription.
    """

    LOSING = "calling on_lost for lost partitions"
    """The group has expelled or fenced the member, or a fatal error ended membership, while it owned partitions.
    Another member may own them already, so none of their records is returned and nothing is committed. `on_lost` waits
    for, or runs on, the caller's thread. There are no heartbeats, because there is no membership. Ends when the hook is
    done: with a new join, or in `FAILED` if the cause was fatal.
    """

    REVOKING = "calling on_revoked for partitions that move"
    """A valid member that must revoke partitions. Before an EAGER join these are all. Before a COOPERATIVE join these
    are those of topics no longer subscribed, and after a COOPERATIVE sync those that move. At unsubscribe and close
    these are all. None of their records is returned from here on. `on_revoked` waits for the caller's next poll.
    Heartbeats continue, because the hook may take long. Ends when the hook is done.
    """

    COMMITTING = "committing offsets of revoked partitions"
    """`on_revoked` returned offsets. They are committed under the generation that owned them, before the join that
    would end it. Heartbeats continue. Ends when the commit is settled or its deadline has passed.
    """

    JOINING = "waiting for the group to gather"
    """A JoinGroup is due or in flight. It may wait for a coordinator, for a backoff, or for the other members, which
    can take the whole rebalance timeout. There are no heartbeats and no failure detection, because the coordinator
    counts a joining member as alive. Under COOPERATIVE, kept partitions are still fetched. Ends with a response.
    """

    PLANNING = "leading: computing the assignment"
    """This member leads. First it collects the inputs of a plan: metadata of topics that other members subscribe to
    and, if the assignor needs it, the lag. Inputs that are missing at their deadline are omitted (a topic that stays
    unknown counts as one without partitions). Then the assignor runs on a thread of its own, because it may take long.
    Heartbeats run all the time. Ends when the plan is made.
    """

    SYNCING = "waiting for the assignment"
    """SyncGroup is in flight. Heartbeats run, and their REBALANCE_IN_PROGRESS is ignored, because the SyncGroup
    response has it too. Commits are held: the coordinator rejects them between join and sync.
    """

    ASSIGNING = "calling on_assigned for the assignment"
    """The assignment has arrived. `on_assigned` waits for, or runs on, the caller's thread. New partitions are owned
    but not fetched before it returns, because it may return start offsets. Heartbeats run. Ends when the hook is done.
    """

    STABLE = "in the group"
    """All assigned partitions are owned and fetched. An empty assignment is stable too: an idle standby is healthy.
    Heartbeats run. Ends with a rebalance, a loss of membership, or a leave.
    """

    STALLED = "left the group: the handler took longer than max_poll_interval_ms"
    """The user's code has not polled for max.poll.interval (KIP-62). The member has left (LeaveGroup for a dynamic
    member), so that others take over. Nothing is sent until the next poll, which first calls `on_lost`.
    """

    LEAVING = "leaving the group"
    """LeaveGroup is in flight after unsubscribe or close. Any response ends it, also an error, and so does the
    deadline."""

    FAILED = "stopped by an error"
    """A fatal error (no permission, fenced, inconsistent protocols, ...). It is raised by every poll. Nothing is sent.
    Left only by a new subscription or by close."""

    CLOSED = "closed"
    """The end: nothing leaves this state."""


class CoordinatorState(Enum):
    """States of the search for the group's coordinator."""

    UNKNOWN = "unknown"
    """No coordinator is known. A FindCoordinator is sent when it is needed and the backoff allows."""

    LOOKING = "being looked for"
    """FindCoordinator is in flight, to any broker."""

    KNOWN = "known"
    """Its node, host and port are known. Ends with NOT_COORDINATOR, with the end of its connection, or if no heartbeat
    gets a response for a whole session timeout.
    """


class Trigger(Enum):
    """The conclusions of the member. Transitions hang on these, not on raw events."""

    SUBSCRIBED = "a subscription came"
    LOST = "membership is gone while partitions are held"
    LOST_NOTHING = "membership is gone and nothing was held"
    MUST_REVOKE = "partitions must be revoked"
    MUST_JOIN = "nothing to revoke, join"
    LET_GO = "on_revoked is done, and a commit is due"
    FREE_TO_JOIN = "all is revoked, join"
    FREE_TO_TAKE = "moved partitions are revoked, take the new ones"
    FREE_TO_LEAVE = "all is revoked, leave"
    FREE_TO_STOP = "all is revoked, and a fatal error is pending"
    MUST_LEAVE = "nothing to revoke, leave"
    JOINED = "joined as a follower, or as a leader that need not assign"
    LEADS = "joined as the leader"
    PLANNED = "the plan is made"
    ASSIGNED = "the sync brought an assignment, and nothing moves away"
    TAKEN = "on_assigned is done"
    AGAIN = "this attempt is void, join again"
    STALLED = "max_poll_interval_ms passed without a poll"
    POLLED_AGAIN = "the caller polls again"
    LEFT = "the leave is settled"
    GAVE_UP = "a fatal error, and nothing is held"
    CLOSED = "closed: nothing left to do, or no time left to do it"


class CoordinatorTrigger(Enum):
    """The changes in what is known of the coordinator."""

    ASKED = "FindCoordinator was sent"
    FOUND = "the response has a coordinator"
    NOT_FOUND = "the response has no coordinator"
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
"""state -> trigger -> state. An absent pair cannot occur. `docs/states.md` is generated from this table.

States that wait for nothing have no `CLOSED`: close leaves them at once, by a revocation or by leaving.
"""

CONSUMER_GROUP_TRANSITIONS: Final[Mapping[MemberState, Mapping[Trigger, MemberState]]] = {
    **{state: TRANSITIONS[state] for state in (_M.OUT, _M.LOSING, _M.STALLED, _M.LEAVING, _M.FAILED, _M.CLOSED)},
    _M.REVOKING: TRANSITIONS[_M.REVOKING],
    _M.COMMITTING: TRANSITIONS[_M.COMMITTING],
    # A member that subscribes again during a revocation comes here with partitions.
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
"""The table of the consumer group protocol (KIP-848). The coordinator assigns, so no member joins, plans or syncs.

A member of the group gets its target assignment, and revokes and takes partitions without joining again.
"""

_C, _U = CoordinatorState, CoordinatorTrigger

COORDINATOR_TRANSITIONS: Final[Mapping[CoordinatorState, Mapping[CoordinatorTrigger, CoordinatorState]]] = {
    _C.UNKNOWN: {_U.ASKED: _C.LOOKING},
    _C.LOOKING: {_U.FOUND: _C.KNOWN, _U.NOT_FOUND: _C.UNKNOWN},
    _C.KNOWN: {_U.GONE: _C.UNKNOWN},
}

HEARTBEATING: Final = frozenset({_M.REVOKING, _M.COMMITTING, _M.PLANNING, _M.SYNCING, _M.ASSIGNING, _M.STABLE})
"""States in which the group expects heartbeats. Not JOINING: a pending join keeps the member alive."""

IN_GROUP: Final = HEARTBEATING | {_M.JOINING}
"""States in which the group counts the member in, or is about to."""

REBALANCING: Final = frozenset({_M.REVOKING, _M.COMMITTING, _M.JOINING, _M.PLANNING, _M.SYNCING, _M.ASSIGNING})
"""States between a stable generation and the next."""

COMMITS_HELD: Final = frozenset({_M.PLANNING, _M.SYNCING})
"""States in which a coordinator refuses every commit, so that sending one would only waste it. While a join is in
flight the old generation is still good, and a commit that loses that race is held, not failed."""


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
