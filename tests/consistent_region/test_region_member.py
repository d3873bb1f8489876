"""The region member's machine, line by line of the behaviours."""

import pytest

from kohort import KohortError
from kohort.consistent_region import events as ev
from kohort.consistent_region.errors import CoordinatorUnavailable, RegionError, RegionStopped
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.ready import (
    BeginCheckpoint,
    CheckGroup,
    Contribute,
    GoBack,
    Polling,
    RequestReset,
    TakeCut,
)
from kohort.consistent_region.region_member import REQUEST_ATTEMPTS
from kohort.consistent_region.settings import RegionSettings
from kohort.consistent_region.states import RegionPhase, RegionState
from kohort.consistent_region.triggers import Manual, OperatorDriven, Periodic
from tests.consistent_region.region_rig import P0, P1, P2, Rig, columns, polled, recs

S = RegionState
SMALL = RegionSettings(max_poll_records=1)  # a queue of 10


# --- start and assignment


@pytest.mark.proves("CR-06")
def test_subscribing_in_a_first_life_seeks_nothing() -> None:
    rig = Rig().subscribed()
    assert rig.member.state is S.SUBSCRIBED
    assert rig.offsets() == {}
    assert not isinstance(rig.ready().request, GoBack)


@pytest.mark.proves("CR-09", "CR-69")
def test_a_relaunched_member_takes_nothing_up_before_it_went_back() -> None:
    rig = Rig().subscribed(relaunched=True)
    assert rig.member.state is S.CR_RESET_PENDING
    rig.assigned({P0: 7})
    rig.step(polled(*recs(P0, 7, 8)))
    assert rig.handle() == []
    assert rig.ready().request == GoBack()
    rig.member = Rig().subscribed(relaunched=True).member
    assert rig.went_back({}).state is S.RESET_COMPLETE
    rig.step(ev.PartitionsRevoked(4))
    assert rig.member.state is S.RESET_COMPLETE
    rig.assigned({P0: 7})
    assert rig.offsets() == {P0: 7}
    rig.step(polled(*recs(P0, 7)))
    assert rig.handle() == recs(P0, 7)


@pytest.mark.proves("CR-11", "CR-49", "CR-20", "CR-19", "CR-50")
def test_an_assignment_places_every_partition_and_is_counted() -> None:
    rig = Rig().subscribed()
    rig.assigned({P0: 3, P1: 0})
    assert rig.member.state is S.SUBSCRIBED
    assert rig.offsets() == {P0: 3, P1: 0}
    assert (rig.member.metrics["partitions_assigned"], rig.member.metrics["consumed_topics"]) == (2, 1)
    rig.assigned({}, generation=6)
    assert rig.member.metrics["partitions_assigned"] == 0
    assert rig.member.metrics["partition_rebalances_total"] == 2
    ready = rig.barrier(generation=6)
    assert isinstance(ready.request, TakeCut)
    assert dict(ready.request.offsets) == {}


@pytest.mark.proves("CR-21")
def test_only_a_poll_with_records_leaves_the_clean_states() -> None:
    rig = Rig().subscribed()
    rig.assigned({P0: 0})
    assert rig.step(ev.RecordsPolled(())).state is S.SUBSCRIBED
    assert rig.step(polled(*recs(P0, 0))).state is S.RECORDS_FETCHED


# --- revocation and loss


@pytest.mark.proves("CR-10", "CR-25", "CR-24")
@pytest.mark.parametrize("after_reset", [False, True])
def test_a_revocation_with_nothing_read_needs_no_reset(after_reset: bool) -> None:
    rig = Rig().subscribed(relaunched=after_reset)
    rig.assigned({P0: 0})
    if after_reset:
        rig.went_back({P0: 0})
    before = rig.member.state
    ready = rig.step(ev.PartitionsRevoked(5))
    assert ready.state is before
    assert not isinstance(ready.request, RequestReset)
    rig.step(polled(*recs(P0, 0)))
    assert rig.member.queued == 0


