"""Polled records that wait for the handler, as slices of one partition each."""

from collections import deque
from collections.abc import Collection, Iterable

from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.events import RecordSlice


class RecordQueue:
    """Slices in the order in which they were polled. `len()` counts records."""

    def __init__(self) -> None:
        self._slices: deque[RecordSlice] = deque()
        self._records = 0

    def __len__(self) -> int:
        return self._records

    def extend(self, slices: Iterable[RecordSlice]) -> None:
        for one in slices:
            self._slices.append(one)
            self._records += len(one)

    def take(self, most: int) -> RecordSlice:
        """Remove the first slice, or its first `most` records. Raises IndexError if there is none."""
        first = self._slices.popleft()
        self._records -= len(first)
        if len(first) > most:
            self.put_back(first[most:])
            first = first[:most]
        return first

    def put_back(self, rest: RecordSlice) -> None:
        """Add a slice before all others."""
        self._slices.appendleft(rest)
        self._records += len(rest)

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Drop records of all other partitions."""
        kept = [one for one in self._slices if partition_of(one) in partitions]
        self.clear()
        self.extend(kept)

    def move_to(self, other: "RecordQueue") -> None:
        """Add all records to another queue, behind its own."""
        other.extend(self._slices)
        self.clear()

    def clear(self) -> None:
        self._slices.clear()
        self._records = 0


def partition_of(records: RecordSlice) -> TopicPartition:
    """The partition that records are of."""
    return TopicPartition(records.topic, records.partition)
