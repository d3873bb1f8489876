"""A coordinator that dies, hides or stays silent, and what a member keeps meanwhile (F-05 to F-07)."""

import pytest

from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.states import CoordinatorState
from kohort.coordinator_client.hooks import Lost
from tests.coordinator_client.group.member_rig import Rig, tps

T = tps("t-0..2")


@pytest.mark.proves("F-05", "F-07", "G-12")
def test_a_closed_connection_is_a_dead_coordinator_and_nothing_else() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.post(ev.Disconnected(None, 1, "closed by peer"))
    assert len(rig.requested("FindCoordinator")) == 2, "the first search starts at once"
    assert rig.state == "STABLE"
    assert rig.ready.view.fetchable == T


@pytest.mark.proves("F-05")
def test_another_nodes_connection_changes_nothing() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.post(ev.Disconnected(None, 7, "closed by peer"))
    assert rig.member._coordinator.state is CoordinatorState.KNOWN


@pytest.mark.proves("F-05")
def test_another_connections_end_means_nothing_while_a_join_waits() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.heartbeat(27)
    rig.run_hook()
    assert rig.state == "JOINING"
    joins = len(rig.requested("JoinGroup"))
    rig.post(ev.Disconnected(None, 1, "another connection"))
    assert rig.state == "JOINING"
    assert rig.member._coordinator.state is CoordinatorState.KNOWN
    assert len(rig.requested("JoinGroup")) == joins


@pytest.mark.proves("F-05", "B-24", "B-25")
def test_no_response_for_a_session_is_a_dead_coordinator() -> None:
    rig = Rig(session_timeout_ms=10_000, request_timeout_ms=30_000)
    rig.reach_stable(T)
    rig.after(3)
    assert rig.waiting("Heartbeat").timeout_ms <= 10_000
    rig.after(6.9)
    assert len(rig.requested("FindCoordinator")) == 1
    rig.after(0.2)
    assert len(rig.requested("FindCoordinator")) == 2
    assert rig.state == "STABLE"


@pytest.mark.proves("F-05", "B-27")
def test_a_coordinator_that_is_named_again_and_again_but_dead_is_not_hammered() -> None:
    rig = Rig(retry_backoff_ms=100, retry_backoff_ms_max=1_000)
    rig.reach_stable(T)
    started = rig.now
    while rig.now < started + 60:
        if rig.ready.view.coordinator is not None:
            rig.post(ev.Disconnected(None, 1, "connection refused"))
        elif rig.sends[-1].api == "FindCoordinator":
            rig.found()
        wake = rig.ready.wake_at
        assert wake is not None
        rig.after(max(wake - rig.now, 0.001))
    assert len(rig.requested("FindCoordinator")) < 90
    assert rig.state == "STABLE"


@pytest.mark.proves("F-06", "F-07")
def test_a_coordinator_found_too_late_makes_a_new_member_of_us() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.post(ev.Disconnected(None, 1, "down"))
    rig.after(25)
    rig.found(node=2)
    rig.after(3)
    rig.beat(25)
    call = rig.run_hook()
    assert isinstance(call.event, Lost)
    assert rig.last("JoinGroup").member_id == ""


@pytest.mark.proves("F-05", "B-24")
@pytest.mark.parametrize("api", ["FindCoordinator", "JoinGroup", "SyncGroup", "LeaveGroup"])
def test_an_outcome_that_never_comes_is_not_waited_for_for_ever(api: str) -> None:
    """This holds even if the driver forgets a request altogether."""
    rig = Rig(rebalance_timeout_ms=60_000, max_poll_interval_ms=3_600_000, session_timeout_ms=3_600_000)
    rig.subscribe("t")
    if api in ("JoinGroup", "SyncGroup"):
        rig.found()
    if api == "SyncGroup":
        rig.joined()
    if api == "LeaveGroup":
        rig.found()
        rig.joined()
        rig.synced()
        rig.run_hook()
        rig.post(ev.Unsubscribed())
    before, waiting = len(rig.sends), rig.waiting(api)
    rig.after(waiting.timeout_ms / 1000 + 3)
    assert rig.state == ("OUT" if api == "LeaveGroup" else "JOINING")
    if api != "LeaveGroup":
        rig.after(1)
        assert "FindCoordinator" in [send.api for send in rig.sends[before:]], "it looks for the coordinator again"


@pytest.mark.proves("B-22")
def test_a_coordinator_killed_between_join_and_sync_costs_one_more_join() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.cut("SyncGroup")
    assert rig.state == "JOINING"
    rig.after(1)
    rig.found(node=2)
    rig.after(1)
    rig.again(T, generation=2)
    call = rig.run_hook()
    assert call.event.partitions == T
    assert rig.state == "STABLE"
