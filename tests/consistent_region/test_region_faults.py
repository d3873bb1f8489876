"""Faults around one member: a coordinator that loses its state, partitions that vanish, logs that change."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from uuid import UUID

import pytest

from kohort import TopicPartition
from kohort.consistent_region import DictState
from kohort.consistent_region import events as ev
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import (
    BarrierOver,
    DataLossError,
    NotRegisteredError,
    ResetFailedError,
    StrangerError,
    TopicRecreatedError,
    TruncationError,
    UnreadError,
)
from kohort.consistent_region.group_check import client_id
from kohort.consistent_region.manifest import TaskState
from kohort.consistent_region.memory_pressure import memory_low
from kohort.consistent_region.offsets import Positions, RegionPosition
from kohort.consistent_region.ready import Polling, RequestReset
from kohort.consistent_region.states import RegionPhase, RegionState
from kohort.consistent_region.store import Key, MemoryStore
from kohort.coordinator_client.errors import TopicRecreated, Truncation
from kohort.coordinator_client.offset_reset import OffsetReset
from kohort.coordinator_client.offsets.describe_group import GroupMemberDescription
from kohort.network.errors import OperationTimeout
from kohort.network.group_types import OffsetAndMetadata
from kohort.testing.simulation import SimRecord
from tests.consistent_region.region_hand import P0, P1, HalfStore, Hand
from tests.consistent_region.region_rig import Rig
from tests.consistent_region.task_calls import task, tasks


def alone(store: MemoryStore | None = None) -> Hand:
    """One member that has everything, and a checkpoint after two records of partition 0."""
    hand = Hand(store or MemoryStore())
    hand.assigned(P0, P1)
    hand.reads(P0, 0, 1)
    hand.checkpoint()
    return hand


# --- a coordinator that forgets, or cannot be read


def two(store: MemoryStore) -> tuple[Hand, Hand]:
    """Members `a` and `b` of a region, with a partition each."""
    a, b = Hand(store, "a"), Hand(store, "b")
    a.assigned(P0)
    b.assigned(P1)
    return a, b


@pytest.mark.proves("CR-03")
def test_a_coordinator_without_memory_is_registered_with_again_and_the_region_begins_again() -> None:
    store = MemoryStore()
    a, b = two(store)
    a.reads(P0, 0, 1)
    with store.transaction():
        store._values.clear()
    with pytest.raises(NotRegisteredError):
        a.coordinator.begin_checkpoint(a.conductor.ticket, 0)  # type: ignore[arg-type]
    for _ in range(40):
        a.turn()
        b.turn()
    assert a.coordinator.members() == ("a", "b")
    assert a.member.state is RegionState.RESET_COMPLETE
    assert a.state == {}
    assert a.consumer.sought[P0][0] == 0
    a.reads(P0, 0, 1)
    assert a.checkpoint(b) >= 1
    assert a.state == {"0": [0, 1]}


@pytest.mark.proves("CR-03")
def test_a_lost_response_to_registering_again_is_no_other_process() -> None:
    store = HalfStore()
    a, b = two(store)
    before = a.conductor.ticket
    with store.transaction():
        store._values.clear()
    store.responses_lost = 1
    a.reads(P0, 0, 1)
    a.turn()
    assert store.responses_lost == 0
    a.revoked()  # and a hook comes before it is known
    a.assigned(P0, generation=6)
    b.revoked()
    b.assigned(P1, generation=6)
    for _ in range(40):
        a.turn()
        b.turn()
    assert a.conductor.ticket is not None
    assert a.conductor.ticket != before
    assert a.coordinator.record().members["a"].incarnation == a.conductor.ticket.incarnation
    a.reads(P0, 0, 1)
    assert a.checkpoint(b) >= 1


@pytest.mark.proves("CR-03", "CR-54")
def test_a_coordinator_that_lost_checkpoints_is_an_error_and_never_a_new_beginning() -> None:
    hand = alone()
    with hand.coordinator.store.transaction() as books:
        for kind in ("region", "manifest", "state"):
            for name in books.names(kind, "g"):
                books.delete(Key(kind, "g", name))
    with pytest.raises(ResetFailedError, match=r"another history|lost the checkpoint"):
        hand.turn(30)
    assert hand.member.state is RegionState.FAILED


@pytest.mark.proves("CR-30")
def test_a_region_that_cannot_be_looked_at_is_asked_to_reset_all_the_same() -> None:
    store = HalfStore()
    hand = alone(store)
    hand.reads(P0, 2)
    store.unreadable = True
    hand.revoked()
    assert hand.member.state is RegionState.CR_RESET_PENDING
    hand.turn(5)
    store.unreadable = False
    assert hand.coordinator.record().epoch == 1


# --- absent members


@pytest.mark.proves("CR-85", "I6", "I2")
def test_a_member_that_is_gone_holds_up_nothing_and_its_tasks_go_on_elsewhere() -> None:
    a, b = two(MemoryStore())
    a.reads(P0, 0, 1)
    b.reads(P1, 0, 1)
    first = a.checkpoint(b)
    b.reads(P1, 2)  # which no reader will ever see
    a.revoked()
    a.assigned(P0, P1, generation=6)
    a.until(lambda: a.member.state is RegionState.RESET_COMPLETE)
    assert a.state == {"0": [0, 1], "1": [0, 1]}
    a.reads(P1, 2, 3)
    second = a.checkpoint()  # its lease still runs, and its partitions are elsewhere
    assert (first, a.coordinator.manifest(second).members) == (1, ("a",))
    assert a.state == {"0": [0, 1], "1": [0, 1, 2, 3]}
    # The process that slept all that time finds that the region went on, and has nothing.
    b.now = a.now
    b.lost()
    b.until(lambda: b.member.state is RegionState.RESET_COMPLETE)
    assert b.state == {}


@pytest.mark.proves("CR-85", "CR-62")
def test_a_member_that_left_is_not_waited_for_and_the_next_process_has_its_tasks() -> None:
    store = MemoryStore()
    a, b = two(store)
    b.reads(P1, 0)
    a.checkpoint(b)
    b.conductor.stop()
    a.revoked()
    a.assigned(P0, generation=6)
    again = Hand(store, "another")
    again.now = a.now
    again.assigned(P1, generation=6)
    again.until(lambda: again.member.state is RegionState.RESET_COMPLETE)
    assert again.state == {"1": [0]}
    assert a.checkpoint(again) == 2


def test_a_lease_of_a_clock_that_began_again_is_none() -> None:
    hand = alone()
    record = hand.coordinator.record().members["a"]
    assert record.here(hand.now, 30.0)
    assert not record.here(hand.now - 50.0, 30.0)
    assert not record.here(hand.now + 31.0, 30.0)


def test_a_lease_that_is_longer_than_ones_own_is_one_all_the_same() -> None:
    store, now = MemoryStore(), 100.0
    patient = RegionCoordinator(store, "r", "g", lambda: now, lease_s=120.0)
    other = RegionCoordinator(store, "r", "g", lambda: now, lease_s=30.0)
    idle, reading = patient.register("idle").ticket, other.register("reading").ticket
    other.put_initial(reading, {P0: RegionPosition(0)})
    patient.report(idle, 5, 0)
    other.report(reading, 5, 1)
    # Left out, it would have the region go back after every checkpoint.
    barrier = other.begin_checkpoint(reading, 0).barrier
    assert barrier is not None
    assert barrier.members == ("idle", "reading")


def test_the_damaged_manifest_of_a_task_is_an_error() -> None:
    store = MemoryStore()
    a, b = two(store)
    first = a.checkpoint(b)
    b.conductor.stop()
    a.revoked()
    with store.transaction() as books:
        books.delete(Key("manifest", "g", f"{first:020d}"))
    a.assigned(P0, P1, generation=6)
    with pytest.raises(ResetFailedError):
        a.turn(50)


# --- contributions that come late, or twice


@pytest.mark.proves("CR-59", "A6")
def test_a_late_member_completes_for_all_that_have_contributed_before() -> None:
    store = MemoryStore()
    a, b = two(store)
    a.member.make_consistent(a.now)
    a.until(lambda: a.member.phase is RegionPhase.AWAITING)
    contributed = a.coordinator.record().tasks
    a.turn(5)
    assert a.coordinator.record().tasks == contributed  # counted once, and not requested again
    b.now = a.now
    b.until(lambda: b.member.base is not None)
    a.turn(3)
    assert (a.member.base, a.member.phase) == (b.member.base, RegionPhase.OPEN)
    late = Hand(store, "c")
    back = late.coordinator.go_back(late.conductor.ticket, tasks(P0))  # type: ignore[arg-type]
    # A later member reads what is complete, and does not wait.
    assert back.starts[task(P0)].sequence == a.member.base


@pytest.mark.proves("CR-60")
def test_news_of_other_checkpoints_is_ignored_and_what_completed_before_is_used_at_once() -> None:
    rig = Rig().reading()
    assert rig.barrier(7).phase is RegionPhase.DRAINED
    assert rig.barrier(8, members=("b",)).phase is RegionPhase.OPEN  # ours was given up; the other is not for us
    hand = alone()
    sequence = hand.member.base
    assert sequence is not None
    before = hand.coordinator.manifest(sequence)
    cuts = {one.task: TaskState(one.offsets, b"{}") for one in before.tasks}
    record = hand.coordinator.record()
    assert hand.conductor.ticket is not None
    hand.member.make_consistent(hand.now)
    barrier = hand.coordinator.begin_checkpoint(hand.conductor.ticket, record.epoch).barrier
    assert barrier is not None
    # Completed by a response that was lost: the member still drains, sends again, and learns that it is over.
    newest = hand.coordinator.contribute(hand.conductor.ticket, barrier, cuts).newest
    assert newest == barrier.sequence
    with pytest.raises(BarrierOver):
        hand.coordinator.contribute(hand.conductor.ticket, barrier, cuts)
    assert hand.coordinator.manifest(newest).offsets == before.offsets
    rig = Rig().reading()
    rig.barrier(3)
    rig.sees(newest=3, barrier=None)
    assert (rig.member.base, rig.member.phase, rig.member.state) == (3, RegionPhase.OPEN, RegionState.RECORDS_FETCHED)


@pytest.mark.proves("CR-60", "I10")
def test_a_checkpoint_that_was_given_up_is_not_complete_because_a_later_one_is() -> None:
    store = MemoryStore()
    a, b = two(store)
    a.reads(P0, 0, 1)
    a.checkpoint(b)
    a.reads(P0, 2)
    a.member.make_consistent(a.now)
    a.until(lambda: a.member.phase is RegionPhase.AWAITING)
    # Here its process stands still, and another's start ends the barrier.
    late = Hand(store, "late")
    b.revoked()
    b.assigned(P0, P1, generation=6)
    late.assigned(generation=6)
    late.until(lambda: late.member.state is RegionState.RESET_COMPLETE)
    b.now = late.now = a.now + 31.0
    late.turn()
    b.reads(P0, 2)
    assert b.checkpoint(late) > 2
    a.now = b.now
    a.turn()
    assert a.member.state is RegionState.CR_RESET_PENDING
    assert a.member.metrics["checkpoints_total"] == 1  # so that no sink was to commit what it had prepared


@pytest.mark.proves("CR-58", "I14")
def test_no_checkpoint_begins_while_a_member_is_still_going_back() -> None:
    a, b = two(MemoryStore())
    a.reads(P0, 0)
    first = a.checkpoint(b)

    class Large(DictState):
        def restore(self, snapshot: bytes, offsets: Positions) -> None:
            b.now = a.now
            for _ in range(1000):  # longer than a barrier waits
                b.turn()
            a.now = b.now

    a.states.states[task(P0)] = Large()
    assert a.conductor.ticket is not None
    a.coordinator.request_reset(a.conductor.ticket, 0, "test", forced=True, generation=None)
    b.until(lambda: b.member.state is RegionState.RESET_COMPLETE)
    b.member.make_consistent(b.now)
    a.until(lambda: a.member.base != first, b)
    assert a.coordinator.record().epoch == 1


# --- partitions that go


@pytest.mark.proves("CR-42")
def test_what_is_not_assigned_any_more_is_left_out_of_the_commit() -> None:
    hand = alone()
    hand.consumer.committed_now.clear()
    hand.reads(P0, 2)
    hand.member.make_consistent(hand.now)
    hand.until(lambda: hand.member.phase is not RegionPhase.OPEN)
    hand.consumer.assignment = frozenset({P0})  # the hook has not run yet
    hand.until(lambda: hand.member.phase is RegionPhase.OPEN)
    hand.turn()
    assert {one: at.offset for one, at in hand.consumer.committed_now.items()} == {P0: 3}


@pytest.mark.proves("CR-68")
def test_a_partition_that_goes_while_going_back_is_left_out_and_sought_when_it_is_back() -> None:
    hand = alone()
    hand.reads(P0, 2)
    assert hand.conductor.ticket is not None
    hand.coordinator.request_reset(hand.conductor.ticket, 0, "asked", forced=True, generation=None)
    hand.consumer.lost_at_seek = {P1}
    hand.until(lambda: hand.member.state is RegionState.RESET_COMPLETE)
    assert hand.consumer.sought == {P0: (2, 0)}
    hand.consumer.lost_at_seek = set()
    hand.lost()
    hand.until(lambda: hand.member.state is RegionState.RESET_COMPLETE)
    hand.assigned(P0, P1, generation=6)
    assert hand.consumer.positions == {P0: 2, P1: 0}
    hand.reads(P0, 2, 3)
    assert hand.state == {"0": [0, 1, 2, 3]}


@pytest.mark.proves("CR-37", "CR-85", "I14")
def test_a_slow_handler_holds_up_a_checkpoint_by_one_record_and_not_by_all_that_wait() -> None:
    a, b = two(MemoryStore())

    def slow(record: SimRecord, state: object) -> None:
        b.now += 0.1
        a.now = b.now
        a.turn()  # on a processor of its own

    b.conductor.handler = slow
    b.consumer.batches.append([SimRecord(*P1, offset) for offset in range(1000)])
    a.member.make_consistent(a.now)
    for _ in range(10):
        b.turn()
        a.turn()
    assert (a.member.base, a.coordinator.record().epoch) == (1, 0)


@pytest.mark.proves("CR-40", "I14")
def test_records_that_wait_for_a_checkpoint_that_never_begins_keep_no_processor_busy() -> None:
    hand = Hand(MemoryStore())
    hand.assigned(P0)
    hand.coordinator.register("b")  # and is not in the group yet
    hand.member.make_consistent(hand.now)
    hand.reads(P0, 0, 1)
    began = hand.now
    for _ in range(50):
        before_s = hand.consumer.waited_s
        hand.now += hand.conductor.turn(0.2) + hand.consumer.waited_s - before_s
    assert (hand.member.queued, hand.state) == (2, {})
    assert hand.now - began > 0.2


def test_a_checkpoint_that_was_requested_is_taken_after_a_reset_too() -> None:
    hand = alone()
    before = hand.member.base
    hand.reads(P0, 2)
    hand.revoked()  # and the region goes back
    hand.member.make_consistent(hand.now)
    hand.assigned(P0, P1, generation=6)
    hand.until(lambda: hand.member.metrics["resets_total"] == 1)
    hand.until(lambda: hand.member.base != before)


@pytest.mark.proves("CR-47")
def test_a_drain_that_outlasts_membership_ends_in_a_reset() -> None:
    rig = Rig().reading()
    rig.barrier()
    assert rig.ready().polling is Polling.STOPPED  # heartbeats are the group client's, on a thread of its own
    ready = rig.step(ev.PartitionsLost(5))
    assert (ready.state, ready.phase) == (RegionState.CR_RESET_PENDING, RegionPhase.OPEN)
    assert isinstance(ready.request, RequestReset)
    assert ready.request.forced
    assert ready.polling is Polling.THROTTLED
    assert rig.offsets() == {}


# --- logs that change


@pytest.mark.proves("CR-74", "B-39")
def test_a_manifest_names_topics_and_epochs_and_a_topic_created_again_is_refused() -> None:
    hand = alone()
    assert hand.manifest_positions()[P0] == RegionPosition(2, 0, UUID(int=1))
    hand.consumer.epochs[P0] = 3
    hand.reads(P0, 2)
    hand.checkpoint()
    assert hand.manifest_positions() == {P0: RegionPosition(3, 3, UUID(int=1)), P1: RegionPosition(0, -1, UUID(int=1))}
    hand.lost()
    hand.assigned(P0, P1, generation=6)
    hand.consumer.ids["t"] = UUID(int=2)
    with pytest.raises(TopicRecreatedError, match="created again") as caught:
        hand.turn(20)
    assert caught.value.place["topic"] == "t"
    assert caught.value.place["topic_id"] == UUID(int=2)
    assert hand.consumer.sought == {}


@pytest.mark.proves("CR-74", "B-39")
@pytest.mark.parametrize(("known_later", "error"), [(2, TopicRecreatedError), (1, TruncationError)])
def test_a_shorter_log_is_one_of_a_topic_created_again_if_new_metadata_has_another_id(
    known_later: int, error: type[Exception]
) -> None:
    hand = alone()
    hand.lost()
    hand.consumer.end = 1
    hand.consumer.fresh_ids = {"t": UUID(int=known_later)}
    hand.assigned(P0, P1, generation=6)
    with pytest.raises(error):
        hand.turn(20)


@pytest.mark.proves("CR-74", "B-39")
def test_a_topic_created_again_is_refused_at_an_assignment_without_a_reset() -> None:
    hand = alone()
    again = Hand(hand.coordinator.store, "a")  # type: ignore[arg-type]
    again.until(lambda: again.member.state is RegionState.RESET_COMPLETE)
    again.consumer.ids["t"] = UUID(int=2)
    again.assigned(P0, P1, generation=6)
    with pytest.raises(TopicRecreatedError):
        again.turn()
    assert again.consumer.polls <= 1 + again.member.metrics["resets_total"] * 20


@pytest.mark.proves("CR-74", "B-38")
def test_epochs_follow_the_handled_record_and_not_the_fetched_one() -> None:
    hand = alone()
    hand.conductor.records_a_turn = 1
    for epoch, offsets in ((4, (2, 3)), (5, (4, 5))):
        hand.consumer.epochs[P0] = epoch
        hand.reads(P0, *offsets)
    assert (hand.state["0"][-1], hand.member.queued) == (3, 2)
    hand.checkpoint()
    assert hand.manifest_positions()[P0] == RegionPosition(4, 4, UUID(int=1))
    hand.until(lambda: hand.state["0"][-1] == 5)
    hand.checkpoint()
    assert hand.manifest_positions()[P0] == RegionPosition(6, 5, UUID(int=1))


def test_a_checkpoint_is_behind_records_that_no_handler_gets_but_not_behind_those_that_wait() -> None:
    """Ends of transactions and records of aborted ones. Retention removes them without a loss of data."""
    hand = alone()
    hand.conductor.records_a_turn = 1
    hand.consumer.positions[P1] = 7
    hand.consumer.epochs[P1] = 4
    hand.reads(P0, 2, 3, 4)
    assert hand.member.queued == 2
    hand.consumer.positions[P0] = 9
    hand.checkpoint()
    found = hand.manifest_positions()
    assert found == {P0: RegionPosition(3, 0, UUID(int=1)), P1: RegionPosition(7, 4, UUID(int=1))}
    hand.turn()
    assert {one: at.offset for one, at in hand.consumer.committed_now.items()} == {P0: 3, P1: 7}
    hand.until(lambda: hand.member.unhandled == 0)
    hand.checkpoint()
    assert hand.manifest_positions()[P0].offset == 9
    assert hand.state["0"] == [0, 1, 2, 3, 4]


def test_a_position_that_is_not_known_is_that_of_the_last_record() -> None:
    hand = alone()
    del hand.consumer.positions[P1]
    hand.checkpoint()
    assert hand.manifest_positions()[P1].offset == 0


@pytest.mark.proves("CR-74", "I19")
def test_an_assignment_starts_with_the_epoch_of_the_checkpoint() -> None:
    hand = alone()
    hand.consumer.epochs[P0] = 3
    hand.reads(P0, 2)
    hand.checkpoint()
    hand.lost()
    hand.until(lambda: hand.member.state is RegionState.RESET_COMPLETE)
    hand.assigned(P0, P1, generation=6)
    # Without the epoch the consumer would read on in a log that was truncated and written again.
    assert hand.starts == {P0: OffsetAndMetadata(3, 3), P1: OffsetAndMetadata(0)}


@pytest.mark.proves("CR-74", "I19")
def test_what_was_polled_before_a_reset_names_no_epoch_of_the_checkpoint_after_it() -> None:
    hand = alone()
    hand.consumer.epochs[P0] = 3
    hand.conductor.records_a_turn = 0
    hand.reads(P0, 2, 3)  # nothing of it is handled
    hand.conductor.records_a_turn = 10
    hand.coordinator.rewind(hand.coordinator.checkpoints()[-1])
    hand.until(lambda: hand.member.state is RegionState.RESET_COMPLETE)
    hand.checkpoint()
    assert hand.manifest_positions()[P0] == RegionPosition(2, 0, UUID(int=1))


@pytest.mark.proves("CR-74", "I19")
def test_what_was_polled_before_a_reset_names_no_epoch_of_what_is_polled_after_it() -> None:
    hand = alone()
    hand.conductor.records_a_turn = 0
    hand.reads(P0, 2, 3)  # nothing of it is handled
    hand.coordinator.rewind(hand.coordinator.checkpoints()[-1])
    hand.until(lambda: hand.member.state is RegionState.RESET_COMPLETE)
    hand.conductor.records_a_turn = 1
    hand.consumer.epochs[P0] = 4
    hand.reads(P0, 2, 3, 4, 5)
    hand.checkpoint()
    at = hand.manifest_positions()[P0]
    assert (at.offset < 4, at.leader_epoch) == (True, 4)


@pytest.mark.proves("CR-74", "B-38", "B-39")
@pytest.mark.parametrize(
    ("raised", "expected"),
    [(TopicRecreated("anew", topic="t"), TopicRecreatedError), (Truncation("cut", topic="t"), TruncationError)],
)
def test_what_the_consumer_says_of_a_log_ends_the_member_at_once(raised: Exception, expected: type[Exception]) -> None:
    hand = alone()
    hand.consumer.batches.append(raised)
    with pytest.raises(expected) as caught:
        hand.turn(2)
    assert getattr(caught.value, "place", {})["topic"] == "t"


@pytest.mark.proves("CR-73", "CR-74")
@pytest.mark.parametrize(("start", "expected"), [(9, DataLossError), (1, TruncationError)])
def test_a_position_that_the_log_does_not_have_distinguishes_loss_from_truncation(
    start: int, expected: type[Exception]
) -> None:
    hand = alone()
    hand.conductor.on_gap(OffsetReset(P0, 5, start, "out of range"))
    with pytest.raises(expected):
        hand.turn()


# --- company


@pytest.mark.proves("CR-87")
def test_a_stranger_in_the_group_is_named() -> None:
    hand = alone()
    own = GroupMemberDescription("id-1", client_id("kohort", "r", "a"), "/10.0.0.1")
    hand.consumer.mates = OperationTimeout("no answer")
    hand.turn(100)  # a failed request is sent again
    hand.consumer.mates = [own]
    hand.turn(300)
    polls = hand.consumer.polls
    hand.revoked()
    hand.assigned(P0, generation=6)
    stranger = GroupMemberDescription("id-2", "billing-report", "/10.0.0.9")
    never_registered = GroupMemberDescription("id-3", client_id("kohort", "r", "z"), "/10.0.0.8")
    hand.consumer.mates = [own, stranger, never_registered]
    with pytest.raises(StrangerError, match=r"billing-report at /10\.0\.0\.9 \(id-2\), kohort/r/z at"):
        hand.turn(100)
    assert hand.consumer.polls > polls
    assert hand.member.state is RegionState.FAILED


@pytest.mark.proves("CR-87", "I14")
def test_partitions_without_an_owner_are_named() -> None:
    hand = alone()
    name = client_id("kohort", "r", "a")
    hand.consumer.mates = [GroupMemberDescription("id-1", name, "/10.0.0.1", frozenset({P0}))]
    hand.turn(400)  # P1 has no owner for a while: another may get it
    hand.consumer.mates = [GroupMemberDescription("id-1", name, "/10.0.0.1", None)]
    hand.turn(600)
    hand.consumer.mates = [GroupMemberDescription("id-1", name, "/10.0.0.1", frozenset({P0, P1}))]
    hand.revoked()
    hand.assigned(P0, P1, generation=6)
    hand.turn(600)
    hand.revoked()
    hand.assigned(P0, generation=7)
    hand.consumer.mates = [GroupMemberDescription("id-1", name, "/10.0.0.1", frozenset({P0}))]
    with pytest.raises(UnreadError, match=r"partitions=t-1, group=g, region=r\); subscribe to the topic again"):
        hand.turn(1_000)
    assert hand.member.state is RegionState.FAILED


# --- memory


@pytest.mark.proves("CR-80")
def test_low_memory_pauses_and_its_end_resumes() -> None:
    hand = alone()
    hand.low = True
    hand.now += 1.0
    hand.turn()
    assert hand.consumer.paused == [True]
    hand.turn(10)
    assert hand.member.metrics["low_memory_pauses_total"] == 1
    hand.low = False
    hand.now += 1.0
    hand.turn()
    assert hand.consumer.paused == [True, False]


@pytest.mark.proves("CR-80")
def test_low_memory_is_the_hosts_or_the_cgroups(tmp_path: Path) -> None:
    def write(files: Mapping[str, str]) -> Path:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        root.mkdir(exist_ok=True)
        return root

    mib = 1024 * 1024
    plenty = {"proc/meminfo": "MemTotal:  8000000 kB\nMemFree: 1 kB\nMemAvailable:  4000000 kB\n"}
    group = {
        "sys/fs/cgroup/memory.max": f"{512 * mib}\n",
        "sys/fs/cgroup/memory.current": f"{480 * mib}\n",
        "sys/fs/cgroup/memory.stat": "anon 5\ninactive_file 1000\n",
    }
    assert not memory_low(write(plenty))
    assert memory_low(write({"proc/meminfo": "MemTotal:  8000000 kB\nMemAvailable:  40000 kB\n"}))
    assert memory_low(write(plenty | group))
    assert not memory_low(write(plenty | group | {"sys/fs/cgroup/memory.stat": f"inactive_file {200 * mib}\n"}))
    assert not memory_low(write(plenty | group | {"sys/fs/cgroup/memory.max": "max\n"}))
    assert not memory_low(write({}))
    assert not memory_low()


@pytest.mark.proves("B-27", "CR-66")
@pytest.mark.parametrize("going_back", [True, False])
def test_brokers_that_are_away_for_a_while_end_no_member(going_back: bool) -> None:
    hand = Hand(MemoryStore())
    hand.assigned(P0)
    hand.reads(P0, 0, 1)
    if not going_back:  # requested in the hook, for the partitions that come
        hand.until(lambda: hand.member.queued == 0)
        hand.conductor.stop()
        hand = Hand(hand.coordinator.store)  # type: ignore[arg-type]
    away = [3]

    def ends(partitions: Iterable[TopicPartition], *, stable: bool = True) -> Mapping[TopicPartition, int]:
        if away[0]:
            away[0] -= 1
            raise OperationTimeout("no response with the end of the log")
        return dict.fromkeys(partitions, 100)

    hand.consumer.end_offsets = ends  # type: ignore[method-assign]
    hand.consumer.beginning_offsets = lambda partitions: dict.fromkeys(ends(partitions), 0)  # type: ignore[method-assign]
    if going_back:
        hand.revoked()
    hand.assigned(P0, generation=6)
    hand.until(lambda: hand.member.state is RegionState.RESET_COMPLETE)
    assert away == [0]
    hand.reads(P0, 0, 1)
    hand.until(lambda: hand.state == {"0": [0, 1]})
