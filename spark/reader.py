"""The executor's part: read one range, knowing nothing but the range. Run again, it gives the same records."""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kohort.coordinator_client import OffsetOutOfRange, OperationTimeout, TopicRecreated, Truncation, UnknownTopic
from kohort.fastpath import RecordColumns
from kohort.spark.errors import DataLossError, data_loss
from kohort.spark.lending import lent
from kohort.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from kohort.coordinator_client import Consumer

POLL_TIMEOUT_S = 0.1
ASK_AFTER_S = 2.0
KIB = 1024
LEAST_FETCH_BYTES, MOST_FETCH_BYTES = 64 * KIB, 8 * KIB * KIB


def read_range(wanted: OffsetRange, settings: Mapping[str, Any], *, skip_lost: bool = False) -> Iterator[RecordColumns]:
    """The range's records in order, as columns as they were fetched. `settings`: those of `Consumer`.

    An offset of the range without a record (compacted, a transaction's marker, aborted under read_committed) is no
    loss. Raises DataLossError when the log does not hold the range any more; with `skip_lost` what is left is read.
    """
    if not len(wanted):
        return
    with lent({**ours(wanted), **settings}) as consumer:
        consumer.assign({wanted.place: wanted.start}, until={wanted.place: wanted.stop})
        yield from _follow(consumer, wanted, skip_lost=skip_lost)


def ours(wanted: OffsetRange) -> dict[str, Any]:
    """Settings that fit a range, where the user has none: a kibibyte an offset is asked for at once.

    What a fetch brings from behind a short range is bounded so, and a long range is fetched as by any consumer. Sizes
    are powers of two: a consumer that is kept fits the next range, if that is about as long.
    """
    size = 1 << (min(max(len(wanted) * KIB, LEAST_FETCH_BYTES), MOST_FETCH_BYTES) - 1).bit_length()
    return {
        "auto_offset_reset": "none", "client_id": "kohort-spark",
        "max_partition_fetch_bytes": size, "max_buffered_bytes": 4 * size,
    }  # fmt: skip


def _follow(consumer: "Consumer", wanted: OffsetRange, *, skip_lost: bool) -> Iterator[RecordColumns]:
    position = wanted.start
    heard_at = time.monotonic()
    while position < wanted.stop:
        try:
            slices = consumer.poll(POLL_TIMEOUT_S)
        except OffsetOutOfRange as error:
            first = consumer.beginning_offsets([wanted.place])[wanted.place]
            if not skip_lost or not position < first:
                raise _lost(wanted, position, f"the log begins at {first}") from error
            position = first
            if position < wanted.stop:
                consumer.seek(wanted.place, position)
            continue
        except (TopicRecreated, Truncation, UnknownTopic) as error:
            raise _lost(wanted, position, error.message) from error
        for columns in slices:
            position = columns.next_offset
            if len(columns):
                yield columns
        if slices:
            heard_at = time.monotonic()
        elif (there := consumer.position(wanted.place)) > position:
            # Nothing but markers and gaps: the position moves, and poll has nothing to show.
            position, heard_at = there, time.monotonic()
        elif time.monotonic() - heard_at > ASK_AFTER_S:
            if _ends_early(consumer, wanted):
                if skip_lost:
                    return
                raise _lost(wanted, position, "the log ends before the range does")
            heard_at = time.monotonic()


def _ends_early(consumer: "Consumer", wanted: OffsetRange) -> bool:
    """Whether waiting is in vain. Asking also finds out that nobody answers any more."""
    try:
        return consumer.end_offsets([wanted.place])[wanted.place] < wanted.stop
    except OperationTimeout as error:
        raise OperationTimeout(
            "no broker answers while a range is read", hint="the task can be run again: a range always reads the same",
            topic=wanted.topic, partition=wanted.partition, start=wanted.start, stop=wanted.stop,
        ) from error  # fmt: skip


def _lost(wanted: OffsetRange, position: int, why: str) -> DataLossError:
    return data_loss(
        "COULD_NOT_READ_OFFSET_RANGE",
        f"planned records are not in the log: {why}",
        hint="retention, a deleted topic or a truncated log took them; plan anew, or allow the loss",
        topic=wanted.topic, partition=wanted.partition, start=position, stop=wanted.stop,
    )  # fmt: skip