@pytest.mark.proves("CR-22", "CR-56", "I11")
def test_a_revocation_after_records_requests_one_reset_and_drops_what_is_queued() -> None:
    rig = Rig().reading()
    ready = rig.step(ev.PartitionsRevoked(5))
    assert ready.state is S.CR_RESET_PENDING
    assert ready.request == RequestReset(0, "partitions moved", True, 5)
    assert ready.polling is Polling.THROTTLED  # rebalances must be able to finish
    rig.step(polled(*recs(P0, 3)))
    assert rig.member.queued == 0
    assert rig.handle() == []


@pytest.mark.proves("CR-23")
def test_a_member_that_learns_that_the_reset_is_granted_already_requests_none() -> None:
    rig = Rig().reading()
    rig.sees(epoch=1)
    assert rig.step(ev.PartitionsRevoked(5)).request == GoBack()


@pytest.mark.proves("CR-26", "CR-31")
def test_while_a_reset_is_pending_partitions_come_and_go_without_seeks() -> None:
    rig = Rig().reading()
    rig.step(ev.PartitionsRevoked(5))
    rig.step(ev.ResetGranted(rig.view))
    assert rig.step(ev.PartitionsRevoked(5)).request == GoBack()
    rig.assigned({P0: 0, P1: 0}, generation=6)
    assert rig.member.state is S.CR_RESET_PENDING
    assert rig.member.queued == 0
    assert rig.member.offsets.partitions == {P0, P1}


@pytest.mark.proves("CR-32", "CR-33", "CR-70")
def test_a_pending_reset_takes_the_new_assignment_and_seeks_at_its_end() -> None:
    rig = Rig().reading(*recs(P0, 0, 1))
    rig.handle(2)
    rig.step(ev.PartitionsRevoked(5))
    rig.assigned({P0: 0, P2: 0}, generation=6)
    assert rig.member.offsets.unplaced == {P0, P2}  # nothing was sought
    ready = rig.went_back({P0: 0, P2: 9}, epoch=1)
    assert ready.state is S.RESET_COMPLETE
    assert rig.offsets() == {P0: 0, P2: 9}
    rig.step(polled(*recs(P0, 0, 1)))
    assert rig.handle(9) == recs(P0, 0, 1)


@pytest.mark.proves("CR-27", "B-33")
@pytest.mark.parametrize("read", [False, True])
def test_a_loss_requests_a_reset_in_every_state_and_commits_nothing(read: bool) -> None:
    rig = Rig().subscribed()
    rig.assigned({P0: 0})
    if read:
        rig.step(polled(*recs(P0, 0)))
    ready = rig.step(ev.PartitionsLost(5))
    assert isinstance(ready.request, RequestReset)
    assert ready.request.forced
    assert ready.commit is None
    assert rig.member.offsets.partitions == frozenset()


@pytest.mark.proves("CR-34")
def test_revoked_and_assigned_in_different_polls_seeks_at_the_assignment() -> None:
    rig = Rig().subscribed(relaunched=True)
    rig.went_back({}, newest=3)
    rig.step(ev.PartitionsRevoked(5))
    rig.step(ev.RecordsPolled(()))
    rig.assigned({P1: 40}, generation=6)
    assert rig.offsets() == {P1: 40}
    assert rig.member.state is S.RESET_COMPLETE


@pytest.mark.proves("CR-35")
def test_partitions_that_come_without_a_revocation_are_a_reason_to_reset() -> None:
    rig = Rig().reading()
    ready = rig.assigned({P0: 0, P2: 0}, generation=6)
    assert isinstance(ready.request, RequestReset)
    assert rig.member.queued == 0


@pytest.mark.proves("CR-36", "CR-83")
def test_what_is_submitted_after_its_partition_went_leaves_no_trace_in_the_offsets() -> None:
    rig = Rig().reading()
    record = rig.member.take(rig.now, 1)
    assert record is not None
    rig.step(ev.PartitionsRevoked(5))
    rig.assigned({P2: 0}, generation=6)
    assert not isinstance(rig.step(ev.ResetGranted(rig.view)).request, GoBack)  # not while the permit is out
    rig.member.submitted(record, 1, rig.now)
    ready = rig.ready()
    assert [one.kind for one in ready.notices] == ["late_submission"]
    assert ready.request == GoBack()
    assert P0 not in rig.member.offsets


