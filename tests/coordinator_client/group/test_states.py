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
    IllegalTransition,
    MemberState,
    Trigger,
    after,
    coordinator_after,
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


@pytest.mark.proves("F-08")
@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("trigger", Trigger)
def test_what_is_not_in_the_table_is_refused(state: MemberState, trigger: Trigger) -> None:
    if trigger in TRANSITIONS[state]:
        assert after(state, trigger) is TRANSITIONS[state][trigger]
    else:
        with pytest.raises(IllegalTransition) as caught:
            after(state, trigger)
        assert caught.value.place == {"state": state.name, "trigger": trigger.name}


@pytest.mark.parametrize("state", CoordinatorState)
@pytest.mark.parametrize("trigger", CoordinatorTrigger)
def test_the_coordinators_table_likewise(state: CoordinatorState, trigger: CoordinatorTrigger) -> None:
    if trigger in COORDINATOR_TRANSITIONS[state]:
        assert coordinator_after(state, trigger) is COORDINATOR_TRANSITIONS[state][trigger]
    else:
        with pytest.raises(IllegalTransition):
            coordinator_after(state, trigger)


@pytest.mark.proves("F-14")
def test_no_heartbeats_where_a_join_or_nothing_keeps_us_alive() -> None:
    assert MemberState.JOINING not in HEARTBEATING
    assert not HEARTBEATING & {MemberState.OUT, MemberState.LOSING, MemberState.STALLED, MemberState.FAILED}
    assert COMMITS_HELD <= REBALANCING


def test_every_state_has_its_own_sentence_for_health() -> None:
    assert len({state.value for state in MemberState}) == len(MemberState)
