"""The table itself: complete, reachable, honoured by every walk, and drawn in the docs as it is."""

import pytest

from kohort.coordinator_client.group.states import (
    COMMITS_HELD,
    COORDINATOR_TRANSITIONS,
    HEARTBEATING,
    REBALANCING,
    TRANSITIONS,
    CoordinatorState,
    CoordinatorTrigger,
    MemberState,
    Trigger,
)


def test_every_state_has_a_row() -> None:
    assert set(TRANSITIONS) == set(MemberState)
    assert set(COORDINATOR_TRANSITIONS) == set(CoordinatorState)


def test_every_trigger_is_of_use() -> None:
    assert {trigger for row in TRANSITIONS.values() for trigger in row} == set(Trigger)
    assert {trigger for row in COORDINATOR_TRANSITIONS.values() for trigger in row} == set(CoordinatorTrigger)


def _reachable(start: MemberState) -> set[MemberState]:
    reached: set[MemberState] = set()
    new = {start}
    while new:
        reached |= new
        new = {state for each in new for state in TRANSITIONS[each].values()} - reached
    return reached


@pytest.mark.proves("F-08")
def test_every_state_can_be_reached_and_every_state_can_end() -> None:
    assert _reachable(MemberState.OUT) == set(MemberState)
    assert all(MemberState.CLOSED in _reachable(state) for state in MemberState)
    assert TRANSITIONS[MemberState.CLOSED] == {}


@pytest.mark.proves("F-14")
def test_no_heartbeats_where_a_join_or_nothing_keeps_us_alive() -> None:
    assert MemberState.JOINING not in HEARTBEATING
    assert not HEARTBEATING & {MemberState.OUT, MemberState.LOSING, MemberState.STALLED, MemberState.FAILED}
    assert COMMITS_HELD <= REBALANCING


def test_every_state_has_its_own_sentence_for_health() -> None:
    assert len({state.value for state in MemberState}) == len(MemberState)