@pytest.mark.proves("I5")
def test_a_record_that_the_state_holds_already_is_never_handed_out() -> None:
    rig = Rig().reading(*recs(P0, 0, 1, 0))
    assert rig.handle(3) == recs(P0, 0, 1)
    assert isinstance(rig.ready().request, RequestReset)


# --- requests


@pytest.mark.proves("CR-29")
def test_requests_to_a_failing_coordinator_come_ever_later_and_then_it_is_fatal() -> None:
    rig = Rig().reading()
    rig.step(ev.PartitionsRevoked(5))
    waits = []
    for _ in range(20):
        ready = rig.step(ev.CoordinatorFailed(KohortError("locked")))
        if ready.fatal is not None:
            break
        assert ready.request is None
        assert ready.wake_at is not None
        waits.append(ready.wake_at - rig.now)
        rig.now = ready.wake_at
        assert rig.ready().request == RequestReset(0, "partitions moved", True, 5)
    assert waits == sorted(waits)
    assert waits[-1] == 5.0
    assert isinstance(rig.ready().fatal, CoordinatorUnavailable)
    assert rig.member.state is S.FAILED
    assert rig.ready().polling is Polling.STOPPED


def test_a_response_ends_the_count_of_failures() -> None:
    rig = Rig().reading()
    for _ in range(2):
        for _ in range(REQUEST_ATTEMPTS - 1):
            assert rig.step(ev.CoordinatorFailed(KohortError("locked"))).fatal is None
        rig.sees()


def test_a_member_that_lost_a_task_goes_back_alone_where_tasks_move_one_by_one() -> None:
    alone = Rig(RegionSettings(hand_over=True)).reading()
    assert alone.step(ev.Dispossessed("another member has started the task")).request == GoBack()
    together = Rig().reading()
    assert isinstance(together.step(ev.Dispossessed("another member has started the task")).request, RequestReset)


@pytest.mark.proves("CR-29")
def test_a_reset_without_a_response_is_requested_until_it_has_one() -> None:
    rig = Rig().reading()
    requests = [rig.step(ev.PartitionsRevoked(5)).request, rig.ready().request, rig.ready().request]
    assert all(isinstance(request, RequestReset) for request in requests)


def test_a_stopped_region_stops_its_members() -> None:
    rig = Rig().reading()
    assert isinstance(rig.sees(stopped="too many resets").fatal, RegionStopped)


# --- drain


@pytest.mark.proves("CR-37", "CR-38", "I4", "I12")
def test_a_periodic_drain_sets_the_queue_aside_and_brings_it_back_in_order() -> None:
    rig = Rig(RegionSettings(commit_point="drain")).reading(*recs(P0, 0, 1, 2, 3))
    record = rig.member.take(rig.now, 1)
    assert record is not None
    ready = rig.barrier()
    assert (ready.phase, ready.polling) == (RegionPhase.DRAINING, Polling.STOPPED)
    assert not isinstance(ready.request, Contribute)  # a record is in flight
    assert ready.commit is None
    rig.member.submitted(record, 1, rig.now)
    ready = rig.ready()
    assert (ready.phase, ready.wake_at) == (RegionPhase.DRAINED, rig.now)  # no handler waits for the next look
    assert dict(ready.commit or {}) == {P0: RegionPosition(1), P1: RegionPosition(0)}
    assert isinstance(ready.request, TakeCut)
    assert dict(ready.request.offsets) == {P0: RegionPosition(1), P1: RegionPosition(0)}
    assert rig.ready().commit is None  # once
    assert rig.handle() == []
    ready = rig.step(ev.CutTaken())
    assert (ready.phase, ready.polling) == (RegionPhase.WRITING, Polling.FULL)
    assert not isinstance(ready.request, Contribute)  # the snapshots are not written yet
    assert ready.wake_at == rig.now
    assert rig.handle() == recs(P0, 1)
    assert isinstance(rig.step(ev.SnapshotsWritten()).request, Contribute)
    assert rig.handle() == recs(P0, 2)
    assert rig.step(ev.Contributed(rig.view)).phase is RegionPhase.AWAITING
    ready = rig.sees(barrier=None, newest=1)
    assert (ready.phase, ready.polling) == (RegionPhase.OPEN, Polling.THROTTLED)
    assert ready.commit is None
    assert rig.handle(9) == recs(P0, 3)


