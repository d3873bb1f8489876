"""The states of a region member, and all transitions, as one literal table.

There are two state machines. *Consistency* (`RegionState`) is the relation of state and positions: it decides if
effects must be undone when partitions move. *The checkpoint* (`RegionPhase`) is the progress of the drain for a
barrier. A reset ends any phase. A phase never changes the state.

As in the group client, all transitions are here. An absent pair is a defect of kohort (`IllegalTransition`).
`region_member.py` decides on triggers.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kohort.common.state_table import state_table


class RegionState(Enum):
    """The state of this member in its region. Each value is the sentence `kohort region status` shows."""

    INITIALIZED = "not registered yet"
    """Created. The member is not registered at the coordinator."""

    EVENT_THREAD_STARTED = "registered, not subscribed yet"
    """Registered with an incarnation. The member is not in the group yet."""

    SUBSCRIBED = "subscribed, no record read yet"
    """First life, no record read. A rebalance has nothing to undo, so it causes no reset."""

    RECORDS_FETCHED = "records have been read since the last checkpoint gone back to"
    """The state may have effects of records. If partitions move now, those effects must be undone."""

    CR_RESET_PENDING = "waiting to go back to the last checkpoint"
    """The state is invalid. Polling continues, so that rebalances can finish, but polled records are dropped. No record
    is submitted. It ends when state and positions are those of one checkpoint again.
    """

    RESET_COMPLETE = "went back, no record read since"
    """State and positions are those of a checkpoint, or the initial ones. A rebalance causes no reset, as in
    SUBSCRIBED."""

    FAILED = "stopped by an error"
    """Raised from `run`. Nothing leads out."""

    CLOSED = "closed"
    """The end."""


class RegionTrigger(Enum):
    """The conclusions of `region_member.py`."""

    REGISTERED = "registered at the coordinator"
    FIRST_LIFE = "subscribed, and the region has no past"
    RELAUNCHED = "subscribed, and the region has a past to restore first"
    FETCHED = "a poll brought records"
    MUST_RESET = "the state or the positions are void"
    WENT_BACK = "state and positions are those of a checkpoint"
    GAVE_UP = "an error that no reset cures"
    CLOSED = "stop"


class RegionPhase(Enum):
    """The progress of the checkpoint under way, here."""

    OPEN = "no checkpoint under way"
    """Records are polled and submitted."""

    DRAINING = "a barrier names this member, and a record is still being handled"
    """Polling is stopped and no permit is given."""

    DRAINED = "no record is being handled, and the states are being cut"
    """States, offsets and effects are those of one moment between two records."""

    WRITING = "the snapshots of the cut are being written"
    """Records are submitted again. Their effects belong to the next checkpoint."""

    AWAITING = "contributed, and other members have not yet"
    """Records are submitted. The barrier ends in a manifest or without one."""


class Step(Enum):
    """The events of the checkpoint under way."""

    BARRIER = "a barrier names this member"
    EMPTIED = "the record under way is done"
    CUT = "the states are cut"
    CONTRIBUTED = "the coordinator has this member's contribution"
    ENDED = "the barrier is over, in a manifest or without"
    RESET = "a reset made it void"


_R, _T, _P, _S = RegionState, RegionTrigger, RegionPhase, Step

_ENDS: Final = {_T.GAVE_UP: _R.FAILED, _T.CLOSED: _R.CLOSED}

TRANSITIONS: Final[Mapping[RegionState, Mapping[RegionTrigger, RegionState]]] = state_table(
    {
        _R.INITIALIZED: {_T.REGISTERED: _R.EVENT_THREAD_STARTED, **_ENDS},
        _R.EVENT_THREAD_STARTED: {_T.FIRST_LIFE: _R.SUBSCRIBED, _T.RELAUNCHED: _R.CR_RESET_PENDING, **_ENDS},
        _R.SUBSCRIBED: {_T.FETCHED: _R.RECORDS_FETCHED, _T.MUST_RESET: _R.CR_RESET_PENDING, **_ENDS},
        _R.RECORDS_FETCHED: {_T.MUST_RESET: _R.CR_RESET_PENDING, **_ENDS},
        _R.CR_RESET_PENDING: {_T.WENT_BACK: _R.RESET_COMPLETE, **_ENDS},
        _R.RESET_COMPLETE: {_T.FETCHED: _R.RECORDS_FETCHED, _T.MUST_RESET: _R.CR_RESET_PENDING, **_ENDS},
        _R.FAILED: {_T.CLOSED: _R.CLOSED},
        _R.CLOSED: {},
    }
)
"""state -> trigger -> state. What is absent cannot happen."""

PHASES: Final[Mapping[RegionPhase, Mapping[Step, RegionPhase]]] = state_table(
    {
        _P.OPEN: {_S.BARRIER: _P.DRAINING},
        _P.DRAINING: {_S.EMPTIED: _P.DRAINED, _S.ENDED: _P.OPEN, _S.RESET: _P.OPEN},
        _P.DRAINED: {_S.CUT: _P.WRITING, _S.ENDED: _P.OPEN, _S.RESET: _P.OPEN},
        _P.WRITING: {_S.CONTRIBUTED: _P.AWAITING, _S.ENDED: _P.OPEN, _S.RESET: _P.OPEN},
        _P.AWAITING: {_S.ENDED: _P.OPEN, _S.RESET: _P.OPEN},
    }
)
"""phase -> step -> phase."""

CLEAN: Final = frozenset({_R.SUBSCRIBED, _R.RESET_COMPLETE})
"""States in which partitions may come and go without a reset."""

READING: Final = CLEAN | {_R.RECORDS_FETCHED}
"""States in which what a poll brings is kept, records are submitted, and a checkpoint can be contributed to."""

SUBMITTING: Final = frozenset({_P.OPEN, _P.WRITING, _P.AWAITING})
"""Phases in which records are submitted, unless the member requested the checkpoint."""

ENDED: Final = frozenset({_R.FAILED, _R.CLOSED})
