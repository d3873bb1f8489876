"""The executor's part: read ranges, knowing nothing but them. Run again, it gives the same records."""

import time
from collections.abc import Iterable, Iterator, Mapping
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
ASK_AFTER_S = 2.0
KIB = 1024
LEAST_FETCH_BYTES, MOST_FETCH_BYTES = 64 * KIB, 8 * KIB * KIB
# Whatever the settings say: who went elsewhere by itself would hide a loss, and who committed, what a job that fails
# has not done.
DECIDED: Mapping[str, Any] = MappingProxyType({"auto_offset_reset": "none", "enable_auto_commit": False})


def read_range(wanted: OffsetRange, settings: Mapping[str, Any], *, skip_lost: bool = False) -> Iterator[RecordColumns]:
    """As `read_ranges`, of one range."""
    return read_ranges((wanted,), settings, skip_lost=skip_lost)


def read_ranges(
    ranges: Iterable[OffsetRange], settings: Mapping[str, Any], *, skip_lost: bool = False
) -> Iterator[RecordColumns]:
    """The records of ranges, one a partition, as columns as they were fetched: each range's in order, ranges in turn.

    `settings`: those of `Consumer`. An offset of a range without a record (compacted, a transaction's marker, aborted
    under read_committed) is no loss. Raises DataLossError when the log does not hold a range any more; with `skip_lost`
    what is left is read.
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
    """Settings that fit ranges of so many offsets, where the user has none: a kibibyte an offset is asked for at once.

    What a fetch brings from behind a short range is bounded so, and a long range is fetched as by any consumer. Sizes
    are powers of two: a consumer that is kept fits the next range, if that is about as long.
    """
    size = 1 << (min(max(offsets * KIB, LEAST_FETCH_BYTES), MOST_FETCH_BYTES) - 1).bit_length()
    return {"client_id": "kohort-spark", "max_partition_fetch_bytes": size, "max_buffered_bytes": 4 * size}


def _follow(
    consumer: "Consumer", wanted: Mapping[TopicPartition, OffsetRange], *, skip_lost: bool
) -> Iterator[RecordColumns]:
    left = {place: one.start for place, one in wanted.items()}  # where each range is that is not at its end

    def reached(place: TopicPartition, position: int) -> None:
        left[place] = position
        if position >= wanted[place].stop:
            del left[place]

    heard_at = time.monotonic()
    while left:
        try:
            slices = consumer.poll(POLL_TIMEOUT_S)
            silent = not slices and time.monotonic() - heard_at > ASK_AFTER_S
            ends = _ending_early(consumer, left, wanted) if silent else {}
        except (OffsetOutOfRange, TopicRecreated, Truncation, UnknownTopic) as error:
            meant = _meant(error, left)  # nothing, if something has happened to a range that is read already
            if meant and not skip_lost:
                raise _lost(wanted[meant[0]], left[meant[0]], _why(consumer, meant[0], error)) from error
            for place in meant:
                reached(place, _next_there(consumer, wanted[place], left[place], error))
                if place in left:
                    consumer.seek(place, left[place])
            continue
        for columns in slices:
            if len(columns):
                yield columns
            reached(TopicPartition(columns.topic, columns.partition), columns.next_offset)
        # Nothing but markers and gaps: a position moves, and poll has nothing to show.
        there = {} if slices else {place: consumer.position(place) for place in left}
        moved = {place: position for place, position in there.items() if position > left[place]}
        for place, position in moved.items():
            reached(place, position)
        if slices or moved or silent:
            heard_at = time.monotonic()
        for place, end in ends.items():
            if place not in left:
                continue
            if not skip_lost:
                raise _lost(wanted[place], left[place], "the log ends before the range does")
            if left[place] >= end:  # else the rest still comes: its leader may only be slow, or new
                del left[place]


def _meant(error: KohortError, left: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The ranges of `left` that an error is about; some errors name a topic only."""
    topic, partition = error.place.get("topic"), error.place.get("partition")
    return [one for one in left if one.topic == topic and partition in (None, one.partition)]


def _why(consumer: "Consumer", place: TopicPartition, error: KohortError) -> str:
    if not isinstance(error, OffsetOutOfRange):
        return error.message
    return f"the log begins at {consumer.beginning_offsets([place])[place]}"


def _next_there(consumer: "Consumer", wanted: OffsetRange, position: int, error: KohortError) -> int:
    """The offset at which a range goes on in a log that has lost a part of it; its stop if nothing is left.

    As for Spark's own source: a log that was made anew, or truncated, and reaches the position again, is read on there.
    """
    if isinstance(error, UnknownTopic):
        return wanted.stop
    place = wanted.place
    first, end = consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
    return max(first, position) if position < end else wanted.stop


def _ending_early(
    consumer: "Consumer", left: Mapping[TopicPartition, int], wanted: Mapping[TopicPartition, OffsetRange]
) -> dict[TopicPartition, int]:
    """Which of these cannot be read whole, and where they end. Asking also finds out that nobody answers any more."""
    try:
        return {place: end for place, end in consumer.end_offsets(left).items() if end < wanted[place].stop}
    except OperationTimeout as error:
        one = wanted[next(iter(left))]
        raise OperationTimeout(
            "no broker answers while a range is read",
            hint="the task can be run again: a range always reads the same",
            topic=one.topic,
            partition=one.partition,
            start=one.start,
            stop=one.stop,
        ) from error


def _lost(wanted: OffsetRange, position: int, why: str) -> DataLossError:
    return data_loss(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"planned records are not in the log: {why}",
        hint="retention, a deleted topic or a truncated log took them; plan anew, or allow the loss",
        topic=wanted.topic,
        partition=wanted.partition,
        start=position,
        stop=wanted.stop,
    )