@pytest.mark.proves("CR-48", "CR-79")
def test_full_speed_comes_back_with_the_first_permit() -> None:
    rig = Rig().reading()
    rig.barrier()
    rig.contributed()
    assert rig.sees(barrier=None, newest=1).polling is Polling.THROTTLED
    rig.handle()
    assert rig.ready().polling is Polling.FULL


@pytest.mark.proves("A1", "I10")
def test_offsets_are_committed_when_the_checkpoint_is_complete_and_not_before() -> None:
    rig = Rig().reading()
    rig.handle(2)
    assert rig.barrier().commit is None
    assert rig.contributed().commit is None
    assert rig.handle() == recs(P0, 2)  # is in the next checkpoint
    assert dict(rig.sees(barrier=None, newest=1).commit or {}) == {P0: RegionPosition(2), P1: RegionPosition(0)}


def test_a_checkpoint_that_others_gave_up_costs_nothing() -> None:
    rig = Rig().reading()
    rig.handle(1)
    rig.barrier()
    rig.contributed()
    ready = rig.sees(barrier=None)
    assert ready.state is S.RECORDS_FETCHED
    assert ready.commit is None
    assert rig.handle(9) == recs(P0, 1, 2)


@pytest.mark.proves("CR-39", "CR-40")
def test_an_operator_driven_member_waits_with_its_queue_where_it_is() -> None:
    rig = Rig(RegionSettings(trigger=OperatorDriven(2))).reading(*recs(P0, 0, 1, 2, 3, 4))
    assert rig.handle(9) == recs(P0, 0, 1)
    assert rig.ready().request == BeginCheckpoint(0)
    assert not rig.consistent()
    rig.barrier()
    assert rig.member.queued == 3
    rig.contributed()
    rig.sees(barrier=None, newest=1)
    assert rig.consistent()
    assert rig.handle(9) == recs(P0, 2, 3)
    rig.step(ev.PartitionsRevoked(5))
    rig.assigned({P0: 0}, generation=6)
    rig.went_back({P0: 2}, epoch=1)
    assert rig.consistent()
    rig.step(polled(*recs(P0, 2, 3, 4)))
    assert rig.handle(9) == recs(P0, 2, 3)  # counted from 0 again


@pytest.mark.proves("CR-40")
def test_records_behind_the_cut_count_for_the_next_checkpoint() -> None:
    rig = Rig(RegionSettings(trigger=OperatorDriven(3))).reading(*recs(P0, 0, 1, 2, 3, 4, 5, 6))
    assert rig.handle(2) == recs(P0, 0, 1)
    rig.barrier()
    rig.contributed()
    assert rig.handle(1) == recs(P0, 2)
    rig.sees(barrier=None, newest=1)
    assert rig.handle(9) == recs(P0, 3, 4)
    rig.barrier(2)
    rig.contributed()
    rig.sees(barrier=None, newest=2)
    assert rig.handle(9) == recs(P0, 5, 6)


@pytest.mark.proves("CR-40")
def test_a_failed_checkpoint_counts_from_nothing_too() -> None:
    rig = Rig(RegionSettings(trigger=OperatorDriven(2))).reading(*recs(P0, 0, 1, 2, 3, 4))
    rig.handle(2)
    rig.barrier()
    rig.sees(barrier=None)
    assert rig.consistent()
    assert rig.handle(9) == recs(P0, 2, 3)


def test_a_manual_region_takes_checkpoints_when_told_and_never_else() -> None:
    rig = Rig(RegionSettings(trigger=Manual())).reading()
    rig.now += 10_000
    assert rig.ready().request == CheckGroup()
    rig.member.make_consistent(rig.now)
    assert rig.ready().request == BeginCheckpoint(0)
    assert rig.handle() == []
    rig.barrier()
    rig.contributed()
    rig.sees(barrier=None, newest=1)
    assert rig.consistent()


