"""Fetched records: one `CompletedFetch` per partition and response, decoded and collected by polls.

Records are views into the response frame and are not copied. The end offset is read from the batch headers. The next
Fetch is sent before these records are decoded, and needs that offset.
"""

import struct
from typing import Final

from kohort.common import KohortError, TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.fastpath import RecordColumns

MOST_AT_ONCE: Final = 64
"""Slices that a caller looks at while it holds the lock once: heartbeats wait for that, at the longest."""

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


class DecodedFetch(NamedTuple):
    """A slice's columns, or its error. `corrupt`: the number of skipped batches that are not counted yet."""

    slice_: CompletedFetch
    columns: RecordColumns | None
    corrupt: int = 0
    error: KohortError | None = None


class CollectedFetch(NamedTuple):
    """A slice that is handed over up to `next_offset`. `rest` is its remainder.

    `misled`: the next slice was fetched from the end that a corrupt batch claimed, where reading does not go on.
    """

    slice_: CompletedFetch
    rest: CompletedFetch | None
    next_offset: int
    timestamp_ms: int | None
    records: int
    misled: bool = False
