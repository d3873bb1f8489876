"""The tables: every pair is legal by being there, and illegal by not."""

from kohort.consistent_region.states import (
    ENDED,
    PHASES,
    TRANSITIONS,
    RegionPhase,
    RegionState,
    RegionTrigger,
    Step,
)


def test_every_state_has_a_row_and_is_reached() -> None:
    assert set(TRANSITIONS) == set(RegionState)
    assert set(PHASES) == set(RegionPhase)
    assert {to for row in TRANSITIONS.values() for to in row.values()} == set(RegionState) - {RegionState.INITIALIZED}
    assert {to for row in PHASES.values() for to in row.values()} == set(RegionPhase)


def test_a_phase_ends_only_by_an_end_or_a_reset() -> None:
    assert {step for row in PHASES.values() for step, to in row.items() if to is RegionPhase.OPEN} == {
        Step.ENDED,
        Step.RESET,
    }


def test_every_living_state_can_be_stopped_and_can_fail() -> None:
    for state in set(RegionState) - ENDED:
        assert TRANSITIONS[state][RegionTrigger.CLOSED] is RegionState.CLOSED
        assert TRANSITIONS[state][RegionTrigger.GAVE_UP] is RegionState.FAILED
