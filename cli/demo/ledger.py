"""What the group has read, in an append-only SQLite file that all members write and a SIGKILL cannot undo.

A row of `slices` says: this member read offsets [start, stop) of this partition. Its rows of `totals` say what that
came to. Whether the same offsets had been read before is decided when a slice is written: one that straddles the
highest offset on record (the mark) is split there, so every slice is wholly new or wholly re-read, and
- the new ones tile each partition from its first offset to its mark, without gap or overlap: exact totals;
- the others are what at-least-once means, kept and counted.

Members write to the ledger first and commit to Kafka later, so what is committed is always on record.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from kohort.cli.demo.tally import Aircraft, Tally, Totals, tally
from kohort.fastpath import KohortError, TopicPartition

_SCHEMA = """
CREATE TABLE slices (
    id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, member TEXT NOT NULL, generation INTEGER NOT NULL,
    topic TEXT NOT NULL, partition INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    records INTEGER NOT NULL, reread INTEGER NOT NULL CHECK (reread IN (0, 1)), CHECK (start < stop)
) STRICT;
CREATE INDEX slices_by_place ON slices (topic, partition, stop);
CREATE TABLE totals (
    slice INTEGER NOT NULL REFERENCES slices, carrier TEXT NOT NULL, tail TEXT NOT NULL, scheduled INTEGER NOT NULL,
    departed INTEGER NOT NULL, arrived INTEGER NOT NULL, cancelled INTEGER NOT NULL, miles INTEGER NOT NULL,
    delay_minutes INTEGER NOT NULL
) STRICT;
CREATE TABLE happenings (
    id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, member TEXT NOT NULL, kind TEXT NOT NULL,
    generation INTEGER NOT NULL, partitions TEXT NOT NULL, cause TEXT NOT NULL
) STRICT;
"""
_APPEND_ONLY = """
CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""
BUSY_TIMEOUT_S = 30.0


class LedgerBroken(KohortError):
    """What would be written, or was found, contradicts the rest: a gap, an overlap, or two writers of one partition."""


class Read(Protocol):
    """The part of a record that the ledger needs."""

    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Iterable[tuple[str, bytes | None]]: ...


