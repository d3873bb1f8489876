"""Partitions that change hands inside an epoch: the rules, the seeded world, faults that it must find, real groups."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kohort import ConsistentRegion, TopicPartition
from kohort.consistent_region import DictState, Periodic, dict_state, region_member
from kohort.consistent_region import events as ev
from kohort.consistent_region import hand_over as handing
from kohort.consistent_region.checkpoint_barrier import CheckpointTicket
from kohort.consistent_region.coordinator import RegionCoordinator, TaskStarts
from kohort.consistent_region.effects import unpacked
from kohort.consistent_region.errors import ResetFailedError
from kohort.consistent_region.manifest import StateReference
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.region import consumer_settings
from kohort.consistent_region.settings import RegionSettings
from kohort.consistent_region.states import RegionPhase, RegionState
from kohort.consistent_region.store import MemoryStore, SqliteStore
from kohort.consistent_region.task_states import TaskStates
from kohort.coordinator_client.hooks import Revoked
from kohort.testing.simulation import world
from kohort.testing.simulation.kafka import Violation
from tests.consistent_region.region_hand import CAUSE, HalfStore, Hand, Listed
from tests.consistent_region.region_rig import P0 as R0
from tests.consistent_region.region_rig import P1 as R1
from tests.consistent_region.region_rig import Rig, polled, recs
from tests.consistent_region.task_calls import cuts, offsets, states, task, tasks
from tests.support.broker_selection import SelectedBroker

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))
SEEDS, CHUNKS = 30, 3


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


# --- the rules


class Pair:
    """Two members of a region of three partitions, of which the first has all."""

    def __init__(self) -> None:
        self.region = RegionCoordinator(MemoryStore(), "r", "g", clock=lambda: 100.0)
        self.a = self.region.register("a").ticket
        self.b = self.region.register("b").ticket
        self.region.put_initial(self.a, dict.fromkeys((P0, P1, P2), RegionPosition(0)))
        self.taken = self.region.take(self.a, 0, 1, 3, tasks(P0, P1, P2))

    def checkpoint(self, generation: int) -> int:
        barrier = self.region.begin_checkpoint(self.a, self.region.look().epoch).barrier
        assert barrier is not None
        for ticket, offset in ((self.a, 7), (self.b, 9)):
            held = self.region.record().held
            mine = [one for one in (P0, P1, P2) if held.get(task(one)) == ticket.member]
            at = dict.fromkeys(mine, RegionPosition(offset))
            self.region.contribute(ticket, barrier, cuts(at, ticket.member.encode()))
        assert self.region.look().newest == barrier.sequence
        assert barrier.generation == generation
        return barrier.sequence

    def handed(self, *, base: int | None = None, epoch: int = 0) -> bool:
        """P2 from a, which has read up to 5."""
        return self.region.hand_over(self.a, epoch, base, cuts({P2: RegionPosition(5)}, b"handed"), left=2)[1]

    def move(self) -> TaskStarts:
        """P2 from a to b."""
        assert self.handed()
        self.region.take(self.a, 0, 2, 2, {})
        return self.region.take(self.b, 0, 2, 1, tasks(P2))


def test_what_is_handed_over_is_read_on_from_there_and_the_next_checkpoint_has_both() -> None:
    pair = Pair()
    assert states(pair.taken) == {0: None, 1: None, 2: None}
    taken = pair.move()
    assert (offsets(taken), states(taken), taken.view.epoch) == ({P2: 5}, {2: b"handed"}, 0)
    assert taken.starts[task(P2)].sequence is None  # its effects are in no checkpoint yet
    pair.checkpoint(2)
    record = pair.region.record()
    assert (record.handed, record.epoch) == ({}, 0)
    assert {one.number: name for one, name in record.held.items()} == {0: "a", 1: "a", 2: "b"}


def test_a_member_without_a_partition_has_no_task() -> None:
    pair = Pair()
    pair.move()
    pair.region.take(pair.b, 0, 3, 0, {})
    assert {one.number: name for one, name in pair.region.record().held.items()} == {0: "a", 1: "a"}


def test_without_an_owner_of_it_no_checkpoint_begins() -> None:
    pair = Pair()
    assert pair.handed()
    pair.region.take(pair.a, 0, 2, 2, {})
    pair.region.take(pair.b, 0, 2, 0, {})
    assert pair.region.begin_checkpoint(pair.a, 0).barrier is None


def test_what_its_holder_lost_starts_from_the_newest_checkpoint() -> None:
    pair = Pair()
    pair.region.take(pair.b, 0, 1, 0, {})
    sequence = pair.checkpoint(1)
    lost = pair.region.take(pair.b, 0, 2, 1, tasks(P0))
    assert (states(lost), offsets(lost), lost.starts[task(P0)].sequence) == ({0: b"a"}, {P0: 7}, sequence)
    assert pair.handed(base=sequence)
    assert states(pair.region.take(pair.b, 0, 2, 2, tasks(P2))) == {2: b"handed"}
    c = pair.region.register("c").ticket
    pair.region.go_back(c, {})
    assert states(pair.region.take(c, 0, 3, 1, tasks(P2))) == {2: b"a"}  # it was taken already


def test_a_new_process_takes_nothing_that_was_handed_over_before_it_is_in_the_epoch() -> None:
    pair = Pair()
    pair.region.take(pair.b, 0, 1, 0, {})
    assert pair.handed(base=pair.checkpoint(1))
    c = pair.region.register("c").ticket
    assert pair.region.take(c, 0, 2, 1, tasks(P2)).starts == {}
    pair.region.go_back(c, {})
    assert states(pair.region.take(c, 0, 2, 1, tasks(P2))) == {2: b"handed"}


@pytest.mark.proves("I8")
def test_no_member_hands_over_what_is_not_its_own_nor_in_an_epoch_that_is_over() -> None:
    pair = Pair()
    assert not pair.region.hand_over(pair.b, 0, None, cuts({P2: RegionPosition(5)}, b"b"), left=0)[1]
    pair.region.request_reset(pair.a, 0, "why", forced=True, generation=None)
    assert not pair.handed()
    assert pair.region.record().epoch == 1
    assert pair.region.take(pair.b, 0, 2, 1, tasks(P2)).starts == {}


def test_a_cut_from_before_a_checkpoint_is_not_handed_over() -> None:
    pair = Pair()
    pair.region.take(pair.b, 0, 1, 0, {})
    sequence = pair.checkpoint(1)
    assert not pair.handed(base=None)  # it would have the effects of that checkpoint once more
    assert pair.handed(base=sequence)


@pytest.mark.parametrize("whose", ["a", "b"])
@pytest.mark.parametrize("how", ["starts again", "leaves", "goes back"])
def test_a_member_that_took_part_and_forgets_takes_nothing_from_others(whose: str, how: str) -> None:
    pair = Pair()
    pair.move()
    ticket: CheckpointTicket = getattr(pair, whose)
    mine, others = ((P0, P1), (P2,)) if whose == "a" else ((P2,), (P0, P1))
    match how:
        case "starts again":
            pair.region.register(whose)
        case "leaves":
            pair.region.deregister(ticket)
        case _:
            assert states(pair.region.go_back(ticket, tasks(*mine))) == {one.partition: None for one in mine}
    record = pair.region.record()
    assert record.epoch == 0
    assert {task(one) for one in others} <= record.held.keys()


def test_a_member_that_goes_back_drops_what_was_handed_to_it() -> None:
    pair = Pair()
    assert pair.handed()
    assert states(pair.region.go_back(pair.b, tasks(P2))) == {2: None}
    record = pair.region.record()
    assert (record.epoch, record.held[task(P2)], record.handed) == (0, "b", {})


def test_the_state_of_a_task_between_two_owners_is_kept_until_it_is_taken() -> None:
    pair = Pair()
    pair.region.take(pair.b, 0, 1, 0, {})
    pair.region.kept_checkpoints = 1
    assert pair.handed(base=pair.checkpoint(1))
    assert pair.region.retire(99) == ()
    pair.region.take(pair.a, 0, 2, 2, {})
    assert states(pair.region.take(pair.b, 0, 2, 1, tasks(P2))) == {2: b"handed"}


def test_the_state_of_a_task_between_two_owners_outlives_a_retirement_while_no_member_runs() -> None:
    pair = Pair()
    pair.region.take(pair.b, 0, 1, 0, {})
    first, second = pair.checkpoint(1), pair.checkpoint(1)
    assert pair.handed(base=second)
    for ticket in (pair.a, pair.b):
        pair.region.deregister(ticket)
    assert pair.region.retire(first) == (first,)
    c = pair.region.register("c").ticket
    pair.region.go_back(c, {})
    assert states(pair.region.take(c, 0, 2, 1, tasks(P2))) == {2: b"handed"}


def test_a_state_that_was_taken_is_kept_until_a_checkpoint_has_it() -> None:
    pair = Pair()
    pair.region.take(pair.b, 0, 1, 0, {})
    first, second = pair.checkpoint(1), pair.checkpoint(1)
    assert pair.handed(base=second)
    pair.region.take(pair.a, 0, 2, 2, {})
    cut = pair.region.take(pair.b, 0, 2, 1, tasks(P2)).starts[task(P2)].cut
    assert cut is not None
    handed = StateReference.of(cut.state)
    assert pair.region.retire(first) == (first,)
    assert pair.region.state(handed) == cut.state
    third = pair.checkpoint(2)
    for ticket in (pair.a, pair.b):
        pair.region.deregister(ticket)
    assert pair.region.retire(third) == (second,)
    with pytest.raises(ResetFailedError, match="gone"):
        pair.region.state(handed)


def test_a_member_that_hands_over_has_the_effects_of_a_complete_checkpoint_carried_out_first() -> None:
    """A checkpoint may complete without its notice, just before a partition moves."""
    store = MemoryStore()
    a, b = (Hand(store, name, hand_over=True) for name in "ab")
    a.assigned(R0, R1)
    b.assigned()
    a.reads(R0, 0, 1)
    a.member.make_consistent(a.now)
    a.until(lambda: a.member.phase is RegionPhase.AWAITING)
    b.now = a.now
    b.until(lambda: b.member.base == 1)
    completed = a.member.metrics["checkpoints_total"]
    a.conductor.on_revoked(Revoked(frozenset({R0}), frozenset({R0, R1}), 5, CAUSE))
    assert (completed, a.member.metrics["checkpoints_total"]) == (0, 1)
    assert a.coordinator.record().handed.keys() == {task(R0)}


@pytest.mark.proves("I16")
def test_effects_since_a_cut_are_handed_over_if_its_checkpoint_completes_meanwhile() -> None:
    """The first attempt to hand over has a cut with all effects, and is refused. Only some are carried out by then."""
    store, rows = MemoryStore(), Listed()
    a, b = (Hand(store, name, {"out": rows if name == "a" else Listed()}, hand_over=True) for name in "ab")
    a.conductor.handler = lambda record, _state: rows.collected.append(str(record.offset))
    a.assigned(R0, R1)
    b.assigned()
    a.reads(R0, 0)
    b.now = a.now
    b.member.make_consistent(b.now)
    b.turn()
    a.until(lambda: a.member.phase is RegionPhase.AWAITING)
    a.reads(R0, 1)
    taken = a.states.leave

    def leave(offsets: Any) -> Any:
        found = taken(offsets)
        b.now = a.now
        b.until(lambda: b.member.base == 1)
        return found

    a.states.leave = leave  # type: ignore[method-assign]
    a.conductor.on_revoked(Revoked(frozenset({R0}), frozenset({R0, R1}), 5, CAUSE))
    assert rows.rows == [b"0"]
    handed = a.coordinator.record().handed[task(R0)]
    assert unpacked(a.coordinator.load(handed).state)[1] == {"out": [b"1"]}


def test_a_task_that_could_not_be_handed_over_costs_no_other_task() -> None:
    store = HalfStore()
    a, b = (Hand(store, name, hand_over=True) for name in "ab")
    a.assigned(R0, R1)
    b.assigned()
    a.reads(R0, 0, 1)
    a.reads(R1, 0)
    a.checkpoint(b)
    a.reads(R0, 2)
    a.reads(R1, 1)
    store.unreadable = True
    a.conductor.on_revoked(Revoked(frozenset({R0}), frozenset({R0, R1}), 5, CAUSE))
    store.unreadable = False
    assert a.state == {"1": [0, 1]}
    b.now = a.now
    b.assigned(R0, generation=6)
    assert b.state == {"0": [0, 1]}
    assert (a.member.state, a.member.metrics["resets_total"]) == (RegionState.RECORDS_FETCHED, 0)
    assert a.coordinator.record().epoch == 0


def test_a_member_that_has_stopped_renews_no_lease_when_its_consumer_closes() -> None:
    hand = Hand(MemoryStore(), hand_over=True)
    hand.assigned(P0, P1)
    hand.turn(3)
    hand.conductor.stop()
    hand.revoked()
    assert not hand.coordinator.record().members["a"].here(hand.now, 30.0)
    hand.coordinator.accept_store()  # as operators do once all members are stopped


def test_what_stays_is_read_on_while_others_move() -> None:
    """A cooperative consumer goes on giving out what it keeps between letting go and the next assignment."""
    rig = Rig(RegionSettings(hand_over=True)).reading(*recs(R0, 0, 1), *recs(R1, 0, 1), starts={R0: 0, R1: 0})
    rig.step(ev.HandedOver(frozenset({R1}), 5, rig.view))
    rig.step(polled(*recs(R0, 2, 3), *recs(R1, 2)))
    assert [(one.partition, one.offset) for one in rig.handle(9)] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert rig.member.offsets.next_of(R0) == RegionPosition(4)


def test_only_cooperative_assignors_hand_over() -> None:
    def assignors(*names: str) -> list[Any]:
        given = {"assignors": list(names)}
        made = consumer_settings(given, topics=1, drain_timeout_s=9.0, reset_timeout_s=9.0, hand_over=True)
        found: list[Any] = made["assignors"]
        return found

    assert assignors("range", "cooperative-sticky") == ["cooperative-sticky"]
    assert assignors("range") == ["cooperative-sticky"]


# --- the seeded world


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.proves("I1", "I2", "I3", "I5", "I6", "I8", "I12")
def test_no_history_of_hand_overs_violates_an_invariant(chunk: int) -> None:
    size = SEEDS // CHUNKS
    worlds = [world.run(seed, hand_over=True) for seed in range(chunk * size, (chunk + 1) * size)]
    assert sum(one.events["partitions revoked alone"] for one in worlds) > 2 * size
    assert min(one.checkpoints for one in worlds) >= 3


Change = tuple[Any, str, Callable[[Any], Any]]


def _shifted(original: Any) -> Any:
    def hand_over(record: Any, ticket: Any, epoch: int, base: Any, given: Any, leaving: Any) -> Any:
        shifted = [
            replace(one, offsets={place: at._replace(offset=at.offset + 1) for place, at in one.offsets.items()})
            for one in given
        ]
        return original(record, ticket, epoch, base, shifted, leaving)

    return hand_over


def _positions_of_the_checkpoint(original: Any) -> Any:
    def started(self: Any, starts: Any, lineage: str, load: Any) -> None:
        original(self, {one: start._replace(cut=None) for one, start in starts.items()}, lineage, load)

    return started


def _dropped_between(original: Any) -> Any:
    def polled(member: Any, event: ev.RecordsPolled) -> None:
        if member.generation >= 0:
            original[ev.RecordsPolled](member, event)

    return {**original, ev.RecordsPolled: polled}


def _effects_stay_behind(original: Any) -> Any:
    def leave(self: Any, given: Any) -> Any:
        found = original(self, given)
        return {one: at._replace(state=unpacked(at.state)[0]) for one, at in found.items()}

    return leave


FAULTS: dict[str, Change] = {
    "a partition is handed over one record further": (handing, "hand_over", _shifted),
    "a task that moves begins with an empty state": (TaskStates, "start", _positions_of_the_checkpoint),
    "what is read between the hooks is dropped": (region_member, "_HANDLERS", _dropped_between),
    "effects that were collected are not handed over": (TaskStates, "leave", _effects_stay_behind),
}


@contextmanager
def at_fault(change: Change) -> Iterator[None]:
    where, name, make = change
    original = getattr(where, name)
    setattr(where, name, make(original))
    try:
        yield
    finally:
        setattr(where, name, original)


def found_by(change: Change, seeds: int) -> int | None:
    """The first seed that finds it."""
    with at_fault(change):
        for seed in range(seeds):
            try:
                world.run(seed, hand_over=True)
            except Violation:
                return seed
    return None


@pytest.mark.parametrize("name", FAULTS)
def test_a_deliberate_fault_of_a_hand_over_is_found(name: str) -> None:
    assert found_by(FAULTS[name], seeds=80) is not None


# --- a real group


@pytest.mark.broker
@pytest.mark.parametrize("in_blocks", [False, True])
def test_members_come_and_go_without_a_reset_and_every_record_counts_once(
    broker: SelectedBroker,
    make_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_blocks: bool,
) -> None:
    if in_blocks:  # each state has some twenty, with the keys of all records
        for name, value in {"INLINE_KEYS": 0, "CHUNK_KEYS": 100, "BLOCK_BYTES": 4_000}.items():
            monkeypatch.setattr(dict_state, name, value)
    topic, url = make_topic(6), f"sqlite:///{tmp_path}/region.db"
    made: dict[str, ConsistentRegion] = {}
    threads: dict[str, threading.Thread] = {}
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

    def count(record: Any, state: DictState) -> None:
        place = str(record.partition)
        state[place] = state.get(place, 0) + 1
        if in_blocks:
            state[f"{place}-{record.offset}"] = record.offset

    def start(name: str) -> ConsistentRegion:
        made[name] = ConsistentRegion(
            "moving",
            group=f"moving-{topic}",
            topics=[topic],
            bootstrap=broker.bootstrap,
            member=name,
            coordinator=url,
            trigger=Periodic(0.2),
            state=DictState,
            handler=count,
            start_position="beginning",
            hand_over=True,
            heartbeat_interval_ms=200,
            session_timeout_ms=6_000,
        )
        threads[name] = threading.Thread(target=made[name].run)
        threads[name].start()
        return made[name]

    def write(number: int) -> None:
        for one in range(number):
            producer.produce(topic, value=b"x", partition=one % 6)
        assert producer.flush(120) == 0

    region = RegionCoordinator(SqliteStore(tmp_path / "region.db"), "moving", f"moving-{topic}")

    def counted() -> int:
        newest = region.look().newest if region.members() else None
        return 0 if newest is None else sum(at.offset for at in region.manifest(newest).offsets.values())

    def until(reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not reached():
            assert time.monotonic() < deadline, [one.timeline()[-5:] for one in made.values()]
            assert all(thread.is_alive() for name, thread in threads.items() if name in made)
            time.sleep(0.02)

    try:
        start("one")
        write(6_000)
        until(lambda: counted() == 6_000)
        two = start("two")
        write(6_000)
        until(lambda: two.metrics()["partitions_assigned"] == 3)
        write(6_000)
        until(lambda: counted() == 18_000)
        assert made["one"].metrics()["partitions_handed_over_total"] == 3
        assert {name: one.metrics()["resets_total"] for name, one in made.items()}["one"] == 0
        assert region.look().epoch == 0
        made.pop("two")
        two.stop()
        threads["two"].join(120)
        write(6_000)
        until(lambda: made["one"].metrics()["partitions_assigned"] == 6)
        start("two")
        until(lambda: counted() == 24_000)
        totals: dict[str, int] = {}
        for one in region.manifest(region.look().newest or 0).tasks:
            state, cut = DictState(), region.load(one)
            if in_blocks:
                assert len(cut.blocks) > 10
                deque(state.restore_blocks(cut.blocks), maxlen=0)
            else:
                state.restore(cut.state, {})
            totals |= state
        assert {name: total for name, total in totals.items() if "-" not in name} == dict.fromkeys("012345", 4_000)
        assert len(totals) == 6 + (24_000 if in_blocks else 0)
    finally:
        for member in made.values():
            member.stop()
        for thread in threads.values():
            thread.join(120)
        region.store.close()
