"""The ledger: safe for several writers. Its history: overlapping reads are cut, gaps are refused, spans and resets."""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.cli.demo import DemoFailed
from kohort.cli.demo.ledger import DemoEntry, GroupHistory, Ledger, TimelineSpan


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "flights.ledger")
    yield made
    made.close()


def read(member: str, start: int, stop: int) -> DemoEntry:
    return DemoEntry(member, "read", 1, (3,), start=start, stop=stop)


def history_of(*entries: DemoEntry) -> GroupHistory:
    history = GroupHistory({3: 1000})
    for entry in entries:
        history.add(entry)
    return history


def reported(history: GroupHistory) -> list[tuple[str, str, int, int]]:
    return [(one.member, one.kind, one.start, one.stop) for one in history.slices]


def test_a_read_that_straddles_the_mark_is_cut_there() -> None:
    history = history_of(read("ada", 0, 100), read("ben", 60, 150))
    assert reported(history) == [("ada", "read", 0, 100), ("ben", "reread", 60, 100), ("ben", "read", 100, 150)]
    assert (history.read, history.reread) == (150, 40)


def test_a_slice_read_before_counts_as_a_second_reading_only() -> None:
    history = history_of(read("ada", 0, 100), read("ben", 20, 100))
    assert (history.read, history.reread) == (100, 80)


@pytest.mark.parametrize("before", [(), (read("ada", 0, 100),)], ids=["at the start", "after others"])
def test_skipped_records_are_refused(before: tuple[DemoEntry, ...]) -> None:
    history = history_of(*before)
    with pytest.raises(DemoFailed, match=rf"skipped .*member=ben, partition=3, mark={history.read}, got=101"):
        history.add(read("ben", 101, 110))
    assert history.slices == history_of(*before).slices


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), max_size=12))
def test_slices_tile_however_reads_overlap(steps: list[tuple[int, int]]) -> None:
    history, mark = history_of(), 0
    for back, length in steps:
        start = max(mark - back, 0)
        history.add(read("ada", start, start + length))
        mark = max(mark, start + length)
    ends = 0
    for one in history.slices:
        assert one.start == ends if one.kind == "read" else one.stop <= ends
        ends = max(ends, one.stop)
    assert (history.read, history.read + history.reread) == (mark, sum(length for _, length in steps))


def test_a_member_that_writes_late_is_marked_as_reading_again() -> None:
    late = read("ada", 100, 150)  # what it had handled before the reset
    history = history_of(read("ada", 0, 100), read("ben", 80, 120), late)
    assert reported(history)[1:] == [
        ("ben", "reread", 80, 100),
        ("ben", "read", 100, 120),
        ("ada", "reread", 100, 120),
        ("ada", "read", 120, 150),
    ]


def test_entries_come_back_as_they_were_written_and_once(ledger: Ledger) -> None:
    entries = [DemoEntry("ben", "assigned", 4, (2, 5)), DemoEntry("ben", "killed", cause="SIGKILL")]
    for entry in entries:
        ledger.append(entry)
    seen = list(ledger.unread())
    assert [one._replace(at_ms=0) for one in seen] == entries
    assert 0 < seen[0].at_ms <= seen[1].at_ms
    assert list(ledger.unread()) == []
    ledger.append(entries[0])
    assert [one.kind for one in ledger.unread()] == ["assigned"]


def test_half_a_line_is_read_when_it_is_whole(ledger: Ledger, tmp_path: Path) -> None:
    ledger.append(read("ada", 0, 100))
    path = tmp_path / "flights.ledger"
    line = path.read_bytes()
    path.write_bytes(line + line[:20])
    assert len(list(ledger.unread())) == 1
    path.write_bytes(line + line)
    assert [one.stop for one in ledger.unread()] == [100]


def test_what_is_written_stays(ledger: Ledger, tmp_path: Path) -> None:
    ledger.append(read("ada", 0, 100))
    other = Ledger(tmp_path / "flights.ledger")
    assert len(list(ledger.unread())) == 1  # the place of reads is not that of writes
    other.append(read("ben", 100, 200))
    ledger.append(read("ada", 200, 300))
    assert [one.member for one in other.unread()] == ["ada", "ben", "ada"]
    assert [one.member for one in ledger.unread()] == ["ben", "ada"]
    other.close()


def _write(path: Path, partition: int) -> None:
    ledger = Ledger(path)
    for start in range(0, 1000, 50):
        ledger.append(DemoEntry(f"member-{partition}", "read", 1, (partition,), start=start, stop=start + 50))
    ledger.close()


def test_processes_write_side_by_side(ledger: Ledger, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    path = tmp_path / "flights.ledger"
    writers = [context.Process(target=_write, args=(path, partition)) for partition in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    history = GroupHistory(dict.fromkeys(range(3), 1000))
    for entry in ledger.unread():
        history.add(entry)
    assert (history.read, history.reread) == (3000, 0)


def test_states_and_partitions_follow_the_entries() -> None:
    history = GroupHistory({0: 40, 1: 40})

    def after(kind: str, generation: int = -1, partitions: tuple[int, ...] = ()) -> tuple[str, set[int]]:
        history.add(DemoEntry("ada", kind, generation, partitions))
        return history.members["ada"].state, history.unowned

    assert after("started") == ("joining", {0, 1})
    assert after("assigned", 1, (0, 1)) == ("reading", set())
    assert after("revoked", 1, (1,)) == ("reading", {1})
    assert after("undone") == ("going back", {1})
    assert after("went_back") == ("reading", {1})
    assert after("killed") == ("killed", {0, 1})
    assert history.members["ada"].generation == 1
    assert after("started") == ("joining", {0, 1})
    assert history.members["ada"].generation == -1
    assert after("left") == ("left", {0, 1})


def test_samples_keep_the_lag_and_what_no_checkpoint_has() -> None:
    history = GroupHistory({0: 40, 1: 40})
    history.add(DemoEntry("ada", "read", 1, (0,), start=0, stop=10))
    history.sample(5, {0: 5})
    assert history.samples == [(5, {0: 30, 1: 40}, 75)]
    assert (history.total, history.read, history.unsaved) == (80, 10, 75)


def test_a_cooperative_revocation_keeps_the_rest() -> None:
    history = history_of(
        DemoEntry("ada", "assigned", 1, (0, 1, 2), at_ms=10),
        DemoEntry("ada", "revoked", 1, (2,), at_ms=20),
        DemoEntry("ada", "assigned", 2, (0, 1), at_ms=30),
        DemoEntry("ada", "left", 2, at_ms=40),
    )
    assert history.spans == [
        TimelineSpan("ada", 10, 20, 1, (0, 1, 2)),
        TimelineSpan("ada", 20, 30, 1, (0, 1)),
        TimelineSpan("ada", 30, 40, 2, (0, 1)),
    ]


def test_a_reset_that_a_kill_cut_short_ends_there() -> None:
    history = history_of(
        DemoEntry("ada", "undone", 1, cause="why", at_ms=10),
        DemoEntry("ada", "undone", 1, cause="again", at_ms=20),
        DemoEntry("ada", "killed", cause="SIGKILL", at_ms=30),
        DemoEntry("ben", "undone", 1, cause="open", at_ms=40),
    )
    assert history.spans == [TimelineSpan("ada", 10, 30, -1)]
