"""The states of a group member, and every transition there is, as one literal table.

There are two machines in here. *Membership* (`MemberState`): whether the group counts this member in, and how far a
rebalance has come. *The coordinator* (`CoordinatorState`): whether the coordinating broker is known. They are apart
because they fail apart. If a coordinator dies, the member keeps its generation and partitions, and fetching goes on. A
group may also expel a member through a healthy coordinator. A client that mixes the two rejoins whenever a broker
restarts.

Two rules for this file. All transitions live here: `state_tracker.py` may only change state through `TRANSITIONS`, and
an absent pair is a bug of this library (`IllegalTransition`). This file does not know how a transition is earned.
`classic_member.py` and its parts decide what a response, a timer or a hook means, and name their conclusion by a
`Trigger`. The state it leads to is decided here.

COOPERATIVE and EAGER go through the same states. They differ in the partitions that are handed to `REVOKING`:
everything before a join, or only what moves away after a sync.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kohort.common.errors import KohortError


class MemberState(Enum):
    """The state of this member in its group. Each value is the sentence `health()` shows."""

    OUT = "not in the group"
    """No subscription, or the last one was given up. Entered at the start and after a leave. Nothing is sent, nothing
    is owned; the coordinator is not even looked for. Ends with a subscription."""

    LOSING = "telling the user that the partitions are lost"
    """The group has expelled or fenced us, or a fatal error ended membership, while we held partitions. They may
    already belong to somebody else, so nothing more of them is returned and nothing is committed. `on_lost` waits for,
    or runs on, the caller's thread. No heartbeats: there is no membership to keep alive. Ends when the hook is done:
    with a new join, or in `FAILED` if the cause was fatal."""

    REVOKING = "telling the user which partitions to let go"
    """We are a member of good standing that must let partitions go: all of them before an EAGER join, those of topics
    no longer subscribed before a COOPERATIVE one, those that move away after a COOPERATIVE sync, all of them at
    unsubscribe and close. None of them is returned from here on. `on_revoked` waits for the caller's next poll, and
    heartbeats go on meanwhile, for the hook may take its time. Ends when the hook is done."""

    COMMITTING = "committing what was let go"
    """`on_revoked` answered with offsets. They are committed under the generation that owned them, before the join
    that would end it; heartbeats go on. Ends when the commit is settled or its deadline has passed."""

    JOINING = "waiting for the group to gather"
    """A JoinGroup is wanted or in flight: it may wait for a coordinator to be found, for a backoff, or for the other
    members, which can take the whole rebalance timeout. No heartbeats and no failure detection, since the coordinator
    counts a joining member as alive. Under COOPERATIVE, kept partitions are still fetched. Ends with an answer."""

    PLANNING = "leading: planning who reads what"
    """We lead. First comes what a plan depends on: metadata of topics that other members subscribe to and, where the
    assignor asks for it, how many records wait; what is not here by its deadline is planned without (a topic that stays
    unknown counts as having no partitions). Then the assignor runs, on a thread of its own, since it may take its time:
    heartbeats run all along. Ends when the plan is made."""

    SYNCING = "waiting for the assignment"
    """SyncGroup is in flight; heartbeats run, and their REBALANCE_IN_PROGRESS is ignored, for the answer to the sync
    will say so too. Commits are held: the coordinator refuses them between join and sync."""

    ASSIGNING = "telling the user which partitions arrived"
    """The assignment is here. `on_assigned` waits for, or runs on, the caller's thread; arrived partitions are owned
    but not fetched before its answer, since it may say where to start. Heartbeats run. Ends when the hook is done."""

    STABLE = "in the group"
    """Everything assigned is owned and fetched. An empty assignment is as stable as any: an idle standby is healthy.
    Heartbeats run. Ends when somebody wants a rebalance, or membership is lost, or we leave."""

    STALLED = "left the group: the handler took longer than max_poll_interval_ms"
    """The user's code has not polled for max.poll.interval (KIP-62). We have told the group (LeaveGroup for a dynamic
    member), so that others take over. Nothing is sent until the next poll, whose first act is `on_lost`."""

    LEAVING = "leaving the group"
    """LeaveGroup is in flight after unsubscribe or close. Any answer ends it, errors too, and so does the deadline."""

    FAILED = "stopped by an error"
    """A fatal error (no permission, fenced, inconsistent protocols, ...). It is raised by every poll. Nothing is sent.
    Left only by a new subscription or by close."""

    CLOSED = "closed"
    """The end: nothing leaves this state."""


class CoordinatorState(Enum):
    """State of the search for the broker that coordinates the group."""

    UNKNOWN = "unknown"
    """Nobody to talk to. A FindCoordinator is sent as soon as somebody needs one and the backoff allows."""

    LOOKING = "being looked for"
    """FindCoordinator is in flight, to any broker."""

    KNOWN = "known"
    """Its node, host and port are in hand. It stays so until it says that it is not the coordinator, its connection
    closes, or no heartbeat is answered for a whole session timeout."""


class Trigger(Enum):
    """The conclusions of the member. Transitions hang on these, not on raw events."""

    SUBSCRIBED = "a subscription came"
    LOST = "membership is gone while partitions are held"
    LOST_NOTHING = "membership is gone and nothing was held"
    MUST_REVOKE = "partitions are to be let go"
    MUST_JOIN = "nothing to let go, join"
    LET_GO = "on_revoked is done and wants a commit"
    FREE_TO_JOIN = "all is let go, join"
    FREE_TO_TAKE = "what moved is let go, take what arrived"
    FREE_TO_LEAVE = "all is let go, leave"
    FREE_TO_STOP = "all is let go, and a fatal error waits"
    MUST_LEAVE = "nothing to let go, leave"
    JOINED = "the join made us a follower, or a leader that need not assign"
    LEADS = "the join made us the leader"
    PLANNED = "the plan is made"
    ASSIGNED = "the sync brought an assignment, and nothing moves away"
    TAKEN = "on_assigned is done"
    AGAIN = "this attempt is void, join again"
    STALLED = "max_poll_interval_ms passed without a poll"
    POLLED_AGAIN = "the caller is back"
    LEFT = "the leave is settled"
    GAVE_UP = "a fatal error, and nothing is held"
    CLOSED = "closed: nothing left to do, or no time left to do it"


class CoordinatorTrigger(Enum):
    """The changes in what is known of the coordinator."""

    ASKED = "FindCoordinator was sent"
    FOUND = "the answer named one"
    NOT_FOUND = "the answer named none"
    GONE = "it is dead, or not the coordinator any more"


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
"""state -> trigger -> state. What is absent cannot happen; `docs/states.md` is drawn from this.

