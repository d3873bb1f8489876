"""`spark.readStream.format("kohort")`: Spark keeps the offsets, so a repeated batch reads the same records.

A logged offset is `{"topic": {"0": 23, "1": 17}}`: the next offset of every partition. A partition that is added while
the stream runs is read from its beginning. Finished batches are committed for `kafka.group.id`, if it is set, so that
any tool shows the lag. For streams with `group` see group_stream.py.

PySpark 4.0 and 4.1 pass neither the start offset nor the trigger to `latestOffset`. The stream keeps its position
itself. They run Trigger.AvailableNow and Trigger.Once as one batch, which must have everything. So the first batch of a
run ignores maxOffsetsPerTrigger.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kohort.common import TopicPartition
from kohort.common.log_context import logger
from kohort.coordinator_client import Consumer, OperationTimeout, TopicRecreated, UnknownTopic
from kohort.spark.errors import OptionError, data_loss
from kohort.spark.offset_json import Logged, is_of_group, logged, unlogged
from kohort.spark.options import SourceOptions
from kohort.spark.partition_reader import RangePartition, Reading
from kohort.spark.plan import LogRange, compiled, no_offset
from kohort.spark.ranges import OffsetRange, shared, split
from kohort.spark.read_limits import Offsets, Pace

try:  # since Spark 4.2
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
except ImportError:
    ReadAllAvailable = ReadMaxRows = ReadMinRows = None
    SupportsTriggerAvailableNow = object

log = logger(__name__)

COMMIT_S = 5.0  # the longest delay of a batch by an unreachable group coordinator
LOOKS, LOOK_S = 10, 0.5  # for partitions that a broker may not have learned of yet
SMALL_TASK_OFFSETS = 500  # a task costs Spark more than reading ten times as many offsets
_ALLOW = "the topic was deleted, created again or truncated; start from another checkpoint, or set failOnDataLoss=false"


class StreamBase(Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]  # as in source.py
    """Limits and reading of streams with and without a group. `clock` gives seconds since any point in time."""

    _rewound_hint = _ALLOW

    def __init__(self, options: SourceOptions, schema: StructType, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(options, schema)
        self._clock = clock
        self._pace = Pace(
            options.max_offsets_per_trigger, options.min_offsets_per_trigger, options.max_trigger_delay_ms / 1000
        )
        self._latest: Offsets = {}
        self._target: Offsets | None = None  # the end of an available-now run
        self._metadata_consumer: Consumer | None = None
        self._topic_ids: dict[str, int] = {}

    def getDefaultReadLimit(self) -> Any:
        # Spark passes this limit back to `latestOffset`, unless the trigger has no limit (Trigger.Once).
        if self._pace.most is not None:
            return ReadMaxRows(self._pace.most)
        return ReadAllAvailable() if self._pace.least is None else ReadMinRows(self._pace.least)

    def reportLatestOffset(self) -> Logged | None:
        """The ends of the logs at the last batch, for the progress only. A member has those of its own partitions."""
        return logged(self._latest) if self._latest else None

    def stop(self) -> None:
        if self._metadata_consumer is not None:
            self._metadata_consumer.close()
            self._metadata_consumer = None

    def _paced(self, before: Mapping[TopicPartition, int], ends: Offsets, limit: Any, *, hurry: bool) -> Offsets:
        if ReadAllAvailable is not None and isinstance(limit, ReadAllAvailable):
            return ends
        return self._pace.ends(before, ends, self._clock(), hurry=hurry)

    def _consumer(self) -> Consumer:
        if self._metadata_consumer is None:
            self._metadata_consumer = Consumer(group=self._options.group, **self._options.connect)
        return self._metadata_consumer

    def _created_again(self, topics: Iterable[str]) -> frozenset[str]:
        """The topics that have another id than at the last trigger. Call it at each trigger, after new metadata."""
        before, consumer = self._topic_ids, self._consumer()
        # Brokers before 2.8 have no ids.
        self._topic_ids = {topic: consumer.topic_id(topic).int or before.get(topic, 0) for topic in topics}
        return frozenset(topic for topic, now in self._topic_ids.items() if (before.get(topic) or now) != now)

    def _of_existing(
        self, request: Callable[[Iterable[TopicPartition]], Offsets], places: Iterable[TopicPartition]
    ) -> Offsets:
        """The offsets of partitions. Topics that are deleted meanwhile are left out, if their loss is allowed."""
        places = sorted(places)
        try:
            return request(places)
        except UnknownTopic as error:
            left = [place for place in places if place.topic != error.place.get("topic")]
            if not self._options.skip_lost or left == places:
                raise
            return self._of_existing(request, left)

    def _check(self, before: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        for place, end in sorted(ends.items()):
            if end < before[place] and not self._options.skip_lost:
                raise data_loss(
                    "PARTITION_OFFSET_CHANGED",
                    f"the log ends at {end}, below the position of the stream",
                    hint=self._rewound_hint,
                    **place._asdict(),
                    offset=before[place],
                )

    def _pieces(self, ranges: Sequence[OffsetRange]) -> list[InputPartition]:
        least, most = self._options.min_partitions, self._options.max_records_per_partition
        pieces = split(ranges, min_partitions=least, max_records_per_partition=most)
        alone = least is not None or most is not None
        return [RangePartition(*some) for some in shared(pieces, 0 if alone else SMALL_TASK_OFFSETS)]


class StreamReader(StreamBase):
    """The driver's side of a stream. With `kafka.group.id`, finished batches are committed for that group."""

    def __init__(self, options: SourceOptions, schema: StructType, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(options, schema, clock)
        self._reached: Offsets | None = None
        self._committed: Offsets | None = None
        self._there: frozenset[TopicPartition] | None = None
        self._began = False
        self._is_new = False  # no batch is finished
        self._unnamed: Sequence[TopicPartition] = ()  # partitions that `startingOffsets` lacks

    def initialOffset(self) -> Logged:
        # Spark logs the end of the first batch, but not its start. So "latest" must be that end, which a restart knows.
        # Every PySpark calls this method after the first `latestOffset`, and since 4.2 also before it.
        first = self._reached is None
        named = self._places(None) if first else ()
        ends = self._target if first else self._reached
        places = named if ends is None else tuple(ends)
        if isinstance(self._options.start, Mapping) and (first or self._is_new):
            # They may be added ones. The first `latestOffset` refuses them, unless a batch is repeated before it.
            self._unnamed = sorted(set(places) - self._options.start.keys())
            places = tuple(place for place in places if place in self._options.start)
        self._reached = LogRange(self._consumer(), places, has_group=False, latest=ends).resolve(
            self._options.start, "start", self._options.on_late_time
        )
        self._is_new = True
        self._committed = self._reached  # nothing is read yet, so there is nothing to commit
        return logged(self._reached)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._of_existing(self._consumer().end_offsets, self._places({}))

    def latestOffset(self, start: Logged | None = None, limit: Any = None) -> Logged:
        if self._unnamed and not self._began:
            raise no_offset("start", self._unnamed[0])
        before = self._reached if start is None else _of_no_group(start)
        listed, ids = self._listed(before), self._topic_ids
        again = self._created_again({place.topic for place in listed})
        # A broker may not have learned of added partitions yet that another one has listed. A topic never loses any.
        same = {topic for topic, now in self._topic_ids.items() if now and now == ids.get(topic)}
        kept = [place for place in before or () if place.topic in same]
        # As if it were missing at this trigger. The next one reads it from its beginning, as an added topic.
        self._there = frozenset(place for place in (*listed, *kept) if place.topic not in again)
        if before is not None:
            self._commit_to_group(before)  # Spark plans a batch after the earlier ones are done
            self._refuse_gone(before, self._there)
        if self._target is None:
            self._latest = self._of_existing(self._consumer().end_offsets, self._there)
        else:
            self._target = {place: end for place, end in self._target.items() if place.topic not in again}
            # The broker that was requested for the target may not have listed all partitions of the stream yet.
            ends = {**(before or {}), **self._target}
            self._latest = {place: end for place, end in ends.items() if place in self._there}
        first, self._began = start is None and not self._began, True
        if first and self._pace.most is not None:
            log.warning(
                "the first batch of a run has no limit, because this version of PySpark does not pass the trigger"
            )
        if before is None:
            self._reached = self._latest
            return logged(self._latest)
        begin = before | self._begin_of_new(before, self._latest)
        self._latest = {place: end for place, end in self._latest.items() if place in begin}
        self._check(begin, self._latest)
        hurry = self._target is not None
        self._reached = self._latest if first else self._paced(begin, self._latest, limit, hurry=hurry)
        return logged(self._reached)

    def partitions(self, start: Logged, end: Logged) -> Sequence[InputPartition]:
        before, after = _of_no_group(start), _of_no_group(end)
        if self._is_new and not self._began:
            before = self._start_of_repeated(before, after)
            self._unnamed = ()  # the run that planned this batch has found an offset for each partition of that time
        self._refuse_gone(before, after)
        before |= self._begin_of_new(before, after)
        stops = {place: stop for place, stop in after.items() if place in before}
        self._check(before, stops)
        self._reached = after
        return self._pieces(
            [OffsetRange(*place, before[place], max(before[place], stop)) for place, stop in stops.items()]
        )

    def commit(self, end: Logged) -> None:
        self._commit_to_group(unlogged(end))

    def _commit_to_group(self, offsets: Offsets) -> None:
        # A commit for a deleted topic would be retried until its deadline.
        there = {place: offset for place, offset in offsets.items() if self._there is None or place in self._there}
        if self._options.group is None or there == self._committed:
            return
        # An available-now run has no later batch that would commit again.
        wait_s = COMMIT_S if self._target is None else None
        try:
            self._consumer().commit(there, timeout_s=wait_s, allow_rewind=True)
        except (OperationTimeout, TopicRecreated, UnknownTopic) as error:
            # Spark's log has the position. A missing commit only makes the group's lag too large for a while. The next
            # trigger finds out that a topic was deleted.
            log.warning("the stream's offsets are not committed yet: %s", error)
        else:
            self._committed = there

    def _listed(self, before: Mapping[TopicPartition, int] | None) -> tuple[TopicPartition, ...]:
        """`_places`, requested again for a while if it lacks partitions of a topic whose id is not known yet.

        A restarted stream knows no ids. A topic with fewer partitions may be a new one, or listed by a lagging broker.
        """
        unknown = {place for place in before or () if not self._topic_ids.get(place.topic)}
        if self._options.partitions:
            unknown.intersection_update(self._options.partitions)
        for look in range(LOOKS):
            if look:
                time.sleep(LOOK_S)
            listed = self._places(before)
            topics = {place.topic for place in listed}
            if not any(place.topic in topics for place in unknown.difference(listed)):
                break
        return listed

    def _places(self, before: Mapping[TopicPartition, int] | None) -> tuple[TopicPartition, ...]:
        """The partitions of the stream. Topics and partitions may have been added or deleted since the last call.

        `before`: the position of the stream. None at its start, when every named topic must exist.
        """
        options, consumer = self._options, self._consumer()
        known = {place.topic for place in before or ()}
        may_lack = before is not None and options.skip_lost
        names = options.topics or sorted({place.topic for place in options.partitions})
        found: set[TopicPartition] = set()
        everything = consumer.topics() if len(names) != 1 else {}
        if options.pattern is not None:
            # A broker may not have learned of a topic yet that another broker has listed. So known ones are looked up.
            names = sorted(filter(compiled(options.pattern).fullmatch, everything.keys() | known))
        for name in names:
            if may_lack and everything and name not in everything.keys() | known:
                continue  # missing for longer than a trigger, so it is not waited for
            try:
                found.update(everything.get(name) or consumer.partitions_for(name, fresh=True))
            except UnknownTopic:
                if name not in known and not may_lack:
                    raise
        if options.partitions:
            strangers = sorted(set(options.partitions) - found - (before or {}).keys())
            if strangers and not may_lack:
                raise OptionError("no such partition", option="assign", **strangers[0]._asdict())
            found &= set(options.partitions)
        return tuple(sorted(found))

    def _refuse_gone(self, before: Iterable[TopicPartition], now: Iterable[TopicPartition]) -> None:
        gone = sorted(set(before) - set(now))
        if gone and not self._options.skip_lost:
            raise data_loss(
                "PARTITIONS_DELETED",
                f"{len(gone)} partitions of the stream were deleted",
                hint=_ALLOW,
                **gone[0]._asdict(),
            )

    def _start_of_repeated(self, initial: Offsets, ends: Offsets) -> Offsets:
        """The start of the first batch, which Spark repeats after a restart.

        `initial` is the start that was found after the restart. It may have partitions that were added after the batch.
        The offset of a word or a time may be above the batch's end. "earliest" is so if all records were deleted.
        """
        bound = self._options.start
        points = bound if isinstance(bound, Mapping) else dict.fromkeys(initial, bound)
        return {
            place: offset if isinstance(points[place], int) else min(offset, ends[place])
            for place, offset in initial.items()
            if place in ends
        }

    def _begin_of_new(self, before: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> Offsets:
        """The first offsets of added partitions that still exist."""
        added = ends.keys() - before.keys()
        if not added:
            return {}
        if self._there is None:  # a batch is repeated after a restart
            self._there = frozenset(self._listed({**before, **ends}))
        self._refuse_gone(added, self._there)
        begin = self._of_existing(self._consumer().beginning_offsets, added & self._there)
        for place, offset in sorted(begin.items()):
            if offset and not self._options.skip_lost:
                raise data_loss(
                    "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                    f"an added partition begins at {offset}, because earlier records are already deleted",
                    hint=_ALLOW,
                    **place._asdict(),
                    offset=offset,
                )
        return begin


def _of_no_group(offset: Mapping[str, Any]) -> Offsets:
    if is_of_group(offset):
        raise OptionError(
            "the checkpoint was written by a stream with group",
            option="group",
            hint="set group, or use a new checkpoint",
        )
    return unlogged(offset)
