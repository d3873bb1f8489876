"""Tasks with large states that move: their cuts are written, and read again, beside the records of other tasks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

from kohort import TopicPartition
from kohort.consistent_region import DictState, dict_state
from kohort.consistent_region.checkpoint_barrier import CheckpointTicket
from kohort.consistent_region.coordinator import RegionCoordinator, TaskStarts
from kohort.consistent_region.errors import CoordinatorUnavailable, FencedError, StateVersionError, TopicRecreatedError
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.region_driver import WRITE_S
from kohort.consistent_region.states import RegionState
from kohort.consistent_region.store import Key, MemoryStore
from kohort.coordinator_client.hooks import Assigned, Revoked
from tests.consistent_region.region_hand import CAUSE, Hand
from tests.consistent_region.region_hand import P0 as R0
from tests.consistent_region.region_hand import P1 as R1
from tests.consistent_region.task_calls import cuts, gone_back, states, task, tasks

P0, P1 = (TopicPartition("t", n) for n in range(2))
LEASE_S = 30.0
KEYS = 12


# --- the rules


class Pair:
    """Two members of a region with two partitions. The first one has both, and a checkpoint, and the second one has
    none."""

    def __init__(self) -> None:
        self.now = 100.0
        self.region = RegionCoordinator(MemoryStore(), "r", "g", clock=lambda: self.now, lease_s=LEASE_S)
        self.a = self.region.register("a").ticket
        self.b = self.region.register("b").ticket
        self.region.put_initial(self.a, dict.fromkeys((P0, P1), RegionPosition(0)))
        self.region.take(self.a, 0, 1, 2, tasks(P0, P1))
        barrier = self.region.begin_checkpoint(self.a, 0).barrier
        assert barrier is not None
        self.region.contribute(self.a, barrier, cuts(dict.fromkeys((P0, P1), RegionPosition(3)), b"checkpoint"))

    def announces(self, *partitions: TopicPartition, left: int = 1) -> bool:
        return self.region.hand_over(self.a, 0, 1, {}, leaving=tasks(*partitions), left=left)[1]

    def hands_over(self, partition: TopicPartition) -> bool:
        return self.region.hand_over(self.a, 0, 1, cuts({partition: RegionPosition(5)}, b"handed"))[1]

    def b_takes(self, partition: TopicPartition, ticket: CheckpointTicket | None = None) -> TaskStarts:
        return self.region.take(ticket or self.b, 0, 2, 1, tasks(partition), blocks_later=True)

    def begins(self) -> bool:
        return self.region.begin_checkpoint(self.a, self.region.look().epoch).barrier is not None


@pytest.mark.proves("CR-93")
def test_the_next_owner_waits_for_a_cut_that_is_announced_and_no_checkpoint_begins_meanwhile() -> None:
    pair = Pair()
    assert pair.announces(P1)
    pair.region.take(pair.a, 0, 2, 1, {})
    waiting = pair.b_takes(P1)
    assert (dict(waiting.starts), set(waiting.waiting), waiting.unfinished) == ({}, {task(P1)}, True)
    assert not pair.begins()
    assert pair.hands_over(P1)
    taken = pair.b_takes(P1)
    assert (states(taken), taken.waiting, taken.unfinished) == ({1: b"handed"}, frozenset(), False)
    assert pair.begins()
    record = pair.region.record()
    assert (record.leaving, record.handed, record.held[task(P1)]) == ({}, {}, "b")


def test_a_request_that_changes_nothing_writes_nothing() -> None:
    pair = Pair()
    pair.announces(P1)
    pair.b_takes(P1)
    before = pair.region.record()
    pair.b_takes(P1)
    assert pair.region.record() is before


def test_an_owner_that_has_no_other_task_left_still_hands_over() -> None:
    pair = Pair()
    assert pair.announces(P0, P1, left=0)
    pair.region.report(pair.a, 2, 0)
    assert pair.b_takes(P1).waiting == {task(P1)}
    assert pair.hands_over(P1)
    assert states(pair.b_takes(P1)) == {1: b"handed"}
    assert pair.b_takes(P0).waiting == {task(P0)}


@pytest.mark.parametrize("how", ["lease", "stopped", "started again", "went back", "reset"])
def test_a_task_whose_owner_cannot_hand_it_over_any_more_starts_from_the_newest_checkpoint(how: str) -> None:
    pair = Pair()
    assert pair.announces(P1)
    match how:
        case "lease":
            pair.now += LEASE_S + 1.0
            pair.region.look(pair.b)
        case "stopped":
            pair.region.deregister(pair.a)
        case "started again":
            pair.region.register("a")
        case "went back":
            gone_back(pair.region, pair.a, 2, P0)
        case _:
            pair.region.request_reset(pair.b, 0, "a reset", forced=True, generation=None)
            assert states(gone_back(pair.region, pair.b, 2, P1)) == {1: b"checkpoint"}
    if how != "reset":
        taken = pair.b_takes(P1)
        assert (states(taken), taken.waiting) == ({1: b"checkpoint"}, frozenset())
    if how == "started again":
        with pytest.raises(FencedError):
            pair.hands_over(P1)
    else:
        assert not pair.hands_over(P1)
    assert pair.region.record().leaving == {}


def test_a_task_that_another_member_took_cannot_be_announced() -> None:
    pair = Pair()
    pair.b_takes(P1)
    assert not pair.announces(P1)
    assert pair.region.record().leaving == {}


# --- the driver


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block for each key of a state."""
    for name, value in {"INLINE_KEYS": 1, "CHUNK_KEYS": 1, "BLOCK_BYTES": 1}.items():
        monkeypatch.setattr(dict_state, name, value)


