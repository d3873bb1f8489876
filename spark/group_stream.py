"""`spark.readStream.format("kohort").option("group", "billing")`: a stream whose driver is a member of the group.

Several Spark applications and plain consumers share one group. Each reads its assignment, under the generation of that
assignment. A logged offset has the ranges of one micro-batch and their generation:
`{"generation": 3, "ranges": {"topic": {"0": [5, 9]}}}`. So a repeated batch reads the same records. A batch is
committed after Spark has finished it. After a crash another application reads uncommitted records again, under another
generation.
"""

import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from kohort.common import TopicPartition
from kohort.coordinator_client import UnknownTopic
from kohort.spark.errors import OptionError, data_loss
from kohort.spark.group_member import NOTHING, SparkGroupMember, TakenRecords
from kohort.spark.offset_json import is_of_group
from kohort.spark.options import SourceOptions
from kohort.spark.plan import places_of
from kohort.spark.ranges import OffsetRange
from kohort.spark.stream import ReadAllAvailable, StreamBase

LoggedBatch = dict[str, Any]
JOIN_S = 60.0


class GroupStreamReader(StreamBase):
    """The driver's side of a stream that is a group member. It commits a batch before it plans the next one.

    Spark's own `commit` does nothing.
    """

    _rewound_hint = "the topic was created again or truncated; reset the group's offsets"

    def __init__(self, options: SourceOptions, schema: StructType, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(options, schema, clock)
        self._member: SparkGroupMember | None = None
        self._end_of_planner = EndOfPlanner()
        self._gone: frozenset[str] = frozenset()

    def initialOffset(self) -> LoggedBatch:
        return logged_batch(NOTHING)

    def prepareForTriggerAvailableNow(self) -> None:
        consumer, options = self._consumer(), self._options
        topics = [one for one in options.topics if not options.skip_lost or self._is_there(one)]
        self._target = self._of_existing(consumer.end_offsets, places_of(consumer, topics, (), options.pattern))

    def latestOffset(self, start: LoggedBatch | None = None, limit: Any = None) -> LoggedBatch:
        assert start is not None
        before = unlogged_batch(start)
        if self._member is None:
            if before == NOTHING:  # a topic that is missing later was deleted
                places_of(self._consumer(), self._options.topics, ())
            self._end_of_planner.raises_system_exit()
            self._member = SparkGroupMember(self._options, before)
        topics = self._member.topics
        missing = self._missing(topics)
        known = self._topic_ids
        again = self._created_again(topics - missing)
        if self._member.rebalancing:  # the topics of revoked partitions may come back
            self._topic_ids = known | self._topic_ids
        self._gone = missing | again
        self._member.forget(missing, again)
        self._member.finish(JOIN_S)  # Spark plans a batch after the earlier ones are done
        if self._gone and not self._options.skip_lost:
            raise data_loss(
                "PARTITIONS_DELETED",
                "a topic that the group reads was deleted",
                topic=min(self._gone),
                hint="restart the query to read the other topics, or set failOnDataLoss=false",
            )
        # Without a limit this may be the only request of the run (Trigger.Once). The default is without a limit, too.
        to_the_end = self._target is not None  # Spark ends such a run at a trigger without records
        at_once = to_the_end or isinstance(limit, ReadAllAvailable)
        while True:
            if at_once and not self._member.wait_for_assignment(JOIN_S, settled=to_the_end):
                return start
            taken = self._member.take(lambda positions: self._ends(positions, limit))
            if taken.ranges:
                break
            if not (to_the_end and self._member.rebalancing):
                return start
        end = logged_batch(taken)
        # A topic that was created again may have the same ranges, as may another group. Spark runs no batch for an
        # offset that equals the last one.
        return end if end != start else {**end, "again": True}

    def partitions(self, start: LoggedBatch, end: LoggedBatch) -> Sequence[InputPartition]:
        return self._pieces(unlogged_batch(end).ranges)

    def stop(self) -> None:
        self._end_of_planner.does_nothing()
        if self._member is not None:
            self._member.close()
            self._member = None
        self._end_of_planner.ends()
        super().stop()

    def _missing(self, topics: frozenset[str]) -> frozenset[str]:
        there = self._consumer().topics().keys() if len(topics) > 1 else frozenset[str]()
        # A topic that was missing at the last trigger is not waited for again.
        return frozenset(one for one in topics - there if (there and one in self._gone) or not self._is_there(one))

    def _is_there(self, topic: str) -> bool:
        try:
            return bool(self._consumer().partitions_for(topic, fresh=True))
        except UnknownTopic:
            return False

    def _ends(self, positions: Mapping[TopicPartition, int], limit: Any) -> Mapping[TopicPartition, int]:
        there = [place for place in positions if place.topic not in self._gone]
        known = self._of_existing(self._consumer().end_offsets, there)
        for topic in {place.topic for place in known} - self._topic_ids.keys():  # assigned since the trigger began
            self._topic_ids[topic] = self._consumer().topic_id(topic).int
        self._latest = dict(known)
        self._check(positions, known)
        lost = {place: end for place, end in known.items() if end < positions[place]}
        if self._target is not None:
            known = {place: min(end, self._target.get(place, 0)) for place, end in known.items()}
        ends = {place: max(end, positions[place]) for place, end in known.items()}
        return {**self._paced(positions, ends, limit, hurry=self._target is not None), **lost}


class EndOfPlanner:
    """The effect of SIGTERM in the process that plans a stream, which is the group member.

    At the end of a query Spark sends SIGTERM twice and closes the connection, in any order. PySpark calls `stop` only
    if Python code ends, so that a process without a handler would keep its partitions for the session timeout.
    Other threads than the main one cannot set a handler.
    """

    def __init__(self) -> None:
        self._before: Any = None

    def raises_system_exit(self) -> None:
        """Make SIGTERM end the Python code, once."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._raise)

    def does_nothing(self) -> None:
        """Ignore SIGTERM while the member leaves."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def ends(self) -> None:
        """Restore the handler that was there before."""
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)
            self._before = None

    def _raise(self, number: int, _frame: object) -> None:
        self.does_nothing()
        raise SystemExit(128 + number)


def logged_batch(taken: TakenRecords) -> LoggedBatch:
    """The form of Spark's log."""
    ranges: dict[str, dict[str, list[int]]] = {}
    for one in taken.ranges:
        ranges.setdefault(one.topic, {})[str(one.partition)] = [one.start, one.stop]
    return {"generation": taken.generation, "ranges": ranges}


def unlogged_batch(offset: Mapping[str, Any]) -> TakenRecords:
    """Parse an offset of Spark's log. Raises OptionError if a stream without a group has written it."""
    if not is_of_group(offset):
        raise OptionError(
            "the checkpoint was written by a stream without group",
            option="group",
            hint="use a new checkpoint; the stream starts at the group's committed offsets",
        )
    ranges = [
        OffsetRange(topic, int(number), *bounds)
        for topic, numbers in offset["ranges"].items()
        for number, bounds in numbers.items()
    ]
    return TakenRecords(offset["generation"], tuple(sorted(ranges)))
