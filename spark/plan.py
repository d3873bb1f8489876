"""Planning on the driver: the offsets to read, chosen once, before any record is read.

    plan("localhost:9092", topics=["payments"])                                   # all records at this time
    plan(..., start="committed", group="billing")                                 # records that the group has not read
    plan(..., start=datetime(2024, 1, 1, tzinfo=UTC), stop=datetime(...))         # a period
    plan(..., start={TopicPartition("payments", 0): 120, ...}, min_partitions=8)  # by offsets

Both ends are resolved to offsets at once, so a repeated read of a plan gives the same records.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any, Literal, Self, SupportsIndex, get_args

from kohort.common import TopicPartition
from kohort.coordinator_client import OperationTimeout, UnknownTopic
from kohort.spark.errors import PlanError, data_loss
from kohort.spark.ranges import OffsetRange, Within, check_limits, split
from kohort.spark.record_size import most_offsets

if TYPE_CHECKING:
    from kohort.coordinator_client import Consumer

Word = Literal["earliest", "latest", "committed"]
Point = Word | datetime | int
Bound = Word | datetime | Mapping[TopicPartition, Point]
"""One point for all partitions, or one for each."""

Loss = Literal["fail", "skip"]
Late = Literal["latest", "fail"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WORDS = ("earliest", "latest", "committed")
PATTERN_ERRORS = (re.error, OverflowError, RecursionError)  # the others are of patterns beyond a limit of Python


@dataclass(frozen=True, slots=True, order=True)
class PlanGap:
    """A gap between the wanted start and the real one. Offsets from `first` up to but not including `last`.

    `kind`:
    - "retention": records were deleted before they were read.
    - "rewound": the log ends before `last`, because the topic was created again or truncated.
    - "new": the group has no commit for the partition, so it is read from its beginning.
    """

    topic: str
    partition: int
    kind: Literal["retention", "rewound", "new"]
    first: int
    last: int

    def __str__(self) -> str:
        return _GAPS[self.kind].format(where=f"{self.topic}-{self.partition}", first=self.first, last=self.last)


_GAPS = {
    "retention": "{where}: offsets [{first}, {last}) are not in the log any more",
    "rewound": "{where}: the log ends at {first}, below the position {last} (created again or truncated)",
    "new": "{where}: no commit of the group, read from the beginning at {last}",
}


class ReadPlan(tuple[OffsetRange, ...]):
    """The result of `plan`: the ranges, sorted by place. `gaps` has missing records, for an operator."""

    gaps: tuple[PlanGap, ...]

    def __new__(cls, ranges: Iterable[OffsetRange] = (), gaps: Iterable[PlanGap] = ()) -> Self:
        """Create a plan of these ranges. `gaps`: the records that it would miss."""
        made = super().__new__(cls, ranges)
        made.gaps = tuple(gaps)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(self), self.gaps)

    @property
    def stops(self) -> dict[TopicPartition, int]:
        """The offsets to commit for a group after all ranges were read.

        A rewound log has its end here, although it has no range. Otherwise every later plan would skip its new
        records until the log reaches the old offset again.
        """
        found = {TopicPartition(gap.topic, gap.partition): gap.first for gap in self.gaps if gap.kind == "rewound"}
        for one in self:
            found[one.place] = max(found.get(one.place, 0), one.stop)
        return found


def plan(
    bootstrap: str,
    *,
    topics: Iterable[str] = (),
    partitions: Iterable[TopicPartition] = (),
    pattern: str | None = None,
    start: Bound = "earliest",
    stop: Bound = "latest",
    group: str | None = None,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    max_bytes_per_partition: int | None = None,
    on_data_loss: Loss = "fail",
    on_late_time: Late = "latest",
    within: Within | None = None,
    **settings: Any,
) -> ReadPlan:
    """Ranges of `topics`, of `partitions`, and of topics whose whole name matches `pattern`; sorted by place.

    - `start`, `stop`: "earliest", "latest", "committed" or an aware datetime, for all partitions or for each. A mapping
      may also have offsets. "committed" is the offset of `group`, or the earliest without a commit. A datetime is the
      first record that is not older. Under `isolation_level="read_committed"` the latest is the last stable offset.
    - `on_data_loss`: "fail" raises for a start or stop outside the log, "skip" moves it to the nearest end.
    - `on_late_time`: for a start after the last record, "latest" starts at the end, "fail" raises.
    - `within`: bounds of the plan.
    - `min_partitions`, `max_records_per_partition`: see `split`.
    - `max_bytes_per_partition`: the approximate size of a range's decompressed keys and values. It is estimated by one
      fetch of 64 KiB from the middle of each partition's range.
    - `settings`: those of `Consumer`.

    Raises PlanError, DataLossError, UnknownTopic, ConnectionFailed, OperationTimeout.
    """
    from kohort.coordinator_client import Consumer  # Spark also imports this module to check options

    _check_word("on_data_loss", on_data_loss, get_args(Loss))
    _check_word("on_late_time", on_late_time, get_args(Late))
    check_limits(
        min_partitions=min_partitions,
        max_records_per_partition=max_records_per_partition,
        max_bytes_per_partition=max_bytes_per_partition,
    )
    with Consumer(bootstrap, group=group, **settings) as consumer:
        wanted = (topics if isinstance(topics, str) else tuple(topics)), tuple(partitions), pattern
        places = _listed(consumer, bootstrap, *wanted)
        while True:
            log = LogRange(consumer, places, has_group=group is not None)
            try:
                starts, stops, gaps = _bounds(log, start, stop, on_data_loss, on_late_time)
                since = log.first_since(within.time_low_ms) if within is not None and within.time_low_ms else {}
                break
            except UnknownTopic:
                if pattern is None or (now := _listed(consumer, bootstrap, *wanted)) == places:
                    raise
                places = now  # a topic of the pattern was deleted since they were listed
    by_number = _by_number(start) & _by_number(stop)
    ranges = [
        # Two offsets in the wrong order are an error; a time or a commit behind the stop gives an empty range.
        OffsetRange(*place, starts[place], stops[place] if place in by_number else max(starts[place], stops[place]))
        for place in places
    ]
    if within is not None:
        ranges = [within.cut(one, since.get(one.place, 0)) for one in ranges if within.has(one.place)]
    most = None
    if max_bytes_per_partition is not None:
        most = most_offsets(ranges, max_bytes_per_partition, {"bootstrap": bootstrap, **settings})
    pieces = split(
        ranges, min_partitions=min_partitions, max_records_per_partition=max_records_per_partition, most_offsets=most
    )
    return ReadPlan(pieces, sorted(gaps))


def _listed(
    consumer: "Consumer",
    bootstrap: str,
    topics: Iterable[str],
    partitions: Iterable[TopicPartition],
    pattern: str | None,
) -> tuple[TopicPartition, ...]:
    """As `places_of`, with errors about a plan."""
    try:
        places = places_of(consumer, topics, partitions, pattern)
    except OperationTimeout as error:
        raise OperationTimeout(
            "no response to Metadata requests",
            hint="check the address, and that it can be reached from this machine",
            bootstrap=bootstrap,
            **error.place,
        ) from error
    if not places and pattern is None:
        raise PlanError("nothing to read", hint="name topics or partitions")
    return places


def _bounds(
    log: "LogRange", start: Bound, stop: Bound, on_data_loss: Loss, on_late_time: Late
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int], list[PlanGap]]:
    """The starts and stops of all partitions, and what they would miss."""
    starts, stops = log.resolve(start, "start", on_late_time), log.resolve(stop, "stop")
    gaps: list[PlanGap] = []
    if on_data_loss == "skip":
        gaps = log.gaps(starts)
        starts, stops = log.clamped(starts), log.clamped(stops)
    else:
        log.check(starts, "start")
        log.check(stops, "stop")
    return starts, stops, gaps + log.never_committed()


def _by_number(bound: Bound) -> set[TopicPartition]:
    """The partitions with an offset of the caller."""
    points = bound if isinstance(bound, Mapping) else {}
    return {TopicPartition(*place) for place, point in points.items() if isinstance(point, SupportsIndex)}


def _check_word(name: str, value: str, words: tuple[str, ...]) -> None:
    if value not in words:
        raise PlanError(f"{name} must be {' or '.join(words)}, not {value!r}")


def places_of(
    consumer: "Consumer", topics: Iterable[str], partitions: Iterable[TopicPartition], pattern: str | None = None
) -> tuple[TopicPartition, ...]:
    """The partitions of topics, of a pattern, and the given ones. Raises PlanError, UnknownTopic if one is missing."""
    if isinstance(topics, str):
        raise PlanError("topics must be a collection of names, not one string", hint=f"topics=[{topics!r}]")
    found = {place for topic in topics for place in consumer.partitions_for(topic)}
    named = {TopicPartition(*place) for place in partitions}
    known = {place for topic in {one.topic for one in named} for place in consumer.partitions_for(topic)}
    if strangers := sorted(named - known):
        raise PlanError("no such partition", **strangers[0]._asdict())
    if pattern is not None:
        wanted = compiled(pattern)
        found |= {place for name, places in consumer.topics().items() if wanted.fullmatch(name) for place in places}
    return tuple(sorted(found | named))


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern. Raises PlanError if it is no regular expression."""
    try:
        return re.compile(pattern)
    except PATTERN_ERRORS as error:
        raise PlanError(f"not a regular expression: {error}", pattern=pattern) from error


