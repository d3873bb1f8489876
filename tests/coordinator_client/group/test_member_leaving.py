"""Unsubscribe and close, from every state: let go, commit, leave, and be done in time."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.common.errors import KohortError
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.ready import Ready
from kohort.coordinator_client.hooks import Lost, RebalanceReason, Revoked
from tests.coordinator_client.group.member_rig import Rig, as_leader, said, tps

T = tps("t-0..1")


def walk_to(state: str) -> Rig:
    """A member in `state`, with partitions wherever the state allows it."""
    rig = Rig("range", max_poll_interval_ms=20_000)
    walks: dict[str, Callable[[], object]] = {
        "OUT": lambda: None,
        "JOINING": rig.reach_joining,
        "PLANNING": lambda: (rig.reach_joining(), rig.joined(**as_leader(said("m1", "t"), said("m2", "u")))),
        "SYNCING": rig.reach_syncing,
        "ASSIGNING": lambda: (rig.reach_syncing(), rig.synced(assigned=T)),
        "STABLE": lambda: rig.reach_stable(T),
        "REVOKING": lambda: (rig.reach_stable(T), rig.heartbeat(27)),
        "COMMITTING": lambda: (
            rig.reach_stable(T),
            rig.heartbeat(27),
            rig.run_hook(commit=dict.fromkeys(T, 1)),
        ),
        "LOSING": lambda: (rig.reach_stable(T), rig.heartbeat(25)),
        "STALLED": lambda: (rig.reach_stable(T), rig.after(21)),
        "LEAVING": lambda: (rig.reach_stable(()), rig.post(ev.Unsubscribed())),
        "FAILED": lambda: (rig.reach_joining(), rig.joined(30)),
    }
    walks[state]()
    assert rig.state == state
    return rig


STATES = [
    *("OUT", "JOINING", "PLANNING", "SYNCING", "ASSIGNING", "STABLE"),
    *("REVOKING", "COMMITTING", "LOSING", "STALLED", "LEAVING", "FAILED"),
]


def play_out(rig: Rig, commit: bool = False) -> list[object]:
    """Be a good user and a good coordinator until nothing is left to be done; the hook events on the way."""
    seen: list[object] = []
    for _ in range(20):
        if rig.ready.hook is not None:
            seen.append(rig.hook.event)
            rig.run_hook(commit=dict.fromkeys(rig.hook.event.partitions, 1) if commit else None)
        elif rig.state == "COMMITTING":
            rig.settle()
        elif rig.state == "LEAVING" and not rig.requested("LeaveGroup"):
            rig.joined(79)  # the leave waits for the member id in it
        elif rig.state == "LEAVING":
            rig.left()
        else:
            break
    return seen


@pytest.mark.proves("E-06", "B-36")
@pytest.mark.parametrize("state", STATES)
def test_close_ends_from_every_state(state: str) -> None:
    rig = walk_to(state)
    rig.post(ev.CloseRequested(rig.now + 10))
    play_out(rig)
    assert rig.state == "CLOSED"
    assert rig.owned == frozenset()
    assert rig.ready.wake_at is None
    assert rig.ready.hook is None


@pytest.mark.proves("E-06", "B-36")
@pytest.mark.parametrize("state", STATES)
def test_close_ends_at_its_deadline_without_a_response(state: str) -> None:
    rig = walk_to(state)
    rig.post(ev.CloseRequested(rig.now + 2))
    if rig.state != "CLOSED":
        assert rig.ready.wake_at is not None
        assert rig.ready.wake_at <= rig.now + 2
        rig.after(2)
    assert rig.state == "CLOSED"
    assert rig.ready.wake_at is None
    rig.post(ev.Polled(rig.now))
    rig.subscribe("t")
    assert rig.state == "CLOSED"


@pytest.mark.proves("E-06")
@pytest.mark.parametrize("state", [state for state in STATES if state != "OUT"])
def test_unsubscribe_ends_out_of_the_group_from_every_state_and_a_subscription_begins_again(state: str) -> None:
    rig = walk_to(state)
    rig.post(ev.Unsubscribed())
    play_out(rig)
    assert rig.state == "OUT"
    assert rig.owned == frozenset()
    assert rig.ready.view.identity.generation == -1
    rig.subscribe("t")
    assert rig.state == "JOINING"


@pytest.mark.proves("E-06", "F-09")
@pytest.mark.parametrize("state", ["PLANNING", "SYNCING", "ASSIGNING", "STABLE", "REVOKING", "COMMITTING"])
def test_a_dynamic_member_says_goodbye_with_a_reason(state: str) -> None:
    """KIP-800."""
    rig = walk_to(state)
    rig.post(ev.CloseRequested(rig.now + 10, reason="scaled in"))
    play_out(rig)
    (leave,) = rig.requested("LeaveGroup")
    assert (leave.members[0].member_id, leave.members[0].reason) == ("m1", "scaled in")


@pytest.mark.proves("S-04")
def test_close_revokes_commits_leaves_in_this_order() -> None:
    rig = walk_to("STABLE")
    rig.post(ev.CloseRequested(rig.now + 10))
    assert isinstance(rig.hook.event, Revoked)
    assert rig.hook.event.cause.reason is RebalanceReason.CLOSED
    assert not rig.requested("LeaveGroup")
    rig.run_hook(commit=dict.fromkeys(T, 8))
    assert rig.state == "COMMITTING"
    assert rig.order is not None
    assert rig.order.deadline <= rig.now + 10
    assert not rig.requested("LeaveGroup")
    rig.settle()
    assert rig.requested("LeaveGroup")
    assert rig.state == "LEAVING"


@pytest.mark.proves("B-36")
def test_close_while_lost_says_so_and_does_not_commit() -> None:
    rig = walk_to("LOSING")
    rig.post(ev.CloseRequested(rig.now + 10))
    (event,) = play_out(rig, commit=True)
    assert isinstance(event, Lost)
    assert rig.order is None


@pytest.mark.proves("B-36")
def test_close_after_a_stall_reports_the_loss() -> None:
    rig = walk_to("STALLED")
    rig.post(ev.CloseRequested(rig.now + 10))
    (event,) = play_out(rig)
    assert isinstance(event, Lost)
    assert event.cause.reason is RebalanceReason.POLL_STALLED


@pytest.mark.proves("B-36")
def test_close_before_anybody_heard_of_the_arrival_does_not_revoke_it() -> None:
    rig = walk_to("ASSIGNING")
    rig.post(ev.CloseRequested(rig.now + 10))
    assert play_out(rig) == []


@pytest.mark.proves("B-36")
def test_close_in_the_middle_of_on_assigned_revokes_afterwards() -> None:
    rig = walk_to("ASSIGNING")
    call = rig.start_hook()
    rig.post(ev.CloseRequested(rig.now + 10))
    rig.end_hook(call)
    (event,) = play_out(rig)
    assert isinstance(event, Revoked)
    assert event.partitions == T
    assert rig.state == "CLOSED"


@pytest.mark.proves("B-36")
def test_close_in_the_middle_of_on_revoked_does_not_join_again() -> None:
    rig = walk_to("REVOKING")
    call = rig.start_hook()
    rig.post(ev.CloseRequested(rig.now + 10))
    rig.end_hook(call)
    assert rig.state == "LEAVING"
    assert len(rig.requested("JoinGroup")) == 1


@pytest.mark.proves("E-06")
@pytest.mark.parametrize("state", ["STABLE", "JOINING"])
def test_close_without_a_coordinator_does_not_wait_for_one(state: str) -> None:
    rig = walk_to(state)
    rig.post(ev.Disconnected(None, 1, "down"))
    rig.post(ev.CloseRequested(rig.now + 10))
    play_out(rig)
    assert rig.state == "CLOSED"


@pytest.mark.proves("E-06")
def test_a_leave_whose_connection_breaks_is_sent_to_the_next_coordinator() -> None:
    rig = walk_to("LEAVING")
    rig.cut("LeaveGroup")
    rig.found(node=2, host="two")
    assert (rig.state, rig.waiting("LeaveGroup").to.node_id) == ("LEAVING", 2)
    rig.left()
    assert rig.state == "OUT"


@pytest.mark.proves("E-06")
@pytest.mark.parametrize("found", [False, True])
def test_a_leave_whose_connection_breaks_is_over_soon_without_another_one(found: bool) -> None:
    """All brokers may be down."""
    rig = walk_to("LEAVING")
    rig.cut("LeaveGroup")
    if found:
        rig.found()
        rig.cut("LeaveGroup")
    assert rig.state == "LEAVING"
    rig.after(2)
    assert rig.state == "OUT"


@pytest.mark.proves("E-06")
def test_a_subscription_ends_a_leave_that_looks_for_the_coordinator() -> None:
    rig = walk_to("LEAVING")
    rig.cut("LeaveGroup")
    rig.subscribe("t")
    rig.found()
    assert rig.state == "JOINING"
    assert [send.api for send in rig.sends[-2:]] == ["FindCoordinator", "JoinGroup"]
    rig.post(ev.Unsubscribed())
    rig.joined(79, me="m9")
    assert rig.last("LeaveGroup").members[0].member_id == "m9"


@pytest.mark.proves("E-06")
def test_a_leave_that_is_never_responded_to_is_over_in_time() -> None:
    rig = walk_to("LEAVING")
    rig.after(31)
    assert rig.state == "OUT"


@pytest.mark.proves("E-06")
def test_subscribing_again_while_the_leave_is_under_way_joins_as_a_new_member() -> None:
    rig = walk_to("LEAVING")
    rig.subscribe("t")
    assert rig.state == "JOINING"
    assert rig.last("JoinGroup").member_id == ""
    assert [send.api for send in rig.sends[-2:]] == ["LeaveGroup", "JoinGroup"], "in this order on one connection"
    rig.left()
    assert rig.state == "JOINING"


@pytest.mark.proves("E-06")
def test_unsubscribe_and_subscribe_while_a_hook_runs_stays_in_the_group() -> None:
    rig = walk_to("REVOKING")
    call = rig.start_hook()
    rig.post(ev.Unsubscribed())
    rig.subscribe("u")
    rig.end_hook(call)
    assert rig.state == "JOINING"
    assert rig.reported().topics == ("u",)
    assert not rig.requested("LeaveGroup")


@pytest.mark.proves("E-06")
def test_an_unsubscription_before_the_groups_response_leaves_nothing_behind() -> None:
    rig = walk_to("JOINING")
    stale: Ready = rig.post(ev.Unsubscribed())
    assert stale.view.state.name == "LEAVING"
    rig.joined(generation=3)
    rig.left()
    assert rig.state == "OUT"
    assert rig.ready.view.identity.generation == -1


@pytest.mark.proves("B-36", "E-06")
def test_a_goodbye_does_not_queue_behind_a_join_that_waits_for_the_others() -> None:
    """Seen on a real broker: it reads nothing behind a JoinGroup in flight. A leave sent on the same connection took
    the whole rebalance timeout, and close with it."""
    rig = walk_to("STABLE")
    rig.heartbeat(27)
    rig.run_hook()
    assert rig.state == "JOINING"
    rig.post(ev.CloseRequested(rig.now + 10))
    assert rig.state == "LEAVING"
    assert rig.waiting("LeaveGroup").use_other_connection
    assert not rig.waiting("JoinGroup").use_other_connection


@pytest.mark.proves("B-36", "E-06")
def test_a_goodbye_does_not_queue_behind_a_sync_that_waits_for_the_leader() -> None:
    """Seen on a real broker: a leave took as long as the leader's assignor. The broker never responds to the sync of a
    member that has left, so the next join needs another connection."""
    rig = walk_to("SYNCING")
    rig.post(ev.Unsubscribed())
    assert rig.state == "LEAVING"
    leave = rig.waiting("LeaveGroup")
    assert (leave.use_other_connection, leave.use_new_connection) == (True, False)
    rig.left()
    rig.subscribe("t")
    again = rig.waiting("JoinGroup")
    assert (again.use_other_connection, again.use_new_connection) == (False, True)
    rig.joined(generation=2)
    assert not rig.waiting("SyncGroup").use_new_connection


def test_heartbeats_stay_on_the_connection_of_a_sync() -> None:
    rig = walk_to("SYNCING")
    rig.after(3)
    assert not rig.waiting("Heartbeat").use_other_connection


@pytest.mark.proves("B-36")
@pytest.mark.parametrize("end", ["answered", "cut"])
def test_once_the_sync_is_off_the_wire_a_goodbye_goes_the_usual_way(end: str) -> None:
    rig = walk_to("SYNCING")
    if end == "answered":
        rig.synced(assigned=T)
        rig.run_hook()
    else:
        rig.cut("SyncGroup")
        rig.found()
        rig.again(T, generation=2)
        rig.run_hook()
    rig.post(ev.CloseRequested(rig.now + 10))
    rig.run_hook()
    leave = rig.waiting("LeaveGroup")
    assert (leave.use_other_connection, leave.use_new_connection) == (False, False)


@pytest.mark.proves("B-36")
@pytest.mark.parametrize("end", ["answered", "cut"])
def test_once_the_join_is_off_the_wire_a_goodbye_goes_the_usual_way(end: str) -> None:
    rig = walk_to("JOINING")
    rig.post(ev.Unsubscribed())
    if end == "answered":
        rig.joined(generation=2)
    else:
        rig.cut("JoinGroup")
    rig.reach_stable(())
    rig.post(ev.CloseRequested(rig.now + 10))
    assert not rig.waiting("LeaveGroup").use_other_connection


def test_the_response_to_a_join_that_was_given_up_changes_nothing() -> None:
    rig = Rig("cooperative-sticky")
    rig.reach_stable(T, protocol="cooperative-sticky")
    rig.heartbeat(27)
    assert rig.state == "JOINING"
    rig.post(ev.Unsubscribed())
    sent = len(rig.sends)
    rig.joined(generation=2, protocol="cooperative-sticky")
    assert (rig.state, rig.owned, len(rig.sends)) == ("REVOKING", T, sent)
    assert rig.ready.view.identity.generation == 1
    rig.run_hook()
    assert rig.state == "LEAVING"


def joining_without_an_id(**settings: Any) -> Rig:
    rig = Rig(**settings)
    rig.reach_joining()
    assert rig.last("JoinGroup").member_id == ""
    return rig


@pytest.mark.proves("B-36")
@pytest.mark.parametrize("code", [0, 79])
@pytest.mark.parametrize("end", [lambda at: ev.CloseRequested(at + 10), lambda _at: ev.Unsubscribed()])
def test_a_leave_during_the_first_join_is_sent_with_the_id_of_its_response(
    code: int, end: Callable[[float], ev.Event]
) -> None:
    rig = joining_without_an_id()
    rig.post(end(rig.now))
    assert (rig.state, rig.requested("LeaveGroup")) == ("LEAVING", [])
    rig.joined(code, me="m7")
    assert rig.last("LeaveGroup").members[0].member_id == "m7"
    rig.left()
    assert rig.state in ("CLOSED", "OUT")


@pytest.mark.proves("B-36")
@pytest.mark.parametrize(
    "happens",
    [
        lambda rig: rig.after(2),
        lambda rig: rig.cut("JoinGroup"),
        lambda rig: rig.post(ev.Disconnected(None, 1, "closed")),
        lambda rig: rig.joined(30, me=""),
        lambda rig: rig.post(ev.RequestFailed(rig.waiting("JoinGroup").serial, KohortError("it does not fit"))),
    ],
)
def test_a_leave_during_the_first_join_waits_no_longer_than_for_its_outcome(happens: Callable[[Rig], object]) -> None:
    rig = joining_without_an_id()
    rig.post(ev.CloseRequested(rig.now + 10))
    happens(rig)
    if rig.state == "LEAVING":  # the connection that ended may have been another one
        rig.after(2)
    assert rig.state == "CLOSED"
    assert rig.requested("LeaveGroup") == []


def test_a_static_member_does_not_wait_for_its_first_join_to_leave() -> None:
    rig = joining_without_an_id(instance_id="i")
    rig.post(ev.CloseRequested(rig.now + 10))
    assert rig.state == "CLOSED"


def test_a_subscription_after_a_leave_during_the_first_join_joins_once_more() -> None:
    rig = joining_without_an_id()
    rig.post(ev.Unsubscribed())
    rig.subscribe("t")
    rig.joined(79, me="m8")
    assert rig.state == "JOINING"
    assert rig.last("JoinGroup").member_id == "m8"


@pytest.mark.proves("B-36")
def test_a_close_without_time_leaves_and_calls_no_hook() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.post(ev.CloseRequested(rig.now))
    assert (rig.state, rig.ready.hook) == ("CLOSED", None)
    assert rig.last("LeaveGroup").members[0].member_id == "m1"


@pytest.mark.proves("B-36")
def test_a_close_whose_time_ends_in_a_hook_leaves_once_that_is_over() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.post(ev.CloseRequested(rig.now + 10))
    hook = rig.start_hook()
    rig.after(10)
    assert rig.state == "CLOSED"
    assert rig.requested("LeaveGroup") == []
    rig.after(1)
    rig.end_hook(hook)
    assert rig.last("LeaveGroup").members[0].member_id == "m1"