class Readings(Protocol):
    """Records in a row: a list of them, or RecordColumns."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Read]: ...
    def __getitem__(self, place: int, /) -> Read: ...


class Slice(NamedTuple):
    """One row of `slices`."""

    id: int
    at_ms: int
    member: str
    generation: int
    topic: str
    partition: int
    start: int
    stop: int
    records: int
    reread: bool


class Happening(NamedTuple):
    """One thing that happened to a member: started, assigned, revoked, lost, killed, left. `partitions` in order."""

    id: int
    at_ms: int
    member: str
    kind: str
    generation: int
    partitions: tuple[int, ...]
    cause: str


class Ledger:
    """One process's connection to the file. Not for several threads."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        self._db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        # A commit survives the death of this process; of the machine it need not, in a demo.
        self._db.execute("PRAGMA synchronous = NORMAL")
        if create:
            triggers = "".join(
                _APPEND_ONLY.format(table=table, verb=verb)
                for table in ("slices", "totals", "happenings")
                for verb in ("UPDATE", "DELETE")
            )
            self._db.executescript(_SCHEMA + triggers)

    def close(self) -> None:
        self._db.close()

    # --- what members write

    def append(self, member: str, generation: int, place: TopicPartition, records: Readings) -> None:
        """Put some records in a row of one partition on record.

        Raises LedgerBroken if records between the mark and these were never read, or if another writer came between.
        """
        if not len(records):
            return
        start, stop = records[0].offset, records[-1].offset + 1
        mark = self._mark(place)
        if mark is not None and start > mark:
            raise LedgerBroken(
                "records were skipped", topic=place.topic, partition=place.partition, mark=mark, got=start
            )
        rows = [self._row(member, generation, place, *part) for part in _parts(records, start, stop, mark)]
        with self._writing():
            if self._mark(place) != mark:
                raise LedgerBroken("two members write one partition", topic=place.topic, partition=place.partition)
            for slice_row, totals in rows:
                slice_id = self._db.execute(
                    "INSERT INTO slices (at_ms, member, generation, topic, partition, start, stop, records, reread)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    slice_row,
                ).lastrowid
                self._db.executemany(
                    "INSERT INTO totals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    [(slice_id, *aircraft, *counts) for aircraft, counts in totals.items()],
                )

    def _row(
        self,
        member: str,
        generation: int,
        place: TopicPartition,
        start: int,
        stop: int,
        records: Readings,
        reread: bool,
    ) -> tuple[tuple[object, ...], Tally]:
        return (now_ms(), member, generation, *place, start, stop, len(records), int(reread)), tally(records)

    def note(
        self,
        member: str,
        kind: str,
        *,
        generation: int = -1,
        partitions: Iterable[int] = (),
        cause: str = "",
        at_ms: int | None = None,
    ) -> None:
        """Put on record that something happened."""
        text = ",".join(str(partition) for partition in sorted(partitions))
        with self._writing():
            self._db.execute(
                "INSERT INTO happenings (at_ms, member, kind, generation, partitions, cause) VALUES (?, ?, ?, ?, ?, ?)",
                (now_ms() if at_ms is None else at_ms, member, kind, generation, text, cause),
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _mark(self, place: TopicPartition) -> int | None:
        found = self._db.execute("SELECT max(stop) FROM slices WHERE topic = ? AND partition = ?", place).fetchone()
        mark: int | None = found[0]
        return mark

    # --- what everybody reads

    def marks(self) -> dict[TopicPartition, int]:
        """The offset after the highest one read, by partition."""
        rows = self._db.execute("SELECT topic, partition, max(stop) FROM slices GROUP BY topic, partition")
        return {TopicPartition(topic, partition): mark for topic, partition, mark in rows}

    def slices(self) -> list[Slice]:
        rows = self._db.execute(
            "SELECT id, at_ms, member, generation, topic, partition, start, stop, records, reread"
            " FROM slices ORDER BY id"
        )
        return [Slice._make((*row[:9], bool(row[9]))) for row in rows]

    def happenings(self) -> list[Happening]:
        rows = self._db.execute(
            "SELECT id, at_ms, member, kind, generation, partitions, cause FROM happenings ORDER BY at_ms, id"
        )
        return [
            Happening(serial, at_ms, member, kind, generation, tuple(int(one) for one in text.split(",") if one), cause)
            for serial, at_ms, member, kind, generation, text, cause in rows
        ]

    def read_by_member(self) -> dict[str, int]:
        """How many records each member has put on record, re-read ones included."""
        return dict(self._db.execute("SELECT member, sum(records) FROM slices GROUP BY member"))

    def records(self) -> tuple[int, int]:
        """How many records are on record for the first time, and how many were re-read."""
        first, again = self._db.execute(
            "SELECT coalesce(sum(records * (1 - reread)), 0), coalesce(sum(records * reread), 0) FROM slices"
        ).fetchone()
        return first, again

    def unique_totals(self) -> Tally:
        """Totals in which each offset counts once. Raises LedgerBroken if the slices behind it do not tile."""
        check_tiling(self.slices())
        rows = self._db.execute(
            "SELECT carrier, tail, sum(scheduled), sum(departed), sum(arrived), sum(cancelled), sum(miles),"
            " sum(delay_minutes) FROM totals JOIN slices ON slices.id = totals.slice WHERE reread = 0"
            " GROUP BY carrier, tail"
        )
        return {Aircraft(carrier, tail): Totals(*counts) for carrier, tail, *counts in rows}


def _parts(records: Readings, start: int, stop: int, mark: int | None) -> Iterator[tuple[int, int, Readings, bool]]:
    """Cut at the mark: (start, stop, records, re-read) once, or twice where the mark lies inside."""
    if mark is None or mark <= start:
        yield start, stop, records, False
    elif stop <= mark:
        yield start, stop, records, True
    else:
        yield start, mark, [record for record in records if record.offset < mark], True
        yield mark, stop, [record for record in records if record.offset >= mark], False


def check_tiling(slices: Iterable[Slice]) -> Mapping[TopicPartition, tuple[int, int]]:
    """Hold that first readings lie end to end and re-readings lie inside them; returns [first, mark) by partition.

    Raises LedgerBroken.
    """
    covered: dict[TopicPartition, tuple[int, int]] = {}
    for one in slices:
        place = TopicPartition(one.topic, one.partition)
        first, mark = covered.get(place, (one.start, one.start))
        fits = first <= one.start and one.stop <= mark if one.reread else one.start == mark
        if not fits:
            raise LedgerBroken(
                f"slice {one.id} [{one.start}, {one.stop}) does not fit [{first}, {mark})",
                topic=one.topic, partition=one.partition, member=one.member,
            )  # fmt: skip
        covered[place] = (first, max(mark, one.stop))
    return covered


def now_ms() -> int:
    return time.time_ns() // 1_000_000
