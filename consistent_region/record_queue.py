"""Polled records that wait for the handler, as slices of one partition each, and the pauses when they are too many."""

from collections import deque
from collections.abc import Collection, Iterable

from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.errors import RegionError
from kohort.consistent_region.events import RecordSlice
from kohort.consistent_region.settings import RegionSettings


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

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(map(partition_of, self._slices))

    def clear(self) -> None:
        self._slices.clear()
        self._records = 0


class RecordBuffer:
    """The records between the polls of a member and its handler. `len()` counts records.

    Those that are set aside for a checkpoint come back before all others. `paused`: no poll should bring more.
    """

    def __init__(self, settings: RegionSettings, metrics: dict[str, int]) -> None:
        self.paused = False
        self._settings = settings
        self._metrics = metrics
        self._queue = RecordQueue()
        self._drained = RecordQueue()
        self._memory_low = False

    def __len__(self) -> int:
        return len(self._queue) + len(self._drained)

    @property
    def ready(self) -> bool:
        """True if `take` has records."""
        return len(self._queue) > 0

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions with records that wait."""
        return self._queue.partitions | self._drained.partitions

    def extend(self, slices: Iterable[RecordSlice]) -> None:
        self._queue.extend(slices)
        self.check_room()

    def take(self, most: int) -> RecordSlice:
        """As `RecordQueue.take`. The records that are set aside stay."""
        taken = self._queue.take(most)
        self.check_room()
        return taken

    def put_back(self, rest: RecordSlice, *, aside: bool) -> None:
        (self._drained if aside else self._queue).put_back(rest)

    def set_aside(self) -> None:
        """Set all records aside until `bring_back`."""
        self._drained, self._queue = self._queue, RecordQueue()

    def bring_back(self) -> None:
        """Make what was set aside ready again. Raises RegionError if it does not fit."""
        if len(self) > self._settings.queue_records + self._settings.max_poll_records:
            raise RegionError("what was drained does not fit back into the queue", records=len(self))
        self._queue.move_to(self._drained)
        self._queue, self._drained = self._drained, self._queue

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Drop records of all other partitions."""
        for queue in (self._queue, self._drained):
            queue.keep(partitions)
        self.check_room()

    def clear(self) -> None:
        self._queue.clear()
        self._drained.clear()
        self.check_room()

    def memory(self, *, low: bool) -> None:
        self._memory_low = low
        self.check_room()

    def check_room(self) -> None:
        free = self._settings.queue_records - len(self)
        full = free < self._settings.max_poll_records
        # Once paused, half of the queue is emptied first: pausing at every record would cost more than it spares.
        still_full = self.paused and free < self._settings.queue_records // 2
        wanted = full or still_full or self._memory_low
        if wanted and not self.paused:
            self._metrics["queue_full_pauses_total" if full else "low_memory_pauses_total"] += 1
        self.paused = wanted


def partition_of(records: RecordSlice) -> TopicPartition:
    """The partition that records are of."""
    return TopicPartition(records.topic, records.partition)
