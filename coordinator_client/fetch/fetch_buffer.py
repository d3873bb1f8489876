"""Buffer of fetched, undecoded records: one `CompletedFetch` per partition and response.

Records are views into the response frame and are not copied. The end offset is read from the batch headers. The next
Fetch is sent before these records are decoded, and needs that offset.
"""

import struct
from collections import OrderedDict, deque
from collections.abc import Iterator, Set
from itertools import islice

from kohort.common import TopicPartition
from kohort.common.named_tuple import NamedTuple

_BATCH_HEAD = struct.Struct(">qiib")  # base offset, length of the rest, leader epoch (magic 2 only), magic
_TIMESTAMP = struct.Struct(">q")
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_AT = 21
_FIRST_TIMESTAMP_AT = 27
_MAX_TIMESTAMP_AT = 35
# With LogAppendTime, brokers set only the max timestamp; the first timestamp remains the producer's. In a compacted log
# the first timestamp may be the delete horizon, a time in the future (KIP-534).
_FIRST_TIMESTAMP_IS_NONE = 0x08 | 0x40


def written_ms(records: memoryview) -> int | None:
    """The first timestamp of the first batch (ms since the epoch); None unless it has magic 2.

    For LogAppendTime batches, and for batches with a delete horizon, the maximum timestamp is used instead.
    """
    if len(records) < _MAX_TIMESTAMP_AT + _TIMESTAMP.size or _BATCH_HEAD.unpack_from(records)[3] != 2:
        return None
    (attributes,) = _ATTRIBUTES.unpack_from(records, _ATTRIBUTES_AT)
    at = _MAX_TIMESTAMP_AT if attributes & _FIRST_TIMESTAMP_IS_NONE else _FIRST_TIMESTAMP_AT
    timestamp = int(_TIMESTAMP.unpack_from(records, at)[0])
    return timestamp if timestamp >= 0 else None


class CompletedFetch(NamedTuple):
    """Undecoded records of one partition.

    `start` is the fetch offset of the request; the first batch may begin before it. `end` is the offset to fetch next,
    equal to `start` if there is no complete batch. `serial` is the serial of the position at the request (fetch
    barrier). `leader_epoch` is that of the last batch. `leader_epoch_at_fetch` is the leader epoch of the request (-1:
    unknown). `high_watermark` is that of the response (-1: unknown).
    """

    partition: TopicPartition
    records: memoryview
    start: int
    end: int
    serial: int
    leader_epoch: int
    aborted: tuple[tuple[int, int], ...]
    leader_epoch_at_fetch: int = -1
    high_watermark: int = -1


class FetchBuffer:
    """`CompletedFetch` slices in order, by partition; partitions are polled in turn.

    All slices of a partition have the same serial. The driver's thread adds slices. The caller's thread reads and
    removes them, and a signal handler may raise there after any call. Removal therefore ends with statements that make
    no calls, and removing a slice twice is safe.

    A partition whose records may not be returned now is set aside, and polls skip it. A slice in hand is being decoded
    or was returned to the caller. It stays in the buffer until that is settled, and does not count as waiting.
    """

    def __init__(self) -> None:
        self._line: OrderedDict[TopicPartition, deque[CompletedFetch]] = OrderedDict()
        self._aside: dict[TopicPartition, deque[CompletedFetch]] = {}
        self._bytes: dict[TopicPartition, int] = {}
        self._in_hand: dict[TopicPartition, CompletedFetch] = {}
        self.total_bytes = 0  # of all slices

    def put(self, slice_: CompletedFetch) -> None:
        """Append a slice; slices of the partition with another serial are dropped."""
        partition = slice_.partition
        queue = self._queue(partition)
        if queue is not None and queue[-1].serial != slice_.serial:
            self.drop(partition)
            queue = None
        if queue is None:
            self._in_hand.pop(partition, None)
            queue = self._line[partition] = deque()
            self.total_bytes -= self._bytes.get(partition, 0)  # of a drop that was interrupted
            self._bytes[partition] = 0
        queue.append(slice_)
        self._bytes[partition] += len(slice_.records)
        self.total_bytes += len(slice_.records)

    def line(self, most: int | None = None) -> list[TopicPartition]:
        """The next partitions in turn, at most `most` of them."""
        return list(islice(self._line, most))

    def set_aside(self, partition: TopicPartition) -> None:
        """Take a partition out of the line until it is `readmitted`."""
        queue = self._line.get(partition)
        if queue is not None:
            self._aside[partition] = queue
            del self._line[partition]

    def readmitted(self, partitions: Set[TopicPartition]) -> None:
        """Append partitions that were set aside to the line."""
        for partition in self._aside.keys() & partitions:
            self._line[partition] = self._aside.pop(partition)

    def take_in_hand(self, slice_: CompletedFetch) -> None:
        """Mark the first slice of a partition as being decoded."""
        self._in_hand[slice_.partition] = slice_

    def remove(self, slice_: CompletedFetch, rest: CompletedFetch | None) -> None:
        """Remove a slice if it is the first of its partition, or replace it by `rest`.

        After a removal the partition goes to the end of the line.
        """
        partition = slice_.partition
        home: dict[TopicPartition, deque[CompletedFetch]] = self._line if partition in self._line else self._aside
        queue = home.get(partition)
        if queue is None or queue[0] is not slice_:
            return
        if rest is not None:
            self._in_hand[partition] = rest
            queue[0] = rest
            return
        size, alone = len(slice_.records), len(queue) == 1
        self._in_hand.pop(partition, None)
        # No calls from here on, see the class.
        self.total_bytes -= size
        if alone:
            del self._bytes[partition]
            del home[partition]
            return
        self._bytes[partition] -= size
        del queue[0]
        if home is self._line:
            self._line.move_to_end(partition)

    def drop(self, partition: TopicPartition) -> None:
        """Drop all slices of a partition."""
        self._line.pop(partition, None)
        self._aside.pop(partition, None)
        self._in_hand.pop(partition, None)
        size = self._bytes.get(partition)
        if size is not None:
            # No call between the two, see the class.
            del self._bytes[partition]
            self.total_bytes -= size

    def drop_newest(self, partition: TopicPartition) -> CompletedFetch | None:
        """Drop the last slice of a partition to free memory; it will be fetched again."""
        queue = self._queue(partition)
        if not queue:
            return None
        dropped = queue.pop()
        self._bytes[partition] -= len(dropped.records)
        self.total_bytes -= len(dropped.records)
        if not queue:
            self.drop(partition)
        return dropped

    def last(self, partition: TopicPartition) -> CompletedFetch | None:
        """The last slice of a partition; None if there is none, or if it is in hand."""
        queue = self._queue(partition)
        if queue is None or queue[-1] is self._in_hand.get(partition):
            return None
        return queue[-1]

    def first(self, partition: TopicPartition) -> CompletedFetch | None:
        """The first slice of a partition, including one in hand."""
        queue = self._queue(partition)
        return queue[0] if queue else None

    def bytes_of(self, partition: TopicPartition) -> int:
        """Bytes of a partition that wait, without the slice in hand."""
        held = self._in_hand.get(partition)
        return self._bytes.get(partition, 0) - (len(held.records) if held is not None else 0)

    def _queue(self, partition: TopicPartition) -> deque[CompletedFetch] | None:
        return self._line.get(partition) or self._aside.get(partition)

    def __iter__(self) -> Iterator[TopicPartition]:
        yield from self._line
        yield from self._aside

    def __bool__(self) -> bool:
        return bool(self._line or self._aside)
