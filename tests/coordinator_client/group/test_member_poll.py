"""Effects of the user's code on its membership: missing polls, hooks that raise, a process that sleeps."""

from math import inf

import pytest

from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.hooks import Assigned, Lost, RebalanceReason, Revoked
from tests.coordinator_client.group.member_rig import Rig, tps
from tests.support.unprintable_error import UnprintableError

T = tps("t-0..1")


@pytest.mark.proves("S-13", "B-34")
def test_a_handler_that_takes_too_long_leaves_and_learns_of_the_loss_at_its_next_poll() -> None:
    """KIP-62."""
    rig = Rig(max_poll_interval_ms=10_000)
    rig.reach_stable(T, generation=5)
    rig.after(10.1)
    assert rig.state == "STALLED"
    assert rig.last("LeaveGroup").members[0].member_id == "m1"
    assert "10000 ms" in rig.last("LeaveGroup").members[0].reason
    assert rig.ready.view.fetchable == frozenset()
    assert rig.ready.hook is None, "no thread is there to run it"
    assert rig.ready.view.identity.generation == -1, "so that nothing can be committed"
    sent = len(rig.sends)
    rig.after(100)
    assert len(rig.sends) == sent, "nothing is sent until the caller is back"
    rig.post(ev.Polled(rig.now))
    event = rig.hook.event
    assert isinstance(event, Lost)
    assert (event.partitions, event.generation, event.cause.reason) == (T, 5, RebalanceReason.POLL_STALLED)
    rig.run_hook()
    assert rig.state == "JOINING"
    assert rig.last("JoinGroup").member_id == ""


@pytest.mark.proves("S-13")
def test_a_stalled_idle_member_just_joins_again() -> None:
    rig = Rig(max_poll_interval_ms=10_000)
    rig.reach_stable(())
    rig.after(11)
    assert rig.state == "STALLED"
    rig.post(ev.Polled(rig.now))
    assert rig.state == "JOINING"
    assert rig.ready.hook is None


@pytest.mark.proves("S-13")
def test_a_short_stall_is_nothing() -> None:
    rig = Rig(max_poll_interval_ms=10_000)
    rig.reach_stable(T)
    for _ in range(5):
        rig.after(7)
        rig.post(ev.Polled(rig.now), ev.PollEnded(rig.now))
    assert rig.state == "STABLE"
    assert rig.kinds.count("poll_stalling") == 0


@pytest.mark.proves("S-13")
def test_a_caller_that_waits_inside_poll_is_never_late() -> None:
    rig = Rig(max_poll_interval_ms=10_000, session_timeout_ms=1_000_000)
    rig.reach_stable(T)
    rig.post(ev.Polled(rig.now))
    rig.after(500)
    assert rig.state == "STABLE"
    rig.post(ev.PollEnded(rig.now))
    rig.after(9)
    assert rig.state == "STABLE"
    rig.after(2)
    assert rig.state == "STALLED"


@pytest.mark.proves("S-13")
def test_the_warning_comes_once_and_before_it_strikes() -> None:
    rig = Rig(max_poll_interval_ms=10_000, poll_warning_ratio=0.5)
    rig.reach_stable(T)
    rig.after(4.9)
    assert "poll_stalling" not in rig.kinds
    rig.after(0.2)
    rig.after(1)
    assert rig.kinds.count("poll_stalling") == 1
    assert rig.state == "STABLE"
    rig.post(ev.Polled(rig.now), ev.PollEnded(rig.now))
    rig.after(6)
    assert rig.kinds.count("poll_stalling") == 2


@pytest.mark.proves("S-13")
@pytest.mark.parametrize("wait_in", ["REVOKING", "ASSIGNING", "JOINING", "SYNCING"])
def test_a_rebalance_does_not_wait_for_ever_for_a_user_that_does_not_poll(wait_in: str) -> None:
    rig = Rig(max_poll_interval_ms=10_000)
    rig.reach_joining()
    if wait_in != "JOINING":
        rig.joined()
    if wait_in in ("ASSIGNING", "REVOKING"):
        rig.synced(assigned=T)
    if wait_in == "REVOKING":
        rig.run_hook()
        rig.heartbeat(27)
    assert rig.state == wait_in
    rig.after(11)
    assert rig.state == "STALLED"
    owned = wait_in == "REVOKING"
    assert rig.owned == (T if owned else frozenset()), "what was never announced was never ours"
    rig.post(ev.Polled(rig.now))
    assert rig.state == ("LOSING" if owned else "JOINING")