def test_a_request_after_the_cut_is_for_the_next_checkpoint() -> None:
    rig = Rig(RegionSettings(trigger=Manual())).reading()
    rig.barrier()
    rig.cut()
    assert rig.handle() == recs(P0, 0)
    rig.member.make_consistent(rig.now)  # by the handler of this record, which is not in the cut
    rig.step(ev.Contributed(rig.view))
    assert rig.handle() == []
    rig.sees(barrier=None, newest=1)
    assert not rig.consistent()
    rig.now += 1.0
    assert rig.ready().request == BeginCheckpoint(0)
    rig.barrier(2)
    rig.contributed()
    rig.sees(barrier=None, newest=2)
    assert rig.consistent()


def test_a_period_begins_where_the_last_checkpoint_ended() -> None:
    rig = Rig(RegionSettings(trigger=Periodic(5.0))).reading()
    rig.sees(age_s=3.0)
    assert not isinstance(rig.ready().request, BeginCheckpoint)
    rig.now += 2.0
    assert rig.ready().request == BeginCheckpoint(0)
    rig.sees(age_s=5.0)  # there was no barrier: requested again, but not at once
    assert not isinstance(rig.ready().request, BeginCheckpoint)
    rig.now += 0.1
    assert rig.ready().request == BeginCheckpoint(0)


@pytest.mark.proves("CR-44", "CR-46")
def test_a_drain_that_takes_too_long_resets_the_region_and_counts() -> None:
    rig = Rig(RegionSettings(drain_timeout_s=30.0)).reading()
    rig.barrier()
    rig.contributed()
    rig.now += 30.0
    ready = rig.ready()
    assert ready.state is S.CR_RESET_PENDING
    assert isinstance(ready.request, RequestReset)
    assert not ready.request.forced
    assert ready.request.generation is None
    assert rig.member.queued == 0


@pytest.mark.proves("CR-46")
def test_drain_times_are_kept_in_milliseconds() -> None:
    rig = Rig().reading()
    for sequence, took_s in ((1, 0.25), (2, 0.1)):
        rig.barrier(sequence)
        rig.now += took_s
        rig.contributed()
        rig.now += 1.0
        rig.sees(barrier=None, newest=sequence)
    metrics = rig.member.metrics
    assert (metrics["drain_ms_last"], metrics["drain_ms_max"]) == (100, 250)
    assert (metrics["checkpoint_ms_last"], metrics["checkpoint_ms_max"]) == (1_100, 1_250)


@pytest.mark.proves("CR-41")
def test_nothing_owned_commits_nothing_and_still_contributes() -> None:
    rig = Rig(RegionSettings(commit_point="drain")).subscribed()
    rig.assigned({})
    ready = rig.barrier()
    assert ready.commit is None
    assert isinstance(ready.request, TakeCut)


@pytest.mark.proves("CR-43")
@pytest.mark.parametrize("policy", ["warn", "reset"])
def test_a_failed_commit_is_a_warning_or_a_reset(policy: str) -> None:
    rig = Rig(RegionSettings(on_commit_failure=policy)).reading()  # type: ignore[arg-type]
    ready = rig.step(ev.RegionCommitSettled(KohortError("no")))
    assert rig.member.metrics["commit_failures_total"] == 1
    assert ready.notices[0].kind == "commit_failed"
    assert ready.state is (S.RECORDS_FETCHED if policy == "warn" else S.CR_RESET_PENDING)


@pytest.mark.proves("CR-45", "CR-85")
def test_stopping_in_the_middle_of_a_drain_is_clean() -> None:
    rig = Rig().reading()
    rig.barrier()
    ready = rig.step(ev.StopRequested())
    assert (ready.state, ready.phase, ready.polling) == (S.CLOSED, RegionPhase.OPEN, Polling.STOPPED)
    assert (ready.request, ready.wake_at, rig.member.queued) == (None, None, 0)
    assert rig.handle() == []


@pytest.mark.parametrize("barrier", [{"generation": 4}, {"members": ("b", "c")}])
def test_a_barrier_of_another_generation_or_of_others_is_not_ours(barrier: dict[str, object]) -> None:
    rig = Rig().reading()
    assert rig.barrier(**barrier).phase is RegionPhase.OPEN  # type: ignore[arg-type]