class LogRange:
    """The offsets of partitions. Each is requested once, on first use. `latest`: the ends, if they are known."""

    def __init__(
        self,
        consumer: "Consumer",
        places: tuple[TopicPartition, ...],
        *,
        has_group: bool,
        latest: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self._consumer = consumer
        self._places = places
        self._has_group = has_group
        if latest is not None:
            self.latest = latest
        self._uncommitted: list[TopicPartition] = []

    @cached_property
    def earliest(self) -> Mapping[TopicPartition, int]:
        """The first offset of each partition."""
        return self._consumer.beginning_offsets(self._places)

    @cached_property
    def latest(self) -> Mapping[TopicPartition, int]:
        """The end offset of each partition."""
        return self._consumer.end_offsets(self._places)

    @cached_property
    def committed(self) -> Mapping[TopicPartition, int]:
        """The group's committed offsets. Raises PlanError without a group."""
        if not self._has_group:
            raise PlanError("'committed' needs a group", hint="set group=...")
        found = self._consumer.committed(self._places)
        vars(self).pop("latest", None)  # a commit that was made meanwhile may be above the known end
        self._uncommitted = sorted(place for place, offset in found.items() if offset is None)
        return {place: self.earliest[place] if stored is None else stored.offset for place, stored in found.items()}

    def resolve(self, bound: Bound, name: str, on_late_time: Late = "latest") -> dict[TopicPartition, int]:
        """An offset for every partition."""
        given = bound if isinstance(bound, Mapping) else dict.fromkeys(self._places, bound)
        points = {TopicPartition(*place): point for place, point in given.items()}
        if missing := sorted(set(self._places) - points.keys()):
            raise no_offset(name, missing[0])
        if strange := sorted(points.keys() - set(self._places)):
            raise PlanError(f"{name} has an offset for a partition outside the plan", **strange[0]._asdict())
        times = {place: _time_ms(point, name) for place, point in points.items() if isinstance(point, datetime)}
        by_time = self._by_time(times, on_late_time) if times else {}
        return {place: by_time[place] if place in by_time else self._at(place, points[place], name) for place in points}

    def _at(self, place: TopicPartition, point: object, name: str) -> int:
        if isinstance(point, SupportsIndex) and not isinstance(point, bool):
            return index(point)
        if point not in _WORDS:
            raise PlanError(
                f"{name} cannot be {point!r}", hint=f"use {', '.join(_WORDS)}, an aware datetime or an offset"
            )
        offsets: Mapping[TopicPartition, int] = getattr(self, str(point))
        return offsets[place]

    def _by_time(self, times: Mapping[TopicPartition, int], on_late_time: Late) -> dict[TopicPartition, int]:
        # The ends are requested first and limit the result. Records that arrive between the two requests would
        # otherwise be skipped, be read although they are too new, or look like a loss.
        ends, found = self.latest, {}
        for place, listed in self._consumer.offsets_for_times(times).items():
            if listed is None and on_late_time == "fail":
                raise PlanError(
                    "no record has this timestamp or a later one",
                    hint="on_late_time='latest' or startingOffsetsByTimestampStrategy=latest starts at the end",
                    **place._asdict(),
                    time_ms=times[place],
                )
            found[place] = ends[place] if listed is None else min(listed.offset, ends[place])
        return found

    def check(self, offsets: Mapping[TopicPartition, int], name: str) -> None:
        """Raise DataLossError for an offset that is outside its log."""
        for place, offset in sorted(offsets.items()):
            earliest, latest = self.earliest[place], self.latest[place]
            if not earliest <= offset <= latest:
                raise data_loss(
                    "START_OFFSET_RESET" if offset < earliest else "PARTITION_OFFSET_CHANGED",
                    f"the plan's {name} is outside the log, which holds [{earliest}, {latest})",
                    hint="records were deleted or never written; "
                    "on_data_loss='skip' or failOnDataLoss=false reads the others",
                    **place._asdict(),
                    offset=offset,
                )

    def clamped(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets moved to the nearest end of their log."""
        earliest, latest = self.earliest, self.latest
        return {place: min(max(offset, earliest[place]), latest[place]) for place, offset in offsets.items()}

    def gaps(self, starts: Mapping[TopicPartition, int]) -> list[PlanGap]:
        """The skipped offsets if reading starts at the nearest offset in the log."""
        found = []
        for place, start in starts.items():
            earliest, latest = self.earliest[place], self.latest[place]
            if start < earliest:
                found.append(PlanGap(*place, "retention", start, earliest))
            elif start > latest:
                found.append(PlanGap(*place, "rewound", latest, start))
        return found

    def never_committed(self) -> list[PlanGap]:
        """The partitions without a commit, which a plan from "committed" reads from the beginning."""
        return [PlanGap(*place, "new", 0, self.earliest[place]) for place in self._uncommitted]

    def first_since(self, time_ms: int) -> dict[TopicPartition, int]:
        """The first offset that is not older, by partition; the end where all are."""
        return self._by_time(dict.fromkeys(self._places, time_ms), "latest")


def no_offset(name: str, place: TopicPartition) -> PlanError:
    """The error of offsets that lack a partition. `name`: "start" or "stop"."""
    return PlanError(f"{name} has no offset for a partition of the plan", **place._asdict())


def _time_ms(time: datetime, name: str) -> int:
    if time.tzinfo is None:
        raise PlanError(f"{name} is a time without a time zone", hint="datetime(..., tzinfo=UTC)")
    if time < EPOCH:  # brokers read numbers below 0 as words
        raise PlanError(f"{name} is a time before 1970: {time}", hint="'earliest' is before all records")
    return (time - EPOCH) // timedelta(milliseconds=1)