@pytest.mark.proves("S-13")
def test_a_hook_that_takes_too_long_is_a_stall_as_well() -> None:
    rig = Rig(max_poll_interval_ms=10_000)
    rig.reach_stable(T)
    rig.heartbeat(27)
    call = rig.start_hook()
    rig.after(11)
    assert rig.state == "STALLED"
    rig.end_hook(call, commit=dict.fromkeys(T, 4))
    assert rig.order is None, "the group has gone on: it is not ours to commit"
    assert "commit_dropped" in rig.kinds
    assert rig.state == "JOINING", "everything had been handed over to on_revoked: nothing is left to lose"


@pytest.mark.proves("S-13")
def test_an_on_assigned_that_takes_too_long_loses_what_it_announced() -> None:
    rig = Rig(max_poll_interval_ms=10_000)
    rig.reach_syncing()
    rig.synced(assigned=T)
    call = rig.start_hook()
    rig.after(11)
    rig.end_hook(call)
    assert rig.state == "LOSING"
    assert rig.hook.event.partitions == T


@pytest.mark.proves("S-13")
def test_a_commit_that_waits_while_the_caller_is_gone_is_a_stall_too() -> None:
    rig = Rig(max_poll_interval_ms=10_000)
    rig.reach_stable(T)
    rig.heartbeat(27)
    rig.run_hook(commit=dict.fromkeys(T, 1))
    rig.after(10.5)
    assert rig.state == "STALLED" or rig.state == "JOINING"
    assert rig.owned == frozenset()


# --------------------------------------------------------------------------------------------------------------- hooks


@pytest.mark.proves("B-43")
@pytest.mark.parametrize("hook", ["on_revoked", "on_assigned", "on_lost"])
def test_a_hook_that_raises_is_over_all_the_same(hook: str) -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(assigned=T)
    boom = ValueError("boom")
    if hook == "on_assigned":
        rig.run_hook(error=boom)
        assert rig.state == "STABLE"
        assert rig.ready.view.fetchable == T
    else:
        rig.run_hook()
        rig.heartbeat(27 if hook == "on_revoked" else 25)
        rig.run_hook(error=boom)
        assert rig.state == "JOINING"
        assert rig.owned == frozenset()
    assert "hook_failed" in rig.kinds
    assert any("ValueError: boom" in line for line in rig.member.timeline.rebalances[-1].troubles)


@pytest.mark.proves("B-43")
def test_an_error_of_a_hook_without_a_text_leaves_the_member_in_its_group() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(assigned=T)
    rig.run_hook(error=UnprintableError())
    assert rig.state == "STABLE"
    assert rig.ready.view.fetchable == T
    assert any("raised UnprintableError" in line for line in rig.member.timeline.rebalances[-1].troubles)


@pytest.mark.proves("G-15")
def test_a_call_that_was_not_taken_is_replaced_when_membership_is_lost_first() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.heartbeat(27)
    revoked = rig.hook
    rig.heartbeat(25)
    assert isinstance(rig.hook.event, Lost)
    assert rig.hook.serial != revoked.serial
    assert rig.hook.event.partitions == T


@pytest.mark.proves("G-15")
def test_a_call_that_runs_is_not_replaced_and_its_response_not_committed() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.heartbeat(27)
    call = rig.start_hook()
    rig.heartbeat(25)
    assert rig.ready.hook == call
    rig.end_hook(call, commit=dict.fromkeys(T, 3))
    assert rig.order is None
    assert rig.state == "JOINING"
    assert rig.last("JoinGroup").member_id == ""


@pytest.mark.proves("G-15")
def test_lost_while_on_assigned_runs_is_reported_after_it() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(assigned=T)
    call = rig.start_hook()
    rig.heartbeat(25)
    assert rig.ready.view.fetchable == frozenset()
    rig.end_hook(call)
    assert isinstance(rig.hook.event, Lost)
    assert rig.hook.event.partitions == T


@pytest.mark.proves("G-15")
def test_lost_before_on_assigned_ran_was_never_there() -> None:
    rig = Rig()
    rig.reach_syncing()
    rig.synced(assigned=T)
    assert isinstance(rig.hook.event, Assigned)
    rig.heartbeat(25)
    assert rig.ready.hook is None
    assert (rig.state, rig.owned) == ("JOINING", frozenset())


