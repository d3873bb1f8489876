"""Reads a broker's log segment from disk, memory-mapped and through its indexes. No broker is needed.

A partition's folder (`flights-3`) has four files for each segment, named by its first offset. `.log` has the record
batches as they were sent, `.index` maps offsets to positions, `.timeindex` maps timestamps to offsets, and `.txnindex`
lists aborted transactions. Indexes are hints: they are checked against the log. If they are missing or wrong, the log
is walked from its start.

Read closed segments, or a copy: a file that shrinks while it is mapped ends the process (SIGBUS).
"""

import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Literal, Self

from kohort.common.errors import KohortError
from kohort.common.named_tuple import NamedTuple
from kohort.fastpath._columns import RecordColumns
from kohort.fastpath._records import decode
from kohort.fastpath.batches import BatchInfo, batches, is_sound
from kohort.fastpath.errors import CorruptRecord

_OFFSET_ENTRY = Struct(">ii")  # offset from the segment's base, position
_TIME_ENTRY = Struct(">qi")  # largest timestamp so far, its offset from the segment's base
_ABORTED_ENTRY = Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset
_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")


class AbortedTransaction(NamedTuple):
    """An entry of a `.txnindex`: records of `producer_id` in first_offset..last_offset were never committed."""

    producer_id: int
    first_offset: int
    last_offset: int


def open_segment(path: str | Path) -> "Segment":
    """Open the segment at `path`, a `.log` file. Close it after use, or use it in a `with`.

    Topic and partition are taken from the folder's name, the base offset from the file's. Raises KohortError if the
    file does not exist or its name is not that of a segment.
    """
    return Segment(Path(path))


