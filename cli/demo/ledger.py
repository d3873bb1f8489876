"""A log of the members' reads and events, in an append-only SQLite file that survives SIGKILL.

A row of `slices` says: this member handled offsets [start, stop) of this partition. Whether the same offsets had been
handled before is decided when a slice is written: one that straddles the highest offset on record (the mark) is split
there, so every slice is wholly new or wholly re-read, and the new ones tile each partition without gap or overlap.

It is a diary, for the live table and the pictures. The totals are not in it: they are in the region's checkpoints.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from kohort.common import KohortError, TopicPartition

_SCHEMA = """
CREATE TABLE slices (
    id INTEGER PRIMARY KEY, at_ms INTEGER NOT NULL, member TEXT NOT NULL, generation INTEGER NOT NULL,
    topic TEXT NOT NULL, partition INTEGER NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
    reread INTEGER NOT NULL CHECK (reread IN (0, 1)), CHECK (start < stop)
) STRICT;
CREATE INDEX slices_by_place ON slices (topic, partition, stop);
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
    """A slice contradicts the rest of the ledger, by a gap or an overlap."""


class LedgerSlice(NamedTuple):
    """One row of `slices`."""

    id: int
    at_ms: int
    member: str
    generation: int
    topic: str
    partition: int
    start: int
    stop: int
    reread: bool

    @property
    def records(self) -> int:
        """The number of records. The demo's topic has no gaps."""
        return self.stop - self.start


class Happening(NamedTuple):
    """One thing that happened to a member. `partitions` in order.

    `kind`: started, assigned, revoked, lost, killed, left; and of the region: undone (a reset began), went_back (it
    ended), checkpoint (one is complete). `cause` says more, for people.
    """

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
                for table in ("slices", "happenings")
                for verb in ("UPDATE", "DELETE")
            )
            self._db.executescript(_SCHEMA + triggers)

    def close(self) -> None:
        self._db.close()

    # --- what members write

    def append(self, member: str, generation: int, place: TopicPartition, start: int, stop: int) -> None:
        """Put on record that offsets [start, stop) of one partition were handled.

        Raises LedgerBroken if records between the mark and these never were.
        """
        with self._writing():
            mark = self._mark(place)
            if mark is not None and start > mark:
                raise LedgerBroken(
                    "records were skipped", topic=place.topic, partition=place.partition, mark=mark, got=start
                )
            self._db.executemany(
                "INSERT INTO slices (at_ms, member, generation, topic, partition, start, stop, reread)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [(now_ms(), member, generation, *place, *part) for part in _parts(start, stop, mark)],
            )

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
        """The offset after the highest one handled, by partition."""
        rows = self._db.execute("SELECT topic, partition, max(stop) FROM slices GROUP BY topic, partition")
        return {TopicPartition(topic, partition): mark for topic, partition, mark in rows}

    def slices(self) -> list[LedgerSlice]:
        rows = self._db.execute(
            "SELECT id, at_ms, member, generation, topic, partition, start, stop, reread FROM slices ORDER BY id"
        )
        return [LedgerSlice._make((*row[:8], bool(row[8]))) for row in rows]

    def happenings(self) -> list[Happening]:
        rows = self._db.execute(
            "SELECT id, at_ms, member, kind, generation, partitions, cause FROM happenings ORDER BY at_ms, id"
        )
        return [
            Happening(serial, at_ms, member, kind, generation, tuple(int(one) for one in text.split(",") if one), cause)
            for serial, at_ms, member, kind, generation, text, cause in rows
        ]

    def read_by_member(self) -> dict[str, int]:
        """Return the number of records each member has recorded, re-read ones included."""
        return dict(self._db.execute("SELECT member, sum(stop - start) FROM slices GROUP BY member"))

    def records(self) -> tuple[int, int]:
        """Return the number of records read for the first time, and the number re-read."""
        first, again = self._db.execute(
            "SELECT coalesce(sum((stop - start) * (1 - reread)), 0), coalesce(sum((stop - start) * reread), 0)"
            " FROM slices"
        ).fetchone()
        return first, again


def _parts(start: int, stop: int, mark: int | None) -> list[tuple[int, int, int]]:
    """Cut at the mark: (start, stop, re-read) once, or twice if the mark is inside."""
    if mark is None or mark <= start:
        return [(start, stop, 0)]
    if stop <= mark:
        return [(start, stop, 1)]
    return [(start, mark, 1), (mark, stop, 0)]


def check_tiling(slices: Iterable[LedgerSlice]) -> Mapping[TopicPartition, tuple[int, int]]:
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
                topic=one.topic,
                partition=one.partition,
                member=one.member,
            )
        covered[place] = (first, max(mark, one.stop))
    return covered


def now_ms() -> int:
    return time.time_ns() // 1_000_000