class Two:
    """Members a and b. a has read records of both partitions, each with a key of its own."""

    def __init__(self, store: MemoryStore | None = None, **settings: Any) -> None:
        store = MemoryStore() if store is None else store
        self.a, self.b = (Hand(store, name, hand_over=True, **settings) for name in "ab")
        for one in (self.a, self.b):
            one.conductor.handler = self.handle
        self.a.assigned(R0, R1)
        self.b.assigned()
        self.a.reads(R0, *range(KEYS))
        self.a.reads(R1, *range(KEYS))

    @staticmethod
    def handle(record: Any, state: DictState) -> None:
        state[f"k{record.partition}-{record.offset}"] = record.offset

    def revoked(self, *partitions: TopicPartition) -> None:
        self.a.conductor.on_revoked(Revoked(frozenset(partitions), self.a.consumer.assignment, 5, CAUSE))
        self.a.consumer.assignment -= set(partitions)

    def given(self, hand: Hand, *partitions: TopicPartition, generation: int = 6) -> None:
        mine = frozenset(partitions)
        starts = hand.conductor.on_assigned(Assigned(mine - hand.consumer.assignment, mine, generation, CAUSE)) or {}
        hand.consumer.assignment = mine
        hand.consumer.positions |= {one: at.offset for one, at in starts.items() if isinstance(at, tuple)}

    def moves(self) -> None:
        """R1 leaves a for b."""
        self.revoked(R1)
        self.given(self.a, R0)
        self.given(self.b, R1)

    def resets(self) -> None:
        """The second member requests a reset."""
        ticket = self.b.conductor.ticket
        assert ticket is not None
        self.b.coordinator.request_reset(ticket, 0, "a reset", forced=True, generation=None)

    def turn(self) -> None:
        for one in (self.a, self.b):
            one.now = max(self.a.now, self.b.now)
            one.turn()

    def until_moved(self) -> int:
        for turns in range(500):
            if not (self.b.consumer.held or self.a.states.leaving):
                return turns
            self.turn()
        raise AssertionError("never")

    def keys(self, hand: Hand, partition: int) -> list[int]:
        return sorted(offset for key, offset in hand.state.items() if key.startswith(f"k{partition}-"))


