"""The ledger: overlapping slices are distinguished, it is append-only, safe for several writers, and reports gaps."""

import multiprocessing
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.cli.demo.ledger import Ledger, LedgerBroken, LedgerSlice, check_tiling
from kohort.common import TopicPartition

PLACE = TopicPartition("flights", 3)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "ledger.sqlite", create=True)
    yield made
    made.close()


def test_a_slice_that_straddles_the_mark_is_cut_there(ledger: Ledger) -> None:
    ledger.append("ada", 1, PLACE, 0, 100)
    ledger.append("ben", 2, PLACE, 60, 150)
    assert [(s.start, s.stop, s.records, s.reread) for s in ledger.slices()] == [
        (0, 100, 100, False),
        (60, 100, 40, True),
        (100, 150, 50, False),
    ]
    assert ledger.records() == (150, 40)
    assert ledger.marks() == {PLACE: 150}
    assert ledger.read_by_member() == {"ada": 100, "ben": 90}


def test_a_slice_read_before_counts_as_a_second_reading_only(ledger: Ledger) -> None:
    ledger.append("ada", 1, PLACE, 0, 100)
    ledger.append("ben", 2, PLACE, 20, 100)
    assert ledger.records() == (100, 80)


def test_skipped_records_are_refused(ledger: Ledger) -> None:
    ledger.append("ada", 1, PLACE, 0, 100)
    with pytest.raises(LedgerBroken, match=r"skipped .*mark=100, got=101"):
        ledger.append("ada", 1, PLACE, 101, 110)
    assert ledger.records() == (100, 0)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), max_size=12))
def test_slices_tile_however_readings_overlap(steps: list[tuple[int, int]]) -> None:
    ledger = Ledger(Path(":memory:"), create=True)
    mark = 0
    for back, length in steps:
        start = max(mark - back, 0)
        ledger.append("ada", 1, PLACE, start, start + length)
        mark = max(mark, start + length)
    assert check_tiling(ledger.slices()) == ({PLACE: (0, mark)} if steps else {})
    first, again = ledger.records()
    assert (first, first + again) == (mark, sum(length for _, length in steps))
    ledger.close()


def test_the_tables_can_only_grow(ledger: Ledger) -> None:
    ledger.append("ada", 1, PLACE, 0, 3)
    ledger.note("ada", "left")
    raw = sqlite3.connect(ledger.path)
    for table in ("slices", "happenings"):
        for verb in (f"DELETE FROM {table}", f"UPDATE {table} SET rowid = rowid"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                raw.execute(verb)
    raw.close()


def _write(path: str, partition: int) -> None:
    ledger = Ledger(Path(path))
    for start in range(0, 1000, 50):
        ledger.append(f"member-{partition}", 1, TopicPartition("flights", partition), start, start + 50)
    ledger.close()


def test_processes_write_side_by_side(ledger: Ledger) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(str(ledger.path), partition)) for partition in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert ledger.marks() == {TopicPartition("flights", partition): 1000 for partition in range(3)}
    assert ledger.records() == (3000, 0)


def test_whoever_writes_late_is_marked_as_reading_again(ledger: Ledger) -> None:
    ledger.append("ada", 1, PLACE, 0, 100)
    ledger.append("ben", 2, PLACE, 80, 120)
    ledger.append("ada", 1, PLACE, 100, 150)  # what it had handled before it was told to go back
    assert [(s.member, s.start, s.stop, s.reread) for s in ledger.slices()][1:] == [
        ("ben", 80, 100, True),
        ("ben", 100, 120, False),
        ("ada", 100, 120, True),
        ("ada", 120, 150, False),
    ]
    assert check_tiling(ledger.slices()) == {PLACE: (0, 150)}


@pytest.mark.parametrize(
    "second",
    [(90, 120, False), (110, 120, False), (90, 110, True), (0, 1000, True)],
    ids=["overlap", "gap", "a second reading past the mark", "a second reading of nothing"],
)
def test_slices_that_do_not_tile_are_named(second: tuple[int, int, bool]) -> None:
    start, stop, reread = second
    good = LedgerSlice(1, 0, "ada", 1, "flights", 0, 0, 100, False)
    with pytest.raises(LedgerBroken, match=r"slice 2 .*topic=flights, partition=0, member=ben"):
        check_tiling([good, LedgerSlice(2, 0, "ben", 2, "flights", 0, start, stop, reread)])
    assert check_tiling([good]) == {TopicPartition("flights", 0): (0, 100)}


def test_happenings_come_back_in_order_of_time(ledger: Ledger) -> None:
    ledger.note("ben", "killed", at_ms=2000, cause="SIGKILL")
    ledger.note("ben", "assigned", generation=4, partitions=[5, 2], at_ms=1000)
    told = ledger.happenings()
    assert [(h.kind, h.generation, h.partitions, h.cause) for h in told] == [
        ("assigned", 4, (2, 5), ""),
        ("killed", -1, (), "SIGKILL"),
    ]
