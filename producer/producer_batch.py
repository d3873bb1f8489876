"""Batches on their way and what becomes of them: `Batch`, its partition's `Lane`, and the `Delivery` a caller holds."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.common import KohortError, TopicPartition
from kohort.fastpath._encode import BatchBuilder, Body
from kohort.network.backoff import FRESH, Attempts

Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
Pairs = Sequence[tuple[str, bytes | None]]
SEQUENCES = 1 << 31  # sequence numbers are int32 and begin again at 0


class ProducerId(NamedTuple):
    """What a broker knows a producer's batches by (KIP-98)."""

    id: int
    epoch: int


NO_PRODUCER_ID = ProducerId(-1, -1)


class Delivered(NamedTuple):
    """Where a record is. `offset` is -1 where the broker only said that it had it already."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """Records of one partition that are sent, acknowledged or given up together.

    It takes records until it is `closed`. Either `builder`, while it grows and until it is first sent, or `body`.
    `sequence` is -1 until it is first sent; a batch keeps it, so that a broker knows it again, until it is certain not
    to be in the log.
    """

    partition: TopicPartition
    created_at: float
    builder: BatchBuilder | None = None
    body: Body | None = None
    size: int = 0  # bytes of its records before compression
    count: int = 0
    closed: bool = False
    sequence: int = -1
    in_flight: bool = False
    unsure: bool = False  # whether it may be in the log: what became of an attempt is not known
    done: bool = False
    base_offset: int = -1
    error: KohortError | None = None
    error_reported: bool = False  # whether somebody has been told of `error`

    def encoded(self, codec: str, level: int | None) -> Body:
        """The body, made by whoever sends it first: the driver's thread, under no lock."""
        if self.body is None:
            assert self.builder is not None
            self.body = self.builder.finish(codec, level)
            self.builder = None
        return self.body


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """A partition's way to its broker. `queue`: the batches that are not settled, in their order. Only the last may be
    open: closing it is one assignment, which no signal handler can cut in two.

    After a failure nothing more is sent until all in flight are settled, and then one at a time until the first went
    through: only so do order and sequence numbers hold.
    """

    partition: TopicPartition
    queue: deque[ProducerBatch] = field(default_factory=deque)
    producer: ProducerId = NO_PRODUCER_ID
    next_sequence: int = 0
    in_flight: int = 0
    node: int = -1
    failing: bool = False
    rewrite: bool = False  # the broker has lost count: number everything anew under a newer epoch (KIP-360)
    attempts: Attempts = FRESH

    @property
    def busy(self) -> bool:
        return bool(self.queue)

    @property
    def open(self) -> ProducerBatch | None:
        """The batch that takes records."""
        if not self.queue or self.queue[-1].closed:
            return None
        return self.queue[-1]

    @property
    def closed(self) -> int:
        """The number of batches that take no more records."""
        return len(self.queue) - (self.open is not None)

    def close_batch(self) -> None:
        """Close the open batch."""
        if self.queue:
            self.queue[-1].closed = True

    def number(self, batch: ProducerBatch, producer: ProducerId) -> None:
        """Give a batch that is sent for the first time its number, and the lane a newer epoch where that is safe."""
        if batch.sequence >= 0:
            return
        if self.producer != producer and self.in_flight == 0:
            self.producer = producer
            self.next_sequence = 0
        batch.sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES

    def renumber(self) -> None:
        """Forget all numbers: nothing of what is queued is in the log, and a new epoch begins at 0."""
        self.producer = NO_PRODUCER_ID
        self.rewrite = False
        for batch in self.queue:
            batch.sequence = -1

    def settle(self, batch: ProducerBatch) -> None:
        """A batch is over."""
        self.queue.remove(batch)
        self.failing = self.failing and self.closed > 0

    def give_back(self, batch: ProducerBatch) -> None:
        """A batch is refused; its numbers go to the next, if it is not in the log and none has been numbered since."""
        if (
            batch.sequence >= 0
            and not batch.unsure
            and self.next_sequence == (batch.sequence + batch.count) % SEQUENCES
        ):
            self.next_sequence = batch.sequence


class Delivery:
    """What becomes of a record that was sent. From any thread."""

    __slots__ = ("_index", "_wait", "batch")

    def __init__(
        self, batch: ProducerBatch, index: int, wait: Callable[[Callable[[], bool], float | None], None]
    ) -> None:
        self.batch = batch
        self._index = index
        self._wait = wait

    def done(self) -> bool:
        """Whether it is acknowledged or given up."""
        return self.batch.done

    def result(self, timeout_s: float | None = None) -> Delivered:
        """Wait until it is acknowledged, and say where the record is.

        Raises what it failed by (BrokerError, DeliveryTimeout, TransactionAborted, ...), and OperationTimeout after
        `timeout_s` seconds (None: `delivery_timeout_ms` ends the wait).
        """
        batch = self.batch
        if not batch.done:
            self._wait(lambda: batch.done, timeout_s)
        if batch.error is not None:
            batch.error_reported = True
            raise batch.error
        topic, partition = batch.partition
        offset = batch.base_offset + self._index if batch.base_offset >= 0 else -1
        return Delivered(topic, partition, offset)


class Deliveries:
    """What becomes of rows that were sent together. From any thread."""

    __slots__ = ("_batches", "_wait")

    def __init__(self, batches: list[ProducerBatch], wait: Callable[[Callable[[], bool], float | None], None]) -> None:
        self._batches = batches
        self._wait = wait

    def __len__(self) -> int:
        """How many rows."""
        return sum(batch.count for batch in self._batches)

    def done(self) -> bool:
        """Whether all are acknowledged or given up."""
        return all(batch.done for batch in self._batches)

    def result(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """Wait until all are acknowledged; how many rows went to each partition. Raises as `Delivery.result`."""
        if not self.done():
            self._wait(self.done, timeout_s)
        counts: dict[TopicPartition, int] = {}
        for batch in self._batches:
            if batch.error is not None:
                batch.error_reported = True
                raise batch.error
            counts[batch.partition] = counts.get(batch.partition, 0) + batch.count
        return counts