@pytest.mark.usefixtures("blocks")
@pytest.mark.proves("CR-93", "I16")
def test_a_large_state_moves_while_records_of_other_tasks_are_handled() -> None:
    two = Two()
    two.revoked(R1)
    assert two.a.coordinator.record().leaving == {task(R1): "a"}
    two.given(two.a, R0)
    two.given(two.b, R1)
    assert two.b.consumer.held == {R1}
    read = KEYS
    while two.b.consumer.held:
        two.a.reads(R0, read)
        two.b.now = two.a.now
        two.b.turn()
        read += 1
        assert two.keys(two.a, 0) == list(range(read))  # each turn handles its record
    assert read > KEYS + 10
    assert two.keys(two.b, 1) == list(range(KEYS))
    assert two.b.consumer.sought[R1][0] == KEYS
    two.b.reads(R1, KEYS)
    assert two.keys(two.b, 1) == list(range(KEYS + 1))
    two.a.checkpoint(two.b)
    assert {one: at.offset for one, at in two.a.manifest_positions().items()} == {R0: read, R1: KEYS + 1}
    assert [one.member.metrics["resets_total"] for one in (two.a, two.b)] == [0, 0]


@pytest.mark.usefixtures("blocks")
def test_records_of_a_task_that_has_not_arrived_are_not_handled() -> None:
    two = Two()
    two.moves()
    two.b.reads(R1, KEYS)  # although the partition is held
    assert two.keys(two.b, 1) == []
    two.until_moved()
    two.b.reads(R1, KEYS)
    assert two.keys(two.b, 1) == list(range(KEYS + 1))
    assert two.b.member.metrics["resets_total"] == 0


@pytest.mark.usefixtures("blocks")
@pytest.mark.proves("CR-93")
@pytest.mark.parametrize("turns", [0, 1, 2])
@pytest.mark.parametrize("late_ms", [0, 60, 199])
def test_a_reset_releases_partitions_that_wait_for_a_cut(turns: int, late_ms: int) -> None:
    two = Two(look_interval_s=0.2)  # so that some members request their tasks again before they see the reset
    two.a.checkpoint(two.b)
    two.moves()
    for _ in range(turns):
        two.turn()
    two.resets()
    two.a.now = two.b.now = max(two.a.now, two.b.now) + late_ms / 1000
    for one in (two.b, two.a):
        one.until(lambda one=one: one.member.state is RegionState.RESET_COMPLETE)  # type: ignore[misc]
    two.until_moved()
    two.b.reads(R1, KEYS)
    assert two.keys(two.b, 1) == list(range(KEYS + 1))