def test_a_checkpoint_without_us_voids_what_we_have() -> None:
    rig = Rig().reading()
    ready = rig.sees(newest=4)
    assert isinstance(ready.request, RequestReset)


def test_a_newer_epoch_is_followed_in_the_middle_of_a_drain() -> None:
    rig = Rig().reading()
    rig.barrier()
    rig.contributed()
    ready = rig.sees(epoch=1, barrier=None)
    assert (ready.state, ready.phase, ready.request) == (S.CR_RESET_PENDING, RegionPhase.OPEN, GoBack())


# --- queue and polls


@pytest.mark.proves("CR-80", "I13")
def test_a_full_queue_pauses_and_a_half_empty_one_resumes() -> None:
    rig = Rig(SMALL).reading(*recs(P0, *range(10)))
    assert rig.ready().paused
    rig.handle(4)
    assert rig.ready().paused
    rig.handle(1)
    assert not rig.ready().paused
    assert rig.member.metrics["queue_full_pauses_total"] == 1


@pytest.mark.proves("CR-80")
def test_short_memory_pauses_too() -> None:
    rig = Rig(SMALL).reading()
    assert rig.step(ev.MemoryLow(True)).paused
    assert rig.assigned({P0: 0}, generation=6).paused  # looked at again after every assignment
    assert not rig.step(ev.MemoryLow(False)).paused
    assert rig.member.metrics["low_memory_pauses_total"] == 1


@pytest.mark.proves("CR-81")
def test_what_does_not_fit_back_is_fatal() -> None:
    rig = Rig(SMALL).reading(*recs(P0, *range(10)))
    rig.barrier()
    rig.step(polled(*recs(P1, 0, 1)))  # a driver that polls though it is to stop
    ready = rig.sees(barrier=None)
    assert isinstance(ready.fatal, RegionError)


@pytest.mark.proves("CR-82")
def test_poll_errors_by_kind() -> None:
    rig = Rig().reading()
    assert rig.step(ev.PollFailed(ev.PollTrouble.RETRIABLE, KohortError("x"))).polling is Polling.THROTTLED
    for wait_s in (0.0, 1.0, 1.0):
        rig.now += wait_s
        ready = rig.step(ev.PollFailed(ev.PollTrouble.OTHER, KohortError("odd")))
    assert ready.fatal is not None
    rig = Rig().reading()
    for _ in range(9):
        rig.now += 8.0
        assert rig.step(ev.PollFailed(ev.PollTrouble.OTHER, KohortError("odd"))).fatal is None
    rig = Rig().reading()
    for _ in range(9):
        assert rig.step(ev.PollFailed(ev.PollTrouble.OTHER, KohortError("odd"))).fatal is None
        rig.step(ev.RecordsPolled(()))  # a poll that works clears the count
    assert rig.step(ev.PollFailed(ev.PollTrouble.FATAL, KohortError("undecodable"))).fatal is not None


@pytest.mark.proves("CR-83")
def test_one_permit_at_a_time_and_back_on_errors_too() -> None:
    rig = Rig().reading()
    record = rig.member.take(rig.now, 1)
    assert record is not None
    assert rig.member.take(rig.now, 1) is None
    with pytest.raises(RegionError, match="no permit"):
        rig.member.submitted(columns(recs(P0, 1)), 1, rig.now)
    rig.member.failed(record, KohortError("handler"), rig.now)
    assert rig.member.unhandled == rig.member.queued
    assert rig.ready().fatal is not None


@pytest.mark.proves("CR-18")
def test_offset_zero_is_a_start() -> None:
    rig = Rig().reading(*recs(P0, 0), starts={P0: 0})
    assert rig.handle() == recs(P0, 0)


@pytest.mark.proves("CR-28")
def test_rebalances_request_forced_resets_again_and_again() -> None:
    rig = Rig()
    rig.reading()
    for generation in range(5, 15):
        ready = rig.step(ev.PartitionsRevoked(generation))
        assert isinstance(ready.request, RequestReset)
        assert ready.request.forced
        rig.assigned({P0: 0}, generation=generation + 1)
        rig.went_back({P0: 0}, epoch=rig.view.epoch + 1)
        assert rig.step(polled(*recs(P0, 0))).state is S.RECORDS_FETCHED
