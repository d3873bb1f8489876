"""Jobs of a Consumer, parallel by key. Records of one partition with the same key run one after the other."""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from kohort.common import TopicPartition
from kohort.fastpath import Record, RecordColumns
from kohort.workers.completed_offsets import CompletedOffsets
from kohort.workers.errors import HandlerFailed
from kohort.workers.job import Job, Jobs

MOST_WAITING_BYTES: Final = 16 << 20
"""The most bytes of values of a partition that wait for earlier records with their keys, up to one record."""


class PartitionJobs:
    """The records of one assigned partition that were polled."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.offsets = CompletedOffsets()
        self._polled: deque[tuple[Iterator[Record], int]] = deque()
        self._lanes: dict[bytes, deque[Job]] = {}
        self._ready: deque[Job] = deque()
        self._waiting_bytes = 0  # in lanes
        self._end: int | None = None

    def add(self, columns: RecordColumns) -> None:
        if self.offsets.to_commit is None:
            self.offsets.to_commit = columns.offsets[0] if len(columns) else columns.next_offset
        self._polled.append((iter(columns), columns.next_offset))

    @property
    def backlog(self) -> bool:
        """True if there are polled records of which no job was made."""
        return bool(self._polled)

    @property
    def unfinished(self) -> bool:
        """True if there are polled records that are not done."""
        return self.backlog or self.offsets.open

    @property
    def blocked(self) -> bool:
        """True if there are records without a started job."""
        return bool(self._polled or self._ready or any(self._lanes.values()))

    def next(self) -> Job | None:
        while not self._ready:
            record = self._next_record()
            if record is None:
                return None
            job = Job(record, 1, self)
            key = record.key
            if key is not None and key in self._lanes:
                self._lanes[key].append(job)
                self._waiting_bytes += len(record.value or b"")
                continue
            if key is not None:
                self._lanes[key] = deque()
            self._ready.append(job)
        return self._ready.popleft()

    def _next_record(self) -> Record | None:
        while self._polled and not self.offsets.full and self._waiting_bytes < MOST_WAITING_BYTES:
            records, next_offset = self._polled[0]
            record = next(records, None)
            if record is not None:
                self.offsets.start(record.offset)
                return record
            self._end = next_offset
            self._polled.popleft()
            self._advance()
        return None

    def again(self, job: Job) -> None:
        self._ready.appendleft(job._replace(attempt=job.attempt + 1))

    def done(self, job: Job) -> None:
        """The record is done, so the next one of its key may start."""
        self.offsets.complete(job.record.offset)
        key = job.record.key
        if key is not None:
            if self._lanes[key]:
                following = self._lanes[key].popleft()
                self._waiting_bytes -= len(following.record.value or b"")
                self._ready.append(following)
            else:
                del self._lanes[key]
        self._advance()

    def _advance(self) -> None:
        if not self._polled and self._end is not None:
            self.offsets.end(self._end)


class KeyedJobs(Jobs):
    """The partitions of a consumer; see `Jobs`. Without an outcome a record is not committed."""

    releases = False

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionJobs] = {}
        self._turns: deque[PartitionJobs] = deque()
        self._committed: dict[TopicPartition, int] = {}

    def add(self, polled: Sequence[RecordColumns]) -> None:
        for columns in polled:
            partition = TopicPartition(columns.topic, columns.partition)
            progress = self._partitions.get(partition)
            if progress is None:
                progress = self._partitions[partition] = PartitionJobs(partition)
                self._turns.append(progress)
            progress.add(columns)

    def next(self) -> Job | None:
        """The next job of the partitions in turn."""
        for _ in range(len(self._turns)):
            progress = self._turns[0]
            self._turns.rotate(-1)
            job = progress.next()
            if job is not None:
                return job
        return None

    @property
    def blocked(self) -> bool:
        """True if records wait for a handler, for others of their key, or for a commit."""
        return any(one.blocked for one in self._turns)

    @property
    def full(self) -> frozenset[TopicPartition]:
        """The partitions of which no more records are wanted now."""
        return frozenset(one.partition for one in self._turns if one.backlog)

    def is_gone(self, job: Job) -> bool:
        """True if the partition was revoked or lost since."""
        return self._partitions.get(job.origin.partition) is not job.origin

    def done(self, job: Job) -> None:
        job.origin.done(job)

    def again(self, job: Job) -> None:
        job.origin.again(job)

    dead = done

    def failed(self, job: Job, error: Exception) -> None:
        raise HandlerFailed(
            f"the handler failed on the last attempt: {error!r}",
            hint="give dead_letter, or repair the handler",
            topic=job.record.topic,
            partition=job.record.partition,
            offset=job.record.offset,
        ) from error

    # --- offsets

    def due(self) -> dict[TopicPartition, int]:
        """The offsets to commit, which have moved since they were committed."""
        return {
            partition: one.offsets.to_commit
            for partition, one in self._partitions.items()
            if one.offsets.to_commit is not None and one.offsets.to_commit != self._committed.get(partition)
        }

    def unfinished(self) -> dict[TopicPartition, int]:
        """The first offset that is not done, of each partition with polled records that are not done."""
        return {
            partition: one.offsets.to_commit
            for partition, one in self._partitions.items()
            if one.offsets.to_commit is not None and one.unfinished
        }

    def committed(self, offsets: dict[TopicPartition, int]) -> None:
        self._committed.update({each: offset for each, offset in offsets.items() if each in self._partitions})

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Make no more jobs of these partitions, which are revoked."""
        self._turns = deque(one for one in self._turns if one.partition not in partitions)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions that are not owned any more. Outcomes of their running jobs have no effect."""
        self.close(partitions)
        for each in partitions:
            self._partitions.pop(each, None)
            self._committed.pop(each, None)
