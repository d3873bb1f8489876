"""Batches in flight: `ProducerBatch`, its `PartitionQueue`, and the caller's `Delivery`."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kohort.common import KohortError, TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.fastpath._encode import BatchBuilder, Body
from kohort.network.backoff import FRESH, Attempts

Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
Pairs = Sequence[tuple[str, bytes | None]]
SEQUENCES = 1 << 31  # sequence numbers are int32 and wrap to 0


class ProducerId(NamedTuple):
    """The id and epoch by which brokers identify a producer's batches (KIP-98)."""

    id: int
    epoch: int


NO_PRODUCER_ID = ProducerId(-1, -1)


class Delivered(NamedTuple):
    """The position of a record in the log. `offset` is -1 if the broker reported a duplicate."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """Records of one partition that are sent, acknowledged or failed together.

    It takes records until it is `closed`. It has a `builder` until it is first sent, or a `body`. `sequence` is -1
    until it is first sent. A batch keeps its sequence number, by which a broker detects a duplicate, until it is
    certainly not in the log.
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
    unsure: bool = False  # true if it may be in the log, since the outcome of an attempt is unknown
    done: bool = False
    base_offset: int = -1
    error: KohortError | None = None
    error_reported: bool = False  # true if a call has raised `error`

    def encoded(self, codec: str, level: int | None) -> Body:
        """The body; encoded at the first request, on the driver's thread without a lock."""
        if self.body is None:
            assert self.builder is not None
            self.body = self.builder.finish(codec, level)
            self.builder = None
        return self.body


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The unsettled batches of a partition, in order (`queue`).

    Only the last one may be open. Closing it is one assignment, which a signal handler cannot interrupt. After a
    failure no batch is sent until all in flight are settled. Then one is sent at a time until the first succeeds. This
    preserves order and sequence numbers.
    """

    partition: TopicPartition
    queue: deque[ProducerBatch] = field(default_factory=deque)
    producer: ProducerId = NO_PRODUCER_ID
    next_sequence: int = 0
    in_flight: int = 0
    node: int = -1
    failing: bool = False
    rewrite: bool = False  # the broker lost the sequence: renumber all batches under a newer epoch (KIP-360)
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
        """The number of closed batches."""
        return len(self.queue) - (self.open is not None)

    def close_batch(self) -> None:
        """Close the open batch."""
        if self.queue:
            self.queue[-1].closed = True

    def number(self, batch: ProducerBatch, producer: ProducerId) -> None:
        """Assign a sequence number to a batch that is sent for the first time.

        The queue takes a newer epoch if no batch is in flight.
        """
        if batch.sequence >= 0:
            return
        if self.producer != producer and self.in_flight == 0:
            self.producer = producer
            self.next_sequence = 0
        batch.sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES

    def renumber(self) -> None:
        """Drop all sequence numbers: no queued batch is in the log, and a new epoch begins at 0."""
        self.producer = NO_PRODUCER_ID
        self.rewrite = False
        for batch in self.queue:
            batch.sequence = -1

    def settle(self, batch: ProducerBatch) -> None:
        """Remove a settled batch."""
        self.queue.remove(batch)
        self.failing = self.failing and self.closed > 0

    def give_back(self, batch: ProducerBatch) -> None:
        """Reuse the sequence numbers of a rejected batch.

        Only if the batch is not in the log and no later batch has a number.
        """
        if (
            batch.sequence >= 0
            and not batch.unsure
            and self.next_sequence == (batch.sequence + batch.count) % SEQUENCES
        ):
            self.next_sequence = batch.sequence


class Delivery:
    """The result of a sent record; thread-safe."""

    __slots__ = ("_index", "_wait", "batch")

    def __init__(
        self, batch: ProducerBatch, index: int, wait: Callable[[Callable[[], bool], float | None], None]
    ) -> None:
        self.batch = batch
        self._index = index
        self._wait = wait

    def done(self) -> bool:
        """True if the record is acknowledged or has failed."""
        return self.batch.done

    def result(self, timeout_s: float | None = None) -> Delivered:
        """Wait until the record is acknowledged, and return its position.

        Raises its error (BrokerError, DeliveryTimeout, TransactionAborted, ...), and OperationTimeout after `timeout_s`
        seconds (None: `delivery_timeout_ms` ends the wait).
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
    """The results of rows that were sent together; thread-safe."""

    __slots__ = ("_batches", "_wait")

    def __init__(self, batches: list[ProducerBatch], wait: Callable[[Callable[[], bool], float | None], None]) -> None:
        self._batches = batches
        self._wait = wait

    def __len__(self) -> int:
        """The number of rows."""
        return sum(batch.count for batch in self._batches)

    def done(self) -> bool:
        """True if all rows are acknowledged or have failed."""
        return all(batch.done for batch in self._batches)

    def result(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """Wait until all are acknowledged, and return the number of rows by partition.

        Raises as `Delivery.result`.
        """
        if not self.done():
            self._wait(self.done, timeout_s)
        counts: dict[TopicPartition, int] = {}
        for batch in self._batches:
            if batch.error is not None:
                batch.error_reported = True
                raise batch.error
            counts[batch.partition] = counts.get(batch.partition, 0) + batch.count
        return counts
