"""`spark.readStream.format("kohort")`: Spark keeps the offsets, so a batch that is run again reads the same.

An offset, as Spark logs it, is `{"topic": {"0": 23, "1": 17}}`: the next offset to read of every partition. A partition
that appears while the stream runs is read from its beginning. What Spark has finished is committed for `kafka.group.id`
where one is given, so that lag is seen by any tool. (A stream with `group` is another thing: see group_stream.py.)

PySpark 4.0 and 4.1 do not tell a stream where it is when they ask how far it may go. It remembers that itself, but
after a restart it cannot know: there the first batch takes all there is, whatever maxOffsetsPerTrigger says.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer, OperationTimeout, UnknownTopic
from kohort.spark.errors import OptionError, data_loss
from kohort.spark.offset_json import Logged, is_of_group, logged, unlogged
from kohort.spark.options import SourceOptions
from kohort.spark.partition_reader import RangePartition, batches
from kohort.spark.plan import LogRange, compiled
from kohort.spark.ranges import OffsetRange, shared, split
from kohort.spark.read_limits import Offsets, Pace
from kohort.spark.worker_tuning import Shipped

if TYPE_CHECKING:
    import pyarrow as pa

try:  # since Spark 4.2; before, an available-now trigger runs what one batch holds
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable as ReadAllAvailable,
    )
    from pyspark.sql.streaming.datasource import (
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:
    ReadAllAvailable = ReadMaxRows = ReadMinRows = None
    SupportsTriggerAvailableNow = object

log = logging.getLogger(__name__)

TELL_S = 5.0  # a stream is held up so long, once a batch, by a group's coordinator that is away
SMALL_TASK_OFFSETS = 500  # a task costs Spark more than reading ten times as many does


class StreamBase(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # as in source.py
    """The common part of both kinds of stream: limits, and reading. `clock` gives seconds, of no particular
    beginning."""

    def __init__(self, options: SourceOptions, schema: StructType, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._schema = schema
        self._clock = clock
        self._pace = Pace(
            options.max_offsets_per_trigger, options.min_offsets_per_trigger, options.max_trigger_delay_ms / 1000
        )

    def getDefaultReadLimit(self) -> Any:
        # What the limits are is known here already; what Spark hands back says whether they count (Trigger.Once: no).
        if self._pace.most is not None:
            return ReadMaxRows(self._pace.most)
        return ReadAllAvailable() if self._pace.least is None else ReadMinRows(self._pace.least)

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        if isinstance(partition, RangePartition):
            yield from batches(partition.value, self._options, self._schema)

    def _paced(self, before: Mapping[TopicPartition, int], ends: Offsets, limit: Any, *, hurry: bool) -> Offsets:
        if ReadAllAvailable is not None and isinstance(limit, ReadAllAvailable):
            return ends
        return self._pace.ends(before, ends, self._clock(), hurry=hurry)

    def _pieces(self, ranges: Sequence[OffsetRange]) -> list[InputPartition]:
        least, most = self._options.min_partitions, self._options.max_records_per_partition
        pieces = split(ranges, min_partitions=least, max_records_per_partition=most)
        alone = least is not None or most is not None
        return [RangePartition(*some) for some in shared(pieces, 0 if alone else SMALL_TASK_OFFSETS)]


class StreamReader(StreamBase):
    """Driver's side of a stream. With `kafka.group.id`, what a batch has finished is committed for that group."""

    def __init__(self, options: SourceOptions, schema: StructType, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(options, schema, clock)
        self._asking: Consumer | None = None
        self._target: Offsets | None = None
        self._reached: Offsets | None = None
        self._committed: Offsets | None = None
        self._there: frozenset[TopicPartition] | None = None
        self._ends: Offsets = {}

    def __getstate__(self) -> dict[str, Any]:
        # Spark ships this object to executors for `read`; connections stay at home.
        return {**self.__dict__, "_asking": None}

    def initialOffset(self) -> Logged:
        # PySpark 4.0 and 4.1 ask how far a stream may go before they ask where it begins: "latest" is one place. So do
        # later ones for an available-now run, whose target is not behind where it begins.
        named = self._places(None) if self._reached is None else ()
        ends = self._target if self._reached is None else self._reached
        places = named if ends is None else tuple(ends)
        self._reached = LogRange(self._consumer(), places, has_group=False, latest=ends).resolve(
            self._options.start, "start", self._options.on_late_time
        )
        self._committed = self._reached  # nothing is read yet, so there is nothing to tell the group
        return logged(self._reached)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._consumer().end_offsets(self._places({}))

    def latestOffset(self, start: Logged | None = None, limit: Any = None) -> Logged:
        before = self._reached if start is None else _of_no_group(start)
        self._there = frozenset(self._places(before))
        if before is not None:
            self._tell_group(before)  # Spark asks for more when everything before it is done
            self._refuse_gone(before, self._there)
        if self._target is None:
            self._ends = self._consumer().end_offsets(self._there)
        else:
            self._ends = {place: end for place, end in self._target.items() if place in self._there}
        if before is None:
            log.warning("where the stream is cannot be known after a restart with this PySpark: no limit for one batch")
            self._reached = self._ends
            return logged(self._ends)
        begin = before | self._begin_of_new(before, self._ends)
        self._check(begin, self._ends)
        self._reached = self._paced(begin, self._ends, limit, hurry=self._target is not None)
        return logged(self._reached)

    def reportLatestOffset(self) -> Logged | None:
        return logged(self._ends) if self._ends else None

    def partitions(self, start: Logged, end: Logged) -> Sequence[InputPartition]:
        before, after = _of_no_group(start), _of_no_group(end)
        self._refuse_gone(before, after)
        before |= self._begin_of_new(before, after)
        stops = {place: stop for place, stop in after.items() if place in before}
        self._check(before, stops)
        self._reached = after
        return self._pieces(
            [OffsetRange(*place, before[place], max(before[place], stop)) for place, stop in stops.items()]
        )

    def commit(self, end: Logged) -> None:
        self._tell_group(unlogged(end))

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    def _tell_group(self, offsets: Offsets) -> None:
        # A commit for what is there no more would be tried until its deadline.
        there = {place: offset for place, offset in offsets.items() if self._there is None or place in self._there}
        if self._options.group is None or there == self._committed:
            return
        # An available-now run has all the time it needs: after its last batch there is no next one.
        wait_s = TELL_S if self._target is None else None
        try:
            self._consumer().commit(there, timeout_s=wait_s, allow_rewind=True)
        except OperationTimeout as error:
            # Where the stream is, Spark's log says; a coordinator that is away only hides its lag for a while.
            log.warning("the group is not told yet where the stream is: %s", error)
        else:
            self._committed = there

    def _consumer(self) -> Consumer:
        if self._asking is None:
            options = self._options
            self._asking = Consumer(group=options.group, **options.connect)
        return self._asking

    def _places(self, before: Mapping[TopicPartition, int] | None) -> tuple[TopicPartition, ...]:
        """Asked anew each time: topics and partitions may have been added. A topic may also be gone that was read.

        `before`: where the stream is; None where it begins, with everything that is named.
        """
        options, consumer = self._options, self._consumer()
        known = {place.topic for place in before or ()}
        may_lack = before is not None and options.skip_lost
        names = options.topics or sorted({place.topic for place in options.partitions})
        found: set[TopicPartition] = set()
        if options.pattern is not None:
            wanted = compiled(options.pattern)
            return tuple(
                sorted(p for name, places in consumer.topics().items() if wanted.fullmatch(name) for p in places)
            )
        everything = consumer.topics() if len(names) > 1 else {}
        for name in names:
            if may_lack and everything and name not in everything.keys() | known:
                continue  # gone for longer than a trigger, and not worth waiting for
            try:
                found.update(everything.get(name) or consumer.partitions_for(name, fresh=True))
            except UnknownTopic:
                if name not in known and not may_lack:
                    raise
        if options.partitions:
            strangers = sorted(set(options.partitions) - found - (before or {}).keys())
            if strangers and not may_lack:
                raise OptionError(
                    "no such partition", option="assign", topic=strangers[0].topic, partition=strangers[0].partition
                )
            found &= set(options.partitions)
        return tuple(sorted(found))

    def _refuse_gone(self, before: Iterable[TopicPartition], now: Iterable[TopicPartition]) -> None:
        gone = sorted(set(before) - set(now))
        if gone and not self._options.skip_lost:
            raise data_loss(
                "PARTITIONS_DELETED",
                f"{len(gone)} of the partitions that were read are there no more",
                hint=_ALLOW,
                topic=gone[0].topic,
                partition=gone[0].partition,
            )

    def _begin_of_new(self, before: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Offsets:
        """The first offsets of partitions that were added since and still exist."""
        added = ends.keys() - before.keys()
        if not added:
            return {}
        if self._there is None:  # a batch of an earlier life is run again
            self._there = frozenset(self._places({**before, **ends}))
        self._refuse_gone(added, self._there)
        begin = self._consumer().beginning_offsets(sorted(added & self._there))
        for place, offset in sorted(begin.items()):
            if offset and not self._options.skip_lost:
                raise data_loss(
                    "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                    f"a partition that was added begins at {offset}: what it held before is deleted already",
                    hint=_ALLOW,
                    topic=place.topic,
                    partition=place.partition,
                    offset=offset,
                )
        return begin

    def _check(self, before: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        for place, end in sorted(ends.items()):
            if end < before[place] and not self._options.skip_lost:
                raise data_loss(
                    "PARTITION_OFFSET_CHANGED",
                    f"the log ends at {end}, before what was read already",
                    hint=_ALLOW,
                    topic=place.topic,
                    partition=place.partition,
                    offset=before[place],
                )


def _of_no_group(offset: Mapping[str, Any]) -> Offsets:
    if is_of_group(offset):
        raise OptionError(
            "this checkpoint is of a stream that is a member of a group",
            option="group",
            hint="go on as a member, or take another checkpoint",
        )
    return unlogged(offset)


_ALLOW = (
    "the topic was deleted, made anew or truncated; start from another checkpoint, or allow it: failOnDataLoss=false"
)
