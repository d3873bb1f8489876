"""`spark.readStream.format("kohort")`: Spark keeps the offsets, so a batch that is run again reads the same.

An offset, as Spark logs it, is `{"topic": {"0": 23, "1": 17}}`: the next offset to read of every partition. A partition
that appears while the stream runs is read from its beginning.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kohort.coordinator_client import Consumer
from kohort.fastpath import TopicPartition
from kohort.spark.errors import DataLossError
from kohort.spark.options import SourceOptions
from kohort.spark.plan import Log, places_of
from kohort.spark.ranges import OffsetRange, split
from kohort.spark.source import RangePartition, batches

if TYPE_CHECKING:
    import pyarrow as pa

try:  # since Spark 4.2; before, an available-now trigger runs what one batch holds
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:
    ReadAllAvailable = ReadMaxRows = None
    SupportsTriggerAvailableNow = object

Offsets = dict[TopicPartition, int]
Logged = dict[str, dict[str, int]]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # as in source.py
    """Driver's side of a stream. With `kafka.group.id`, what a batch has finished is committed for that group."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._asking: Consumer | None = None
        self._target: Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Spark ships this object to executors for `read`; connections stay at home.
        return {**self.__dict__, "_asking": None}

    def initialOffset(self) -> Logged:
        return logged(self._log().resolve(self._options.start, "start", self._options.on_late_time))

    def getDefaultReadLimit(self) -> Any:
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = dict(self._log().latest())

    def latestOffset(self, start: Logged | None = None, limit: Any = None) -> Logged:
        ends = dict(self._log().latest() if self._target is None else self._target)
        if start is None:
            return logged(ends)
        before = unlogged(start)
        for place, end in ends.items():
            if end < before.get(place, 0):
                if not self._options.skip_lost:
                    raise DataLossError(
                        f"the log ends at {end}, before what was read already",
                        hint="the topic was made anew or truncated; start from another checkpoint, or allow the loss",
                        topic=place.topic, partition=place.partition, offset=before[place],
                    )  # fmt: skip
                ends[place] = before[place]
        most = getattr(limit, "max_rows", None)
        return logged(ends if most is None else limited(before, ends, most))

    def partitions(self, start: Logged, end: Logged) -> Sequence[InputPartition]:
        before, after = unlogged(start), unlogged(end)
        if gone := sorted(before.keys() - after.keys()):
            raise DataLossError(
                "a partition that was read is there no more", topic=gone[0].topic, partition=gone[0].partition
            )
        ranges = [OffsetRange(*place, before.get(place, 0), stop) for place, stop in after.items()]
        pieces = split(
            ranges, min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )  # fmt: skip
        return [RangePartition(one) for one in pieces]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        if isinstance(partition, RangePartition):
            yield from batches(partition.value, self._options, self._schema)

    def commit(self, end: Logged) -> None:
        if self._options.group is not None:
            self._consumer().commit(unlogged(end), allow_rewind=True)

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    def _consumer(self) -> Consumer:
        if self._asking is None:
            options = self._options
            self._asking = Consumer(options.bootstrap, group=options.group, **options.settings)
        return self._asking

    def _log(self) -> Log:
        """Asked anew each time: partitions may have been added."""
        consumer = self._consumer()
        places = places_of(consumer, self._options.topics, self._options.partitions)
        return Log(consumer, places, has_group=self._options.group is not None)


def limited(before: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], most: int) -> Offsets:
    """Ends that are `most` offsets further than `before` in all, each partition in proportion to what it has."""
    waiting = {place: end - before.get(place, 0) for place, end in ends.items()}
    whole = sum(waiting.values())
    if whole <= most:
        return dict(ends)
    share = {place: count * most // whole for place, count in waiting.items()}
    # What rounding left goes to the longest queues, so that every trigger moves, however small its limit.
    left = most - sum(share.values())
    for place in sorted(waiting, key=lambda place: (share[place] - waiting[place], place))[:left]:
        share[place] += 1
    return {place: before.get(place, 0) + count for place, count in share.items()}


def logged(offsets: Mapping[TopicPartition, int]) -> Logged:
    """As Spark's log holds it."""
    found: Logged = {}
    for place, offset in sorted(offsets.items()):
        found.setdefault(place.topic, {})[str(place.partition)] = offset
    return found


def unlogged(offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Out of Spark's log."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, numbers in offsets.items()
        for number, offset in numbers.items()
    }