`CLOSED` is missing where nothing waits for anybody: close leaves those states at once, by letting go or by leaving."""

CONSUMER_GROUP_TRANSITIONS: Final[Mapping[MemberState, Mapping[Trigger, MemberState]]] = {
    **{state: TRANSITIONS[state] for state in (_M.OUT, _M.LOSING, _M.STALLED, _M.LEAVING, _M.FAILED, _M.CLOSED)},
    _M.REVOKING: TRANSITIONS[_M.REVOKING],
    _M.COMMITTING: TRANSITIONS[_M.COMMITTING],
    # Who subscribes again while it lets go comes here as a member that still holds something.
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
"""The same for the consumer group protocol (KIP-848), where the coordinator assigns: nobody gathers, plans or syncs,
and whoever is in the group is told what to let go and what to take, without joining again."""

_C, _U = CoordinatorState, CoordinatorTrigger

COORDINATOR_TRANSITIONS: Final[Mapping[CoordinatorState, Mapping[CoordinatorTrigger, CoordinatorState]]] = {
    _C.UNKNOWN: {_U.ASKED: _C.LOOKING},
    _C.LOOKING: {_U.FOUND: _C.KNOWN, _U.NOT_FOUND: _C.UNKNOWN},
    _C.KNOWN: {_U.GONE: _C.UNKNOWN},
}

HEARTBEATING: Final = frozenset({_M.REVOKING, _M.COMMITTING, _M.PLANNING, _M.SYNCING, _M.ASSIGNING, _M.STABLE})
"""States in which the group expects to hear from us. Not JOINING: a member whose join is pending is alive by it."""

IN_GROUP: Final = HEARTBEATING | {_M.JOINING}
"""States in which the group counts us in, or is about to."""

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
            "no such transition",
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
            "no such transition",
            hint="this is a bug in kohort: please report it",
            state=state.name,
            trigger=trigger.name,
        ) from None