class Segment:
    """One open segment, with `size_bytes` of its log. Its names give `base_offset`, `topic` and `partition`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        folder = _FOLDER.fullmatch(path.absolute().parent.name)
        self.topic = folder["topic"] if folder else ""
        self.partition = int(folder["partition"]) if folder else -1
        if path.suffix != ".log" or not path.stem.isdecimal():
            raise KohortError(
                "the file name must be the segment's first offset", hint="like 00000000000000000000.log", path=str(path)
            )
        self.base_offset = int(path.stem)
        try:
            with path.open("rb") as file:
                self.size_bytes = path.stat().st_size
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size_bytes else b""
        except OSError as error:
            raise KohortError(f"cannot open the segment: {error.strerror}", path=str(path)) from error
        self._view = memoryview(self._map)

    def batches(self, *, from_offset: int = 0) -> Iterator[BatchInfo]:
        """Yield the headers of the batch that holds `from_offset`, or the first after it, and of all that follow."""
        return batches(self._view, start=self.position_of(from_offset))

    def is_sound(self, batch: BatchInfo) -> bool:
        """Return True if the checksum of one of `batches` is valid."""
        return is_sound(self._view, batch)

    def position_of(self, offset: int) -> int:
        """Return the position of the batch with `offset`, or of the first after it; the end of the log if there is
        none."""
        position = self._hint(offset)
        for batch in batches(self._view, start=position):
            if batch.last_offset >= offset:
                return batch.position
            position = batch.position + batch.size_bytes
        return position

    def offset_for_time(self, timestamp_ms: int) -> int | None:
        """Return the first offset with a timestamp of at least `timestamp_ms`; None if there is none."""
        start, hint = self.base_offset, None
        for latest, relative in _entries(self._beside(".timeindex"), _TIME_ENTRY):
            if latest >= timestamp_ms:
                break
            start, hint = self.base_offset + relative, latest
        if hint is not None:
            first = next(self.batches(from_offset=start), None)
            if first is None or first.max_timestamp_ms != hint:  # a false index
                start = self.base_offset
        for batch in self.batches(from_offset=start):
            if batch.max_timestamp_ms < timestamp_ms:
                continue
            for columns in self._decoded(batch.position, batch.position + batch.size_bytes, 0, "raise"):
                stamps = columns.timestamps_ms
                found = next((i for i in range(len(stamps)) if stamps[i] >= timestamp_ms), None)
                if found is not None:
                    return int(columns.offsets[found])
        return None

    def aborted(self) -> tuple[AbortedTransaction, ...]:
        """Return the transactions that were aborted in this segment or a later one of the same folder, by their
        `.txnindex`.

        A marker is in the segment in which its transaction ended, so later indexes list transactions with records in
        this one.
        """
        found = []
        for index in sorted(self.path.parent.glob("*.txnindex")):
            if index.stem.isdigit() and int(index.stem) >= self.base_offset:
                entries = _entries(index.read_bytes(), _ABORTED_ENTRY)
                found += [AbortedTransaction(producer, first, last) for _, producer, first, last, _ in entries]
        return tuple(found)

    def read(
        self,
        *,
        from_offset: int = 0,
        max_bytes: int = 8 << 20,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        on_corrupt: Literal["raise", "skip_batch"] = "raise",
    ) -> Iterator[RecordColumns]:
        """Yield the records from `from_offset` on, in columns of whole batches of about `max_bytes` before
        decompression.

        `isolation="read_committed"` excludes the transactions of `aborted`. Records of a transaction that is still open
        are not excluded. Raises CorruptRecord, or skips a batch and lists it in `columns.corrupt`, as
        `kohort.fastpath.decode` does.
        """
        aborted = self.aborted() if isolation == "read_committed" else ()
        start = end = self.position_of(from_offset)
        for batch in batches(self._view, start=start):
            if end - start >= max_bytes:
                yield from self._decoded(start, end, from_offset, on_corrupt, aborted)
                start = batch.position
            end = batch.position + batch.size_bytes
        if end > start:
            yield from self._decoded(start, end, from_offset, on_corrupt, aborted)

    def close(self) -> None:
        """Close the file. It remains mapped while columns point into it."""
        self._view.release()
        if isinstance(self._map, mmap.mmap):
            try:
                self._map.close()
            except BufferError:  # columns still point into it
                self._map = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _decoded(
        self,
        start: int,
        end: int,
        from_offset: int,
        on_corrupt: Literal["raise", "skip_batch"],
        aborted: tuple[AbortedTransaction, ...] = (),
    ) -> Iterator[RecordColumns]:
        view, position = self._view[start:end], from_offset
        while view:
            first = next(batches(view)).base_offset
            # Transactions that ended before these bytes would hide later records of the same producers.
            open_here = [(each.producer_id, each.first_offset) for each in aborted if each.last_offset >= first]
            columns = decode(
                view,
                topic=self.topic,
                partition=self.partition,
                from_offset=position,
                aborted=open_here,
                on_corrupt=on_corrupt,
            )
            position = columns.next_offset
            yield columns
            if columns.complete:
                view = view[_decoded_bytes(view, columns) :]

    def _hint(self, offset: int) -> int:
        """Return the position of a batch at or before the one with `offset`, by the offset index if it is valid."""
        position = 0
        for relative, candidate in _entries(self._beside(".index"), _OFFSET_ENTRY):
            if self.base_offset + relative > offset or not position <= candidate < self.size_bytes:
                break
            position = candidate
        try:
            batch = next(batches(self._view, start=position), None)
        except CorruptRecord:
            return 0
        # An index that leads past the offset, or into the middle of a batch, is worse than none.
        return position if batch and self.base_offset <= batch.base_offset and self._leads_to(batch, offset) else 0

    def _leads_to(self, batch: BatchInfo, offset: int) -> bool:
        return batch.position == 0 or (batch.base_offset <= offset and self.is_sound(batch))

    def _beside(self, suffix: str) -> bytes:
        beside = self.path.with_suffix(suffix)
        return beside.read_bytes() if beside.exists() else b""


def _decoded_bytes(view: memoryview, columns: RecordColumns) -> int:
    """Return the number of bytes that were decoded. `decode` may stop behind a corrupt batch."""
    if columns.corrupt and columns.corrupt[-1].resumed_at == columns.next_offset:
        for batch in batches(view):
            if batch.base_offset == columns.corrupt[-1].place["offset"]:
                return batch.position + batch.size_bytes
    return len(view)


def _entries(data: bytes, entry: Struct) -> Iterator[tuple[int, ...]]:
    """Yield whole entries, up to the zeros with which a broker preallocates an index."""
    for at in range(0, len(data) - entry.size + 1, entry.size):
        values = entry.unpack_from(data, at)
        if at and not any(values):
            return
        yield values