@pytest.mark.proves("G-15")
def test_lost_while_the_last_commit_is_under_way() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.heartbeat(27)
    rig.run_hook(commit=dict.fromkeys(T, 3))
    rig.heartbeat(25)
    assert rig.state == "JOINING"
    assert rig.last("JoinGroup").member_id == ""
    rig.settle()
    assert rig.state == "JOINING"


@pytest.mark.proves("G-15")
def test_the_end_of_a_call_that_is_not_due_changes_nothing() -> None:
    rig = Rig()
    rig.reach_stable(T)
    rig.heartbeat(27)
    rig.post(ev.HookDone(99_999, rig.now))
    assert isinstance(rig.hook.event, Revoked)


# --------------------------------------------------------------------------------------------------------------- lease


@pytest.mark.proves("B-33", "B-26")
def test_the_lease_counts_from_what_was_sent_and_acknowledged() -> None:
    rig = Rig(session_timeout_ms=10_000)
    rig.reach_stable(T)
    rig.after(3)
    sent_at = rig.now
    rig.after(2)
    rig.beat()
    assert rig.ready.view.ownership_deadline == pytest.approx(sent_at + 10), "the session began no earlier than that"
    assert rig.ready.view.last_beat_at == sent_at


@pytest.mark.proves("B-33")
def test_a_process_that_slept_through_its_session_finds_its_lease_over() -> None:
    rig = Rig(session_timeout_ms=10_000)
    rig.reach_stable(T)
    rig.heartbeat()
    lease = rig.ready.view.ownership_deadline
    rig.now += 60
    assert rig.now > lease, "a poll checks this first, on the caller's thread, before the machine even ran"
    rig.after(0)
    assert rig.ready.view.ownership_deadline == lease
    rig.found()
    rig.after(0)
    rig.beat(25)
    assert isinstance(rig.hook.event, Lost)


@pytest.mark.proves("B-33")
def test_the_lease_ends_with_the_rebalance_timeout_that_may_have_begun_since() -> None:
    rig = Rig(session_timeout_ms=60_000, max_poll_interval_ms=9_000)
    rig.reach_stable(T)
    rig.after(3)
    settled_at = rig.now
    rig.beat()
    assert rig.ready.view.ownership_deadline == pytest.approx(settled_at + 9)
    rig.after(3)
    rig.beat(27)
    assert rig.ready.view.ownership_deadline == pytest.approx(settled_at + 9), "the group waits for this member"


@pytest.mark.proves("B-33", "G-12")
def test_a_coordinator_that_comes_back_knowing_us_renews_the_lease() -> None:
    rig = Rig(session_timeout_ms=10_000)
    rig.reach_stable(T)
    rig.after(30)
    assert rig.now > rig.ready.view.ownership_deadline
    assert rig.ready.view.fetchable == T, "fetching goes on: only showing waits"
    rig.found(node=2)
    rig.after(3)
    rig.beat()
    assert rig.ready.view.ownership_deadline > rig.now


@pytest.mark.proves("F-15")
def test_a_pause_before_the_join_loses_and_one_after_it_does_not() -> None:
    dropped = Rig(session_timeout_ms=10_000)
    dropped.reach_stable(T)
    dropped.now += 30  # asleep; the group went on without it
    dropped.after(0)
    dropped.found()
    dropped.after(0)
    dropped.beat(25)
    assert dropped.state == "LOSING"

    counted = Rig(session_timeout_ms=10_000, rebalance_timeout_ms=60_000)
    counted.reach_stable(())
    counted.post(ev.RebalanceEnforced())
    counted.now += 30  # asleep, but its join was in
    counted.joined(generation=2)
    counted.synced(assigned=T)
    assert counted.state == "ASSIGNING"


@pytest.mark.proves("B-32")
def test_a_clock_that_steps_back_moves_nothing() -> None:
    rig = Rig()
    rig.reach_stable(T)
    before = rig.ready.view
    rig.now -= 3_600
    rig.after(0)
    assert rig.ready.view == before


@pytest.mark.proves("G-15")
def test_without_membership_there_is_no_lease_to_lose() -> None:
    rig = Rig()
    rig.reach_joining()
    assert rig.ready.view.ownership_deadline == inf


@pytest.mark.proves("S-13")
def test_a_poll_that_goes_on_after_a_callback_is_never_late() -> None:
    rig = Rig(max_poll_interval_ms=10_000, session_timeout_ms=1_000_000)
    rig.reach_syncing()
    rig.synced(assigned=T)
    call = rig.start_hook()
    rig.post(ev.HookDone(call.serial, rig.now, {}, {}, None))
    rig.after(500)
    assert rig.state == "STABLE"
