"""The tables: every pair is legal by being there, and illegal by not."""

import pytest

from kohort.consistent_region.states import (
    ENDED,
    PHASES,
    TRANSITIONS,
    IllegalTransition,
    Phase,
    RegionState,
    Step,
    Trigger,
    after,
    phase_after,
)


def test_every_state_has_a_row_and_is_reached() -> None:
    assert set(TRANSITIONS) == set(RegionState)
    assert set(PHASES) == set(Phase)
    assert {to for row in TRANSITIONS.values() for to in row.values()} == set(RegionState) - {RegionState.INITIALIZED}
    assert {to for row in PHASES.values() for to in row.values()} == set(Phase)


@pytest.mark.parametrize("state", RegionState)
@pytest.mark.parametrize("trigger", Trigger)
def test_what_the_table_lacks_is_refused_with_both_names(state: RegionState, trigger: Trigger) -> None:
    if trigger in TRANSITIONS[state]:
        assert after(state, trigger) is TRANSITIONS[state][trigger]
        return
    with pytest.raises(IllegalTransition, match=f"{state.name}.*{trigger.name}"):
        after(state, trigger)


def test_a_phase_ends_only_by_an_end_or_a_reset() -> None:
    assert {step for row in PHASES.values() for step, to in row.items() if to is Phase.OPEN} == {Step.ENDED, Step.RESET}
    with pytest.raises(IllegalTransition):
        phase_after(Phase.OPEN, Step.CONTRIBUTED)


def test_every_living_state_can_be_stopped_and_can_fail() -> None:
    for state in set(RegionState) - ENDED:
        assert TRANSITIONS[state][Trigger.CLOSED] is RegionState.CLOSED
        assert TRANSITIONS[state][Trigger.GAVE_UP] is RegionState.FAILED
