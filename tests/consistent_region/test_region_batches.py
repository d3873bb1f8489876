"""Handlers of batches, and records under one permit."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kohort import ConsistentRegion, KohortError, Producer, RecordColumns
from kohort.consistent_region import DictState, OperatorDriven, Periodic
from kohort.consistent_region import events as ev
from kohort.consistent_region.errors import ConfigurationError, RegionError
from kohort.consistent_region.settings import RegionSettings
from kohort.consistent_region.states import RegionState
from kohort.consistent_region.store import MemoryStore
from kohort.network.errors import OperationTimeout
from kohort.testing import FakeBroker, Simulation
from kohort.testing.simulation import SimRecord
from kohort.testing.simulation.kafka import SimColumns
from tests.consistent_region.region_hand import P0, P1, Hand
from tests.consistent_region.region_rig import P0 as R0
from tests.consistent_region.region_rig import Rig, polled, recs
from tests.consistent_region.running_region import running
from tests.support.unprintable_error import UnprintableError


def batched(most: int) -> tuple[Hand, list[list[int]]]:
    """A member with P0 and P1, and the offsets of each batch that its handler gets."""
    hand = Hand(MemoryStore(), batch_records=most)
    seen: list[list[int]] = []

    def handle(columns: Any, state: DictState) -> None:
        seen.append(columns.offsets)
        state["n"] = state.get("n", 0) + len(columns)

    hand.conductor.handler = handle
    hand.assigned(P0, P1)
    return hand, seen


@pytest.mark.proves("CR-89")
def test_a_batch_has_records_of_one_partition_up_to_the_limit() -> None:
    hand, seen = batched(3)
    hand.consumer.batches += [[SimRecord(*P0, at) for at in (0, 1, 2, 5, 6)], [SimRecord(*P1, 0)]]
    hand.turn(2)
    assert seen == [[0, 1, 2], [5, 6], [0]]
    assert hand.member.metrics["records_submitted_total"] == 6


@pytest.mark.proves("CR-89")
def test_a_batch_is_under_one_permit_and_its_offset_is_behind_it() -> None:
    rig = Rig().reading(*recs(R0, 0, 1, 5), starts={R0: 0})
    batch = rig.member.take(rig.now, 2)
    assert batch is not None
    assert [one.offset for one in batch] == [0, 1]
    assert rig.member.take(rig.now, 2) is None
    rig.member.submitted(batch, 2, rig.now)
    assert rig.offsets() == {R0: 5}  # behind the gap as well
    rest = rig.member.take(rig.now, 2)
    assert rest is not None
    rig.member.submitted(rest, 1, rig.now)
    assert rig.offsets() == {R0: 6}


@pytest.mark.proves("CR-89", "CR-38")
def test_records_under_a_permit_that_were_not_handled_come_first_again() -> None:
    for barrier_begun in (False, True):
        rig = Rig().reading(*recs(R0, 0, 1, 2, 3), starts={R0: 0})
        taken = rig.member.take(rig.now, 3)
        assert taken is not None
        if barrier_begun:
            rig.barrier()
        rig.member.submitted(taken, 1, rig.now)
        assert rig.offsets() == {R0: 1}
        if barrier_begun:
            rig.ready()
            rig.sees(barrier=None)
        assert rig.handle(9) == recs(R0, 1, 2, 3)


@pytest.mark.proves("CR-89")
def test_a_request_for_a_checkpoint_ends_a_permit_after_the_record_under_way() -> None:
    hand = Hand(MemoryStore())
    hand.assigned(P0, P1)
    seen = []

    def handle(record: Any, state: DictState) -> None:
        seen.append(record.offset)
        if record.offset == 1:
            hand.member.make_consistent(hand.now)

    hand.conductor.handler = handle
    hand.reads(P0, 0, 1, 2, 3)
    assert (seen, hand.member.queued) == ([0, 1], 2)
    hand.until(lambda: seen == [0, 1, 2, 3])
    assert hand.manifest_positions()[P0].offset == 2


def test_a_checkpoint_every_so_many_records_cuts_a_batch() -> None:
    rig = Rig(RegionSettings(trigger=OperatorDriven(2))).reading(*recs(R0, 0, 1, 2), starts={R0: 0})
    batch = rig.member.take(rig.now, 9)
    assert batch is not None
    assert len(batch) == 2


def test_a_batch_that_its_handler_refuses_ends_the_member_with_its_place() -> None:
    hand, _ = batched(9)

    def refuse(columns: Any, state: DictState) -> None:
        raise ValueError("no")

    hand.conductor.handler = refuse
    with pytest.raises(RegionError, match="the handler raised ValueError: no") as raised:
        hand.reads(P0, 3, 4)
    assert (raised.value.place["partition"], raised.value.place["offset"]) == (0, 3)
    assert hand.member.unhandled == hand.member.queued
    assert hand.member.offsets.next_of(P0).offset == 0  # type: ignore[union-attr]


async def awaited() -> None:
    """Nothing awaits it, so its records would be counted without effects."""


@pytest.mark.parametrize("batch_records", [None, 9])
def test_a_coroutine_that_a_handler_returns_ends_the_member(batch_records: int | None) -> None:
    hand = Hand(MemoryStore(), batch_records=batch_records)
    hand.conductor.handler = lambda _records, _state: awaited()
    hand.assigned(P0)
    with pytest.raises(
        RegionError, match="TypeError: handler is a plain function: a coroutine function is not"
    ) as raised:
        hand.reads(P0, 3, 4)
    assert (raised.value.place["partition"], raised.value.place["offset"]) == (0, 3)
    assert hand.member.offsets.next_of(P0).offset == 0  # type: ignore[union-attr]


def test_partitions_that_move_take_their_batches_along() -> None:
    rig = Rig(RegionSettings(hand_over=True)).reading(*recs(R0, 0, 1), starts={R0: 0})
    rig.step(polled(*recs(R0, 2, 3)))
    rig.step(ev.HandedOver(frozenset({R0}), 5, rig.view))
    assert rig.member.queued == 0


def test_the_limit_of_a_batch_is_checked() -> None:
    with pytest.raises(ConfigurationError, match="batch_records"):
        ConsistentRegion("r", group="g", bootstrap="h:1", topics=["t"], handler=print, batch_records=0)


def test_a_batch_of_a_simulated_log_knows_what_comes_behind_a_part_of_it() -> None:
    columns = SimColumns(P0, [SimRecord(*P0, at) for at in (0, 3, 4)], 9)
    assert (columns[:1].next_offset, columns[1:].next_offset, columns[:0].next_offset) == (3, 9, 0)
    assert (columns[1:].offsets, columns[1].offset, columns.keys[0]) == ([3, 4], 3, b"k0")
    assert (columns.values[0], columns.timestamps_ms) == (b"0-0", [0, 3, 4])


def count(columns: Any, state: DictState) -> None:
    for key, number in Counter(bytes(one).decode() for one in columns.keys).items():
        state[key] = state.get(key, 0) + number


def verify(states: Mapping[str, bytes], records: Sequence[SimRecord]) -> None:
    totals: Counter[str] = Counter()
    for one in states.values():
        totals.update(json.loads(one))
    assert totals == Counter(record.key.decode() for record in records)


@pytest.mark.proves("CR-89", "I1")
def test_batches_count_every_record_once_in_the_seeded_world() -> None:
    for seed in range(6):
        made = Simulation(seed, state=DictState, handler=count, verify=verify, batch_records=1 + seed % 5)
        assert made.run().checkpoints >= 3


@pytest.mark.proves("CR-89")
def test_a_region_on_a_broker_in_memory_hands_out_columns() -> None:
    seen: list[Any] = []
    with FakeBroker(topics={"t": 2}) as broker, Producer(broker.bootstrap) as producer:
        for number in range(100):
            producer.send("t", b"v", key=b"k%d" % (number % 3), partition=number % 2)
        producer.flush()

        def handle(columns: RecordColumns, state: DictState) -> None:
            seen.append(columns)
            count(columns, state)

        region = ConsistentRegion(
            "r",
            group="g",
            bootstrap=broker.bootstrap,
            topics=["t"],
            trigger=Periodic(0.1),
            handler=handle,
            start_position="beginning",
            batch_records=30,
        )

        def offsets() -> list[int]:
            there = region.coordinator.checkpoints()
            return [one.offset for one in region.coordinator.manifest(there[-1]).offsets.values()] if there else []

        with running(region) as thread:
            until = time.monotonic() + 20
            while thread.is_alive() and offsets() != [50, 50] and time.monotonic() < until:
                time.sleep(0.02)
            manifest = region.coordinator.manifest(region.coordinator.checkpoints()[-1])
            states = [json.loads(region.coordinator.state(one.state)) for one in manifest.tasks]
    assert sum(map(Counter, states), Counter()) == Counter(f"k{number % 3}" for number in range(100))
    assert {type(one) for one in seen} == {RecordColumns}
    assert max(map(len, seen)) <= 30


@pytest.mark.proves("CR-83")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UnprintableError(), "the handler raised UnprintableError"),
        (OperationTimeout("of a client of its own"), "of a client of its own"),
    ],
)
@pytest.mark.parametrize("batch", [None, 5])
def test_any_error_of_a_handler_ends_the_member_and_is_not_its_own_cause(
    batch: int | None, error: Exception, expected: str
) -> None:
    hand = Hand(MemoryStore(), batch_records=batch)

    def handle(_records: Any, _state: DictState) -> None:
        raise error

    hand.conductor.handler = handle
    hand.assigned(P0, P1)
    with pytest.raises(KohortError, match=expected) as raised:
        hand.reads(P0, 0, 1)
    assert raised.value.__cause__ is (None if raised.value is error else error)
    assert hand.member.state is RegionState.FAILED
    assert hand.member.unhandled == hand.member.queued
