"""Fetched bytes that wait for the user's poll: one slice a partition and answer, records untouched.

A slice is a view into the frame it came in, so nothing is copied; what it *ends* at is read off the batches' headers,
since the next Fetch must ask for what follows while these are still waiting to be decoded.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kohort.fastpath import TopicPartition

_BATCH_HEAD = struct.Struct(">qiib")  # base offset, length of the rest, leader epoch (magic 2 only), magic
_LAST_OFFSET_DELTA = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_ATTRIBUTES = struct.Struct(">h")
_LENGTH_FIELD_END = 12
_ATTRIBUTES_AT = 21
_LAST_OFFSET_DELTA_AT = 23
_FIRST_TIMESTAMP_AT = 27
_MAX_TIMESTAMP_AT = 35
# Under LogAppendTime brokers write the last one only, and the first stays its producer's; of a compacted log the first
# may be when tombstones are to go, which is yet to come (KIP-534).
_FIRST_TIMESTAMP_IS_NONE = 0x08 | 0x40


class SliceEnd(NamedTuple):
    """Where the last whole batch of a slice ends; `next_offset` is None when there is no whole batch."""

    next_offset: int | None
    leader_epoch: int


def slice_end(records: memoryview) -> SliceEnd:
    """Hop over the batches' headers to the last whole one. Lies in them are left for decode to find and name."""
    at, size, last = 0, len(records), -1
    while size - at >= _BATCH_HEAD.size:
        length = _BATCH_HEAD.unpack_from(records, at)[1]
        following = at + _LENGTH_FIELD_END + length
        if length < _BATCH_HEAD.size - _LENGTH_FIELD_END or following > size:
            break
        last, at = at, following
    if last < 0:
        return SliceEnd(None, -1)
    base_offset, length, leader_epoch, magic = _BATCH_HEAD.unpack_from(records, last)
    if magic < 2:
        return SliceEnd(base_offset + 1, -1)
    if length < _LAST_OFFSET_DELTA_AT + 4 - _LENGTH_FIELD_END:
        return SliceEnd(None, -1)
    (delta,) = _LAST_OFFSET_DELTA.unpack_from(records, last + _LAST_OFFSET_DELTA_AT)
    return SliceEnd(base_offset + delta + 1, leader_epoch)


def written_ms(records: memoryview) -> int | None:
    """When the first batch was begun (ms since the epoch), as its head says; None where there is no head of magic 2."""
    if len(records) < _MAX_TIMESTAMP_AT + _TIMESTAMP.size or _BATCH_HEAD.unpack_from(records)[3] != 2:
        return None
    (attributes,) = _ATTRIBUTES.unpack_from(records, _ATTRIBUTES_AT)
    at = _MAX_TIMESTAMP_AT if attributes & _FIRST_TIMESTAMP_IS_NONE else _FIRST_TIMESTAMP_AT
    timestamp = int(_TIMESTAMP.unpack_from(records, at)[0])
    return timestamp if timestamp >= 0 else None


class Slice(NamedTuple):
    """Undecoded records of one partition. `start` is the offset that was asked for (the first batch may begin before
    it), `end` the offset to fetch from next (`start` where no whole batch was found), `serial` the barrier's mark;
    `leader_epoch` of the last batch, `fetched_under` of the leader that gave it (-1: unknown)."""

    partition: TopicPartition
    records: memoryview
    start: int
    end: int
    serial: int
    leader_epoch: int
    aborted: tuple[tuple[int, int], ...]
    fetched_under: int = -1


class Parked:
    """Slices by partition, in order; partitions take turns."""

    def __init__(self) -> None:
        self._queues: dict[TopicPartition, deque[Slice]] = {}
        self._bytes: dict[TopicPartition, int] = {}

    def put(self, slice_: Slice) -> None:
        partition = slice_.partition
        self._queues.setdefault(partition, deque()).append(slice_)
        self._bytes[partition] = self._bytes.get(partition, 0) + len(slice_.records)

    def put_back(self, slice_: Slice) -> None:
        """The rest of a slice that was taken: it is the partition's next again."""
        partition = slice_.partition
        self._queues.setdefault(partition, deque()).appendleft(slice_)
        self._bytes[partition] = self._bytes.get(partition, 0) + len(slice_.records)

    def take(self, wanted: Callable[[Slice], bool]) -> Slice | None:
        """The next slice of the partition whose turn it is, among those `wanted` says yes to; its turn then ends."""
        for partition, queue in self._queues.items():
            if not wanted(queue[0]):
                continue
            taken = queue.popleft()
            self._bytes[partition] -= len(taken.records)
            del self._queues[partition]
            if queue:
                self._queues[partition] = queue
            else:
                del self._bytes[partition]
            return taken
        return None

    def drop(self, partition: TopicPartition) -> None:
        self._queues.pop(partition, None)
        self._bytes.pop(partition, None)

    def drop_newest(self, partition: TopicPartition) -> Slice | None:
        """Give up the last slice (to be fetched again), when memory is short."""
        queue = self._queues.get(partition)
        if not queue:
            return None
        dropped = queue.pop()
        self._bytes[partition] -= len(dropped.records)
        if not queue:
            self.drop(partition)
        return dropped

    def last(self, partition: TopicPartition) -> Slice | None:
        queue = self._queues.get(partition)
        return queue[-1] if queue else None

    def first(self, partition: TopicPartition) -> Slice | None:
        queue = self._queues.get(partition)
        return queue[0] if queue else None

    def bytes_of(self, partition: TopicPartition) -> int:
        return self._bytes.get(partition, 0)

    @property
    def total_bytes(self) -> int:
        return sum(self._bytes.values())

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._queues)

    def __bool__(self) -> bool:
        return bool(self._queues)