class FailingStore(MemoryStore):
    """After so many calls (`calls_left`) one call fails."""

    calls_left = 1 << 60

    def _call(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise CoordinatorUnavailable("locked")

    @contextmanager
    def transaction(self) -> Iterator[MemoryStore]:
        self._call()
        with super().transaction() as books:
            yield books

    @contextmanager
    def read(self) -> Iterator[MemoryStore]:
        self._call()
        with super().read() as books:
            yield books


@pytest.mark.usefixtures("blocks")
@pytest.mark.proves("CR-93", "I14")
def test_a_task_that_has_no_owner_any_more_keeps_back_no_task_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an announcement of R0 that failed: the report behind it released the task."""
    two = Two()
    two.revoked(R1)
    conductor, written = two.a.conductor, two.a.states.write_leaving
    two.a.states.leave(conductor._offsets([R0]))
    two.a.coordinator.report(conductor._ticket, -1, 0)

    def both(*given: Any) -> Any:
        while len(cuts := written(*given)) < 2:
            pass
        return cuts

    monkeypatch.setattr(two.a.states, "write_leaving", both)
    conductor._write_leaving(lambda: False)
    record = two.a.coordinator.record()
    assert (set(record.handed), dict(record.leaving)) == ({task(R1)}, {})
    assert not two.a.states.leaving


@pytest.mark.usefixtures("blocks")
@pytest.mark.proves("CR-93")
@pytest.mark.parametrize("moving", [(R1,), (R0, R1)], ids=["one", "both"])
def test_a_store_that_fails_at_any_call_of_a_move_costs_no_record(moving: tuple[TopicPartition, ...]) -> None:
    for calls in range(1, 300):
        store = FailingStore()
        two = Two(store)
        two.revoked(*moving)
        two.given(two.a, *two.a.consumer.assignment)
        two.given(two.b, *moving)
        store.calls_left = calls
        two.until_moved()
        two.turn()
        for partition in moving:
            assert two.keys(two.b, partition.partition) == list(range(KEYS))
        assert [one.member.metrics["resets_total"] for one in (two.a, two.b)] == [0, 0]
        two.b.checkpoint(two.a)
        if store.calls_left > 0:
            break
    assert calls > 2 * KEYS


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("turns", [0, 3, 8, 20, 26])
def test_a_task_that_moves_on_before_it_has_arrived_arrives_at_its_third_owner(turns: int) -> None:
    two = Two()
    c = Hand(two.a.coordinator.store, "c", hand_over=True)  # type: ignore[arg-type]
    c.assigned()
    two.moves()
    for _ in range(turns):
        two.turn()
    two.b.conductor.on_revoked(Revoked(frozenset({R1}), frozenset({R1}), 6, CAUSE))
    two.b.consumer.assignment = frozenset()
    assert two.b.consumer.held == set()
    two.given(two.b, generation=7)
    two.given(c, R1, generation=7)
    for _ in range(200):
        two.turn()
        c.now = two.a.now
        c.turn()
        if not c.consumer.held:
            break
    assert two.keys(c, 1) == list(range(KEYS))
    assert c.consumer.sought[R1][0] == KEYS


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("turns", [0, 3, 8])
def test_a_task_that_stays_over_a_rebalance_goes_on_arriving(turns: int) -> None:
    two = Two()
    two.a.checkpoint(two.b)
    two.a.reads(R1, KEYS)
    two.moves()
    for _ in range(turns):
        two.turn()
    assert two.b.consumer.held == {R1}
    for one, partition in ((two.a, R0), (two.b, R1)):
        two.given(one, partition, generation=7)
    assert two.b.member.offsets.unplaced == {R1}
    two.until_moved()
    assert two.keys(two.b, 1) == list(range(KEYS + 1))
    assert two.b.consumer.sought[R1][0] == KEYS + 1
    two.a.checkpoint(two.b)
    assert two.b.member.metrics["resets_total"] == 0


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("turns", [0, 5, 11])
def test_a_task_that_comes_back_while_it_leaves_has_its_state(turns: int) -> None:
    two = Two()
    two.revoked(R1)
    two.given(two.a, R0)
    for _ in range(turns):
        two.turn()
    two.given(two.a, R0, R1, generation=7)
    for _ in range(40):
        two.turn()
    assert two.a.consumer.held == set()
    assert two.keys(two.a, 1) == list(range(KEYS))
    two.a.reads(R1, KEYS)
    assert two.keys(two.a, 1) == list(range(KEYS + 1))
    assert two.a.member.metrics["resets_total"] == 0


@pytest.mark.usefixtures("blocks")
def test_a_task_that_leaves_before_it_has_arrived_and_whose_state_is_gone_costs_a_reset() -> None:
    two = arriving()
    with two.b.coordinator.store.transaction() as books:
        for name in books.names("state", "g"):
            books.delete(Key("state", "g", name))
    two.b.conductor.on_revoked(Revoked(frozenset({R1}), frozenset({R1}), 6, CAUSE))
    assert two.b.member.state is RegionState.CR_RESET_PENDING


def arriving() -> Two:
    """R1 is the second member's, which has not read its state yet."""
    two = Two()
    two.moves()
    while two.a.states.leaving:
        two.turn()
    two.turn()
    assert two.b.states.arriving
    return two


@pytest.mark.usefixtures("blocks")
@pytest.mark.proves("CR-93")
def test_a_task_that_leaves_while_a_reset_waits_for_its_store_goes_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    two = arriving()

    def fails(*_given: object) -> TaskStarts:
        raise CoordinatorUnavailable("locked")

    with monkeypatch.context() as store:
        store.setattr(RegionCoordinator, "go_back", fails)
        two.resets()
        two.b.until(lambda: two.b.member.state is RegionState.CR_RESET_PENDING and not two.b.consumer.held)
        two.b.conductor.on_revoked(Revoked(frozenset({R1}), frozenset({R1}), 6, CAUSE))
    two.b.consumer.assignment = frozenset()
    two.given(two.b, generation=7)
    two.b.until(lambda: two.b.member.state is RegionState.RESET_COMPLETE)
    assert not two.b.states.arriving


@pytest.mark.usefixtures("blocks")
@pytest.mark.proves("CR-74", "B-39", "I19")
def test_a_topic_that_is_created_again_while_a_state_arrives_is_not_read_on() -> None:
    two = arriving()
    sought = dict(two.b.consumer.sought)
    two.b.consumer.ids["t"] = UUID(int=2)
    with pytest.raises(TopicRecreatedError, match="created again"):
        two.b.turn(10 * KEYS)
    assert two.b.consumer.sought == sought


@pytest.mark.usefixtures("blocks")
def test_a_member_that_stops_hands_over_its_leaving_tasks_first() -> None:
    two = Two()
    two.revoked(R1)
    two.a.conductor.stop()
    two.given(two.b, R1)
    two.until_moved()
    assert two.keys(two.b, 1) == list(range(KEYS))
    assert two.b.consumer.sought[R1][0] == KEYS


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("turns", [0, 6, 16])
def test_a_reset_meanwhile_takes_all_tasks_to_the_newest_checkpoint(turns: int) -> None:
    two = Two()
    two.a.checkpoint(two.b)
    two.a.reads(R1, KEYS)
    two.moves()
    for _ in range(turns):
        two.turn()
    two.resets()
    for one in (two.a, two.b):
        one.until(lambda one=one: one.member.state is RegionState.RESET_COMPLETE)  # type: ignore[misc]
        assert (one.consumer.held, len(one.states.leaving), len(one.states.arriving)) == (set(), 0, 0)
    for _ in range(10):
        two.turn()
    assert (two.keys(two.a, 0), two.keys(two.b, 1)) == (list(range(KEYS)), list(range(KEYS)))
    assert two.b.consumer.sought[R1][0] == KEYS
    assert {one.member.state for one in (two.a, two.b)} <= {RegionState.RESET_COMPLETE, RegionState.RECORDS_FETCHED}


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("turns", [0, 2, 5])
def test_a_task_that_is_lost_before_it_has_arrived_is_dropped(turns: int) -> None:
    two = Two()
    two.revoked(R1)
    while two.a.states.leaving:
        two.turn()
    two.given(two.a, R0)
    two.given(two.b, R1)
    for _ in range(turns):
        two.turn()
    two.b.lost()
    assert (len(two.b.states.arriving), two.b.consumer.held, two.b.state) == (0, set(), {})
    two.b.turn(5)
    assert two.b.member.state is RegionState.RESET_COMPLETE


@pytest.mark.usefixtures("blocks")
def test_an_arriving_state_of_a_newer_version_is_refused() -> None:
    two = Two()
    two.a.states.version = 2
    two.revoked(R1)
    while two.a.states.leaving:
        two.turn()
    two.given(two.b, R1)
    with pytest.raises(StateVersionError, match="another version"):
        two.b.turn()


def test_the_first_part_of_a_cut_is_short_however_long_ago_the_last_one_was(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Hand(MemoryStore())
    one.assigned(R0, R1)
    write, parts_s = one.states.write, list[float]()

    def written(enough: Callable[[], bool]) -> bool:
        begun_at = one.now
        while not enough():
            one.now += 0.001
        parts_s.append(one.now - begun_at)
        return len(parts_s) % 3 == 0 and write(lambda: False)

    monkeypatch.setattr(one.states, "write", written)
    for number in range(2):
        one.reads(R0, number)
        one.checkpoint()
        one.now += 10.0
    assert len(parts_s) == 6
    assert max(parts_s) < 2 * WRITE_S


def test_a_partition_that_joins_a_task_starts_without_the_state_that_is_here() -> None:
    one, added = Hand(MemoryStore(), hand_over=True), TopicPartition("u", 0)
    one.consumer.ids["u"] = UUID(int=2)
    one.consumer.epochs[added] = 0
    one.assigned(R0, R1)
    one.reads(R0, 0, 1)
    event = Assigned(frozenset({added}), frozenset({R0, R1, added}), 6, CAUSE)
    starts = one.conductor.on_assigned(event)
    assert starts is not None
    assert starts.keys() == {added}
    assert one.state == {"0": [0, 1]}
    one.consumer.assignment = event.assignment
    one.reads(added, 0)
    assert one.state == {"0": [0, 1, 0]}
