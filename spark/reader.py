"""Reading of ranges on an executor. A repeated read gives the same records."""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import OffsetOutOfRange, OperationTimeout, TopicRecreated, Truncation, UnknownTopic
from kohort.fastpath import RecordColumns
from kohort.spark.consumer_pool import lent
from kohort.spark.errors import DataLossError, data_loss
from kohort.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from kohort.coordinator_client import Consumer

POLL_TIMEOUT_S = 0.1
CHECK_AFTER_S = 2.0
MOST_CHECKS = 60  # without records, which is the time of Spark's own source. A process that was frozen makes one check.
KIB = 1024
LEAST_FETCH_BYTES, MOST_FETCH_BYTES = 64 * KIB, 4 * KIB * KIB
# Fixed settings: a reset would hide a loss of records, and a commit would cover the records of a job that fails.
DECIDED: Mapping[str, Any] = MappingProxyType({"auto_offset_reset": "none", "enable_auto_commit": False})


def read_range(wanted: OffsetRange, settings: Mapping[str, Any], *, skip_lost: bool = False) -> Iterator[RecordColumns]:
    """Read one range. See `read_ranges`."""
    return read_ranges((wanted,), settings, skip_lost=skip_lost)


def read_ranges(
    ranges: Iterable[OffsetRange], settings: Mapping[str, Any], *, skip_lost: bool = False
) -> Iterator[RecordColumns]:
    """The records of ranges as fetched columns, in order within each range. There is at most one range a partition.

    `settings`: those of `Consumer`. Offsets without a record (compacted, transaction markers, aborted transactions
    under read_committed) are no loss. Raises DataLossError if records of a range are missing in the log; with
    `skip_lost` the remaining records are read.
    """
    wanted = {one.place: one for one in ranges if len(one)}
    if not wanted:
        return
    with lent({**ours(max(map(len, wanted.values()))), **settings, **DECIDED}) as consumer:
        consumer.assign(
            {place: one.start for place, one in wanted.items()},
            until={place: one.stop for place, one in wanted.items()},
        )
        yield from _follow(consumer, wanted, skip_lost=skip_lost)


def ours(offsets: int) -> dict[str, Any]:
    """Default settings for ranges of `offsets` offsets: a fetch requests a kibibyte for each offset.

    This limits the records that a fetch returns from behind a short range. Sizes are powers of two, so that a kept
    consumer has the settings of the next range of similar length.
    """
    size = 1 << (min(max(offsets * KIB, LEAST_FETCH_BYTES), MOST_FETCH_BYTES) - 1).bit_length()
    return {"client_id": "kohort-spark", "max_partition_fetch_bytes": size, "max_buffered_bytes": 4 * size}


def _follow(
    consumer: "Consumer", wanted: Mapping[TopicPartition, OffsetRange], *, skip_lost: bool
) -> Iterator[RecordColumns]:
    left = {place: one.start for place, one in wanted.items()}  # positions of unfinished ranges

    def reached(place: TopicPartition, position: int) -> None:
        left[place] = position
        if position >= wanted[place].stop:
            del left[place]

    progress_at, checks = time.monotonic(), 0
    while left:
        try:
            slices = consumer.poll(POLL_TIMEOUT_S)
            silent = not slices and time.monotonic() - progress_at > CHECK_AFTER_S
            ends = _ending_early(consumer, left, wanted, skip_lost=skip_lost) if silent else {}
        except (OffsetOutOfRange, TopicRecreated, Truncation, UnknownTopic) as error:
            meant = _meant(error, left)  # empty if the error is about a finished range
            if meant and not skip_lost:
                raise _lost(wanted[meant[0]], left[meant[0]], _why(consumer, meant[0], error)) from error
            for place in meant:
                reached(place, _next_there(consumer, wanted[place], left[place], error))
                if place in left:
                    consumer.seek(place, left[place])
            continue
        progressed = bool(slices)
        if not slices:  # markers and gaps move a position without records in a poll
            for place, position in {place: consumer.position(place) for place in left}.items():
                if position > left[place]:
                    reached(place, position)
                    progressed = True
        while slices:
            # No name holds the columns while the next poll decodes. That would double the memory.
            place, position = TopicPartition(slices[0].topic, slices[0].partition), slices[0].next_offset
            if len(slices[0]):
                yield slices.pop(0)
            else:
                del slices[0]
            reached(place, position)
        checks = 0 if progressed else checks + silent
        if progressed or silent:
            progress_at = time.monotonic()
        for place, end in ends.items():
            if place not in left:
                continue
            if not skip_lost:
                raise _lost(wanted[place], left[place], "the log ends before the range")
            if left[place] >= end:  # otherwise the leader may be slow or new
                del left[place]
        if left and checks >= MOST_CHECKS:
            place, position = next(iter(left.items()))
            raise OperationTimeout(
                "no records by Fetch, although the log has them",
                hint="look at the log of the partition's leader, and run the task again; it reads the same records",
                **asdict(wanted[place]) | {"start": position},
            )


def _meant(error: KohortError, left: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions of `left` that an error is about. Some errors have only a topic."""
    topic, partition = error.place.get("topic"), error.place.get("partition")
    return [one for one in left if one.topic == topic and partition in (None, one.partition)]


def _why(consumer: "Consumer", place: TopicPartition, error: KohortError) -> str:
    if not isinstance(error, OffsetOutOfRange):
        return error.message
    try:
        return f"the log begins at {consumer.beginning_offsets([place])[place]}"
    except UnknownTopic as gone:
        return gone.message


def _next_there(consumer: "Consumer", wanted: OffsetRange, position: int, error: KohortError) -> int:
    """The offset at which to continue a range after a loss; its stop if no records are left.

    As in Spark's own source, a recreated or truncated log is read on if it reaches the position again.
    """
    if isinstance(error, UnknownTopic):
        return wanted.stop
    place = wanted.place
    try:
        first, end = consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
    except UnknownTopic:  # deleted since, or created again with fewer partitions
        return wanted.stop
    return max(first, position) if position < end else wanted.stop


def _ending_early(
    consumer: "Consumer",
    left: Mapping[TopicPartition, int],
    wanted: Mapping[TopicPartition, OffsetRange],
    *,
    skip_lost: bool,
) -> dict[TopicPartition, int]:
    """The log ends of partitions that end before their ranges.

    Raises UnknownTopic for a deleted topic, and OperationTimeout if no broker responds.
    """
    try:
        # The look-up of ends waits for an unknown topic until its time-out. With `skip_lost` that wait is safer. The
        # broker may only be late to learn of the topic, and its records would be skipped. A failed task is repeated.
        for topic in () if skip_lost else {place.topic for place in left}:
            consumer.partitions_for(topic, fresh=True)
        return {place: end for place, end in consumer.end_offsets(left).items() if end < wanted[place].stop}
    except OperationTimeout as error:
        one = wanted[next(iter(left))]
        raise OperationTimeout(
            "no response to Metadata or ListOffsets requests while a range is read",
            hint="run the task again; it reads the same records",
            **asdict(one),
        ) from error


def _lost(wanted: OffsetRange, position: int, why: str) -> DataLossError:
    return data_loss(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"planned records are not in the log: {why}",
        hint="causes are retention, a deleted topic or a truncated log; plan again, or allow the loss",
        **asdict(wanted) | {"start": position},
    )
