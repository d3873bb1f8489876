"""A partition's log in memory: batches as they came, with their real offsets written in."""

from __future__ import annotations

import struct
from bisect import bisect_right

from kohort.common.named_tuple import NamedTuple
from kohort.fastpath import decode

_HEAD_BYTES = 61  # up to and with the record count of a magic 2 batch
_LENGTH_AT, _EPOCH_AT, _MAGIC_AT, _ATTRIBUTES_AT, _LAST_DELTA_AT, _MAX_TIMESTAMP_AT = 8, 12, 16, 21, 23, 35
_CONTROL = 0x20


class StoredBatch(NamedTuple):
    """One batch; `data` carries `base_offset` already."""

    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    data: bytes
    epoch: int = 0


class FakeLog:
    """Offsets grow without gaps unless `append_at` makes one; `start` moves up when `trim` is called."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._batches: list[StoredBatch] = []

    def append(self, data: bytes, epoch: int = 0) -> int:
        """Take one or more magic 2 batches, under a leader of this epoch; returns the first one's new base offset.
        ValueError for anything else."""
        base = self.end
        for piece in _split(data):
            self.append_at(self.end, piece, epoch)
        return base

    def append_at(self, base_offset: int, data: bytes, epoch: int = 0) -> None:
        """Take one batch at `base_offset`, not below the end; a gap is what compaction leaves."""
        if base_offset < self.end:
            raise ValueError(f"offset {base_offset} is below the log's end {self.end}")
        last_delta = struct.unpack_from(">i", data, _LAST_DELTA_AT)[0]
        max_timestamp = struct.unpack_from(">q", data, _MAX_TIMESTAMP_AT)[0]
        # The checksum covers neither base offset nor leader epoch, so that a broker can write them without reading all.
        placed = struct.pack(">q", base_offset) + data[8:_EPOCH_AT] + struct.pack(">i", epoch) + data[_MAGIC_AT:]
        self._batches.append(StoredBatch(base_offset, base_offset + last_delta, max_timestamp, placed, epoch))
        self.end = base_offset + last_delta + 1

    def append_raw(self, data: bytes, *, records: int) -> None:
        """Append bytes that need not be a batch, as `records` offsets: the contents of a damaged disk."""
        self._batches.append(StoredBatch(self.end, self.end + records - 1, -1, data))
        self.end += records

    def skip(self, end: int) -> None:
        """Move the end up to `end`, over a gap. ValueError if it is below the end."""
        if end < self.end:
            raise ValueError(f"offset {end} is below the log's end {self.end}")
        self.end = end

    def read(self, offset: int, max_bytes: int, stop: int | None = None) -> bytes:
        """Whole batches from the one that holds `offset`: as many as fit, and one at least (KIP-74), none from `stop`
        on."""
        at = bisect_right(self._batches, offset, key=lambda batch: batch.last_offset + 1)
        parts: list[bytes] = []
        size = 0
        for batch in self._batches[at:]:
            if stop is not None and batch.base_offset >= stop:
                break
            if parts and size + len(batch.data) > max_bytes:
                break
            parts.append(batch.data)
            size += len(batch.data)
        return b"".join(parts)

    def batch_end(self, offset: int) -> int:
        """The last offset of the batch that holds `offset`; `offset` itself if no batch does."""
        at = bisect_right(self._batches, offset, key=lambda batch: batch.last_offset + 1)
        batch = self._batches[at] if at < len(self._batches) else None
        return batch.last_offset if batch is not None and batch.base_offset <= offset else offset

    def trim(self, start: int) -> None:
        """Forget what is below `start`, as retention does; batches go whole."""
        self.start = max(self.start, min(start, self.end))
        self._batches = [batch for batch in self._batches if batch.last_offset >= self.start]

    def truncate(self, end: int) -> None:
        """Lose what is at `end` and above, as a log whose new leader had less does; batches go whole."""
        self._batches = [batch for batch in self._batches if batch.last_offset < end]
        self.end = max(self.start, self._batches[-1].last_offset + 1 if self._batches else self.start)

    def epoch_end(self, epoch: int, *, newest: int) -> tuple[int, int]:
        """Return (the newest epoch not above `epoch`, its end offset); (-1, -1): not yet begun.

        `newest`: the leader's own epoch, which ends at the log end. An epoch whose records are all deleted by
        retention, or that wrote none, ended before the log start, so there is no truncation.
        """
        if epoch >= newest:
            return (newest, self.end) if epoch == newest else (-1, -1)
        known = [batch for batch in self._batches if batch.epoch <= epoch]
        return (known[-1].epoch, known[-1].last_offset + 1) if known else (epoch, self.start)

    def latest_record(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the record or marker with the highest timestamp, or None in an empty log."""
        newest = max(self._batches, key=lambda batch: batch.max_timestamp_ms, default=None)
        return None if newest is None else self.offset_at(newest.max_timestamp_ms)

    def offset_at(self, timestamp_ms: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record or marker at `timestamp_ms` or later, or None."""
        for batch in self._batches:
            if batch.max_timestamp_ms >= timestamp_ms:
                if _is_control(batch):  # a marker, which `decode` leaves out
                    return batch.base_offset, batch.max_timestamp_ms
                for record in decode(batch.data):
                    if record.timestamp_ms >= timestamp_ms and record.offset >= self.start:
                        return record.offset, record.timestamp_ms
        return None


def _is_control(batch: StoredBatch) -> bool:
    return bool(batch.data[_ATTRIBUTES_AT + 1] & _CONTROL)


def _split(data: bytes) -> list[bytes]:
    pieces = []
    at = 0
    while at < len(data):
        if len(data) - at < _HEAD_BYTES:
            raise ValueError("a batch is cut short")
        size = 12 + struct.unpack_from(">i", data, at + _LENGTH_AT)[0]
        if size < _HEAD_BYTES or at + size > len(data) or data[at + _MAGIC_AT] != 2:
            raise ValueError("not a whole batch of magic 2")
        pieces.append(data[at : at + size])
        at += size
    return pieces
