"""Partitions that change hands inside an epoch: the rules, the seeded world, faults that it must find, real groups."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from kohort import ConsistentRegion, TopicPartition
from kohort.consistent_region import DictState, Periodic, coordinator_rules, region_member
from kohort.consistent_region import events as ev
from kohort.consistent_region import hand_over as handing
from kohort.consistent_region.checkpoint_barrier import CheckpointTicket
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.region import consumer_settings
from kohort.consistent_region.settings import RegionSettings
from kohort.consistent_region.store import MemoryStore, SqliteStore
from kohort.testing.simulation import world
from kohort.testing.simulation.kafka import Violation
from tests.consistent_region.region_rig import P0 as R0
from tests.consistent_region.region_rig import P1 as R1
from tests.consistent_region.region_rig import Rig, recs
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
        self.taken = self.region.take(self.a, 0, 1, [P0, P1, P2])

    def checkpoint(self, generation: int) -> None:
        barrier = self.region.begin_checkpoint(self.a, self.region.look().epoch).barrier
        assert barrier is not None
        offsets = {one: RegionPosition(7) for one, name in self.region.record().held.items() if name == "a"}
        self.region.contribute(self.a, barrier, offsets, b"a")
        offsets = {one: RegionPosition(9) for one, name in self.region.record().held.items() if name == "b"}
        self.region.contribute(self.b, barrier, offsets, b"b")
        assert self.region.look().newest == barrier.sequence
        assert barrier.generation == generation

    def move(self) -> handing.TakenOver:
        """P2 from a, who has read up to 5, to b."""
        _, handed = self.region.hand_over(self.a, 0, 2, {P2: RegionPosition(5)})
        assert handed
        self.region.take(self.a, 0, 2, [P0, P1])
        return self.region.take(self.b, 0, 2, [P2])


def test_what_is_handed_over_is_read_on_from_there_and_the_next_checkpoint_has_both() -> None:
    pair = Pair()
    assert pair.taken.starts == dict.fromkeys((P0, P1, P2), RegionPosition(0))
    taken = pair.move()
    assert (taken.starts, taken.missing, taken.view.epoch) == ({P2: RegionPosition(5)}, frozenset(), 0)
    assert pair.region.record().moved == ("a", "b")
    pair.checkpoint(2)
    record = pair.region.record()
    assert (record.moved, record.handed, record.epoch) == ((), {}, 0)
    assert record.held == {P0: "a", P1: "a", P2: "b"}


def test_while_nobody_has_it_no_checkpoint_begins() -> None:
    pair = Pair()
    pair.region.hand_over(pair.a, 0, 2, {P2: RegionPosition(5)})
    pair.region.take(pair.a, 0, 2, [P0, P1])
    pair.region.take(pair.b, 0, 2, [])
    assert pair.region.begin_checkpoint(pair.a, 0).barrier is None


def test_what_its_holder_lost_is_missing_and_so_is_what_was_handed_over_once_already() -> None:
    pair = Pair()
    assert pair.region.take(pair.b, 0, 2, [P0]).missing == {P0}
    pair.region.hand_over(pair.a, 0, 2, {P2: RegionPosition(5)})
    c = pair.region.register("c").ticket
    assert pair.region.take(pair.b, 0, 2, [P2]).missing == frozenset()
    assert pair.region.take(c, 0, 3, [P2]).missing == {P2}


@pytest.mark.proves("I8")
def test_nobody_hands_over_what_is_not_its_own_nor_in_an_epoch_that_is_over() -> None:
    pair = Pair()
    assert not pair.region.hand_over(pair.b, 0, 0, {P2: RegionPosition(5)})[1]
    pair.region.request_reset(pair.a, 0, "why", forced=True, generation=None)
    view, handed = pair.region.hand_over(pair.a, 0, 2, {P2: RegionPosition(5)})
    assert (view.epoch, handed) == (1, False)
    assert pair.region.take(pair.b, 0, 2, [P2]).starts == {}


@pytest.mark.parametrize("whose", ["a", "b"])
@pytest.mark.parametrize("how", ["starts again", "leaves", "is gone", "goes back in the same generation"])
def test_whoever_took_part_and_forgets_takes_all_back(whose: str, how: str) -> None:
    pair = Pair()
    pair.move()
    ticket: CheckpointTicket = getattr(pair, whose)
    other: CheckpointTicket = pair.b if whose == "a" else pair.a
    match how:
        case "starts again":
            pair.region.register(whose)
        case "leaves":
            pair.region.deregister(ticket)
        case "is gone":
            record = pair.region.record()
            gone = record.members[whose]._replace(lease_deadline=0.0)
            record = replace(record, members={**record.members, whose: gone})
            record = coordinator_rules.begin_checkpoint(record, other, 0, 100.0, 5.0, 5.0)
            assert (record.epoch, record.barrier, record.moved) == (1, None, ())
            return
        case _:
            record = replace(pair.region.record(), reset_generation=2)
            record = coordinator_rules.request_reset(record, ticket, 0, "lost", forced=True, generation=2, max_resets=5)
            assert record.epoch == 1
            return
    record = pair.region.record()
    assert (record.epoch, record.held, record.handed, record.moved) == (1, {}, {}, ())


def test_whoever_took_no_part_may_forget_alone() -> None:
    pair = Pair()
    pair.move()
    pair.checkpoint(2)
    pair.region.register("b")
    record = pair.region.record()
    assert (record.epoch, record.held) == (0, {P0: "a", P1: "a"})


def test_a_member_that_goes_back_with_what_others_read_further_takes_all_back() -> None:
    pair = Pair()
    pair.region.hand_over(pair.a, 0, 2, {P2: RegionPosition(5)})
    assert pair.region.go_back(pair.b, 2, 1, [P2]).view.epoch == 1
    assert pair.region.record().held == {P2: "b"}


def test_what_stays_is_read_on_while_others_move() -> None:
    """A cooperative consumer goes on giving out what it keeps between letting go and the next assignment."""
    rig = Rig(RegionSettings(hand_over=True)).reading(*recs(R0, 0, 1), *recs(R1, 0, 1), starts={R0: 0, R1: 0})
    rig.step(ev.HandedOver(frozenset({R1}), 5, rig.view))
    rig.step(ev.RecordsPolled([*recs(R0, 2, 3), *recs(R1, 2)]))
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
    assert sum(one.group.handed for one in worlds) > 2 * size
    assert min(one.checkpoints for one in worlds) >= 3


Change = tuple[Any, str, Callable[[Any], Any]]


def _shifted(original: Any) -> Any:
    def hand_over(record: Any, ticket: Any, epoch: int, positions: Any) -> Any:
        shifted = {one: at._replace(offset=at.offset + 1) for one, at in positions.items()}
        return original(record, ticket, epoch, shifted)

    return hand_over


def _never_moved(original: Any) -> Any:
    return lambda record, _member: record.moved


def _kept_handed(original: Any) -> Any:
    def take(record: Any, *rest: Any) -> Any:
        after, starts, missing = original(record, *rest)
        return replace(after, handed=record.handed), starts, missing

    return take


def _sought_at_the_checkpoint(original: Any) -> Any:
    return lambda record, *rest: original(replace(record, handed={}), *rest)


def _dropped_between(original: Any) -> Any:
    def polled(member: Any, event: ev.RecordsPolled) -> None:
        if member.generation >= 0:
            original[ev.RecordsPolled](member, event)

    return {**original, ev.RecordsPolled: polled}


def _memory_never_gone(_original: Any) -> Any:
    return lambda record, _member: record


FAULTS: dict[str, Change] = {
    "a partition is handed over one record further": (handing, "hand_over", _shifted),
    "nobody remembers who took part": (handing, "_with", _never_moved),
    "what was handed over may be taken twice": (handing, "take", _kept_handed),
    "what was handed over is read from the checkpoint": (handing, "take", _sought_at_the_checkpoint),
    "what is read between the hooks is dropped": (region_member, "_HANDLERS", _dropped_between),
    "whoever starts again forgets alone": (coordinator_rules, "_memory_gone", _memory_never_gone),
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
    assert found_by(FAULTS[name], seeds=300) is not None


# --- a real group


@pytest.mark.broker
def test_members_come_and_go_without_a_reset_and_every_record_counts_once(
    broker: SelectedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, url = make_topic(6), f"sqlite:///{tmp_path}/region.db"
    made: dict[str, ConsistentRegion] = {}
    threads: dict[str, threading.Thread] = {}
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

    def count(record: Any, state: DictState) -> None:
        place = str(record.partition)
        state[place] = state.get(place, 0) + 1

    def start(name: str) -> ConsistentRegion:
        made[name] = ConsistentRegion(
            "moving",
            group=f"moving-{topic}",
            topics=[topic],
            bootstrap=broker.bootstrap,
            member=name,
            coordinator=url,
            trigger=Periodic(0.2),
            state=DictState(),
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
        assert producer.flush(30) == 0

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
        for part in region.manifest(region.look().newest or 0).contributions:
            state = DictState()
            state.restore(region.state(part.state), {})
            for place, number in state.items():
                totals[place] = totals.get(place, 0) + number
        assert totals == {str(number): 4_000 for number in range(6)}
    finally:
        for one in made.values():
            one.stop()
        for thread in threads.values():
            thread.join(120)
        region.store.close()
