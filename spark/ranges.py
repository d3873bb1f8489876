"""Ranges of offsets, which the driver plans and executors read. Plain values, no I/O."""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import SupportsIndex

from kohort.common import TopicPartition
from kohort.spark.errors import PlanError


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets from `start` up to but not including `stop` of one partition. Sorts by place, then start.

    `len()` counts offsets. A compacted log, or one with transaction markers, has fewer records. Raises PlanError if
    `stop` is below `start` or `start` is below 0.
    """

    topic: str
    partition: int
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop:
            raise PlanError("a range must not start below 0 or stop before its start", **asdict(self))

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def place(self) -> TopicPartition:
        """The topic and partition of the range."""
        return TopicPartition(self.topic, self.partition)

    def cut(self, pieces: int) -> tuple["OffsetRange", ...]:
        """Cut into `pieces` that differ by one offset at most. There are never more pieces than offsets."""
        pieces = max(min(pieces, len(self)), 1)
        size, over = divmod(len(self), pieces)
        starts = [self.start + index * size + min(index, over) for index in range(pieces + 1)]
        return tuple(OffsetRange(self.topic, self.partition, start, stop) for start, stop in pairwise(starts))


ALL = range(2**63)  # the partitions or offsets that Kafka can count


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds of a plan. None means no bound."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_range: range = ALL
    offset_range: range = ALL
    time_low_ms: int = 0

    def has(self, place: TopicPartition) -> bool:
        """True if offsets of the partition may be within the bounds."""
        return (
            (self.topics is None or place.topic in self.topics)
            and (self.partitions is None or place.partition in self.partitions)
            and place.partition in self.partition_range
        )

    def cut(self, one: OffsetRange, first: int = 0) -> OffsetRange:
        """The part of a range from `first` on within the bounds of offsets, which may be empty."""
        start = max(one.start, first, self.offset_range.start)
        return OffsetRange(*one.place, start, max(start, min(one.stop, self.offset_range.stop)))


def check_limits(**limits: int | None) -> None:
    """Raise PlanError for a limit that is no whole number above 0."""
    for name, value in limits.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise PlanError(f"{name} must be a whole number, not {value!r}")
        if value < 1:
            raise PlanError(f"{name} must be at least 1, not {value}")


def split(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    most_offsets: Mapping[TopicPartition, int] | None = None,
) -> tuple[OffsetRange, ...]:
    """Cut ranges so that none is longer than `max_records_per_partition` and there are at least `min_partitions`.

    `most_offsets`: a further limit for each partition.

    The longest pieces are cut first, so that the sizes are as equal as possible. Empty ranges are left out, and there
    are never more pieces than offsets. The result is sorted and deterministic.

    Raises PlanError for a limit that is no whole number above 0.
    """
    check_limits(min_partitions=min_partitions, max_records_per_partition=max_records_per_partition)
    whole = sorted(one for one in ranges if len(one))
    limits = most_offsets or {}
    pieces = [
        -(-len(one) // min(limits.get(one.place, len(one)), max_records_per_partition or len(one))) for one in whole
    ]
    # A heap of the longest piece of each range. The longest of all gets one more cut until there are enough.
    longest = [(-len(one) / count, index) for index, (one, count) in enumerate(zip(whole, pieces, strict=True))]
    heapq.heapify(longest)
    missing = min(min_partitions or 0, sum(len(one) for one in whole)) - sum(pieces)
    for _ in range(missing):
        _, index = longest[0]
        pieces[index] += 1
        heapq.heapreplace(longest, (-len(whole[index]) / pieces[index], index))
    return tuple(piece for one, count in zip(whole, pieces, strict=True) for piece in one.cut(count))


def shared(ranges: Iterable[OffsetRange], most_offsets: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """Group neighbouring ranges of different partitions, up to `most_offsets` in all."""
    together: list[list[OffsetRange]] = []
    room = 0
    for one in ranges:
        if not together or len(one) > room or together[-1][-1].place == one.place:
            together.append([])
            room = most_offsets
        together[-1].append(one)
        room -= len(one)
    return tuple(map(tuple, together))
