"""Batches in flight: `ProducerBatch`, its `PartitionQueue`, and the caller's `Deliveries`."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING

from kohort.common import KohortError, TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.network.backoff import FRESH, Attempts
from kohort.producer._open_batch import BufferedBytes, OpenBatch

if TYPE_CHECKING:
    from kohort.producer._direct_send import DirectSend
    from kohort.producer._open_batch import OnDelivery

Headers = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]
Wait = Callable[[Callable[[], bool], float | None], None]
"""Waits until a function returns true, for so many seconds."""
SEQUENCES = 1 << 31  # sequence numbers are int32 and wrap to 0
ORDINAL = attrgetter("ordinal")


class ProducerId(NamedTuple):
    """The id and epoch by which brokers identify a producer's batches (KIP-98)."""

    id: int
    epoch: int


NO_PRODUCER_ID = ProducerId(-1, -1)


class Delivered(NamedTuple):
    """The position of a record in the log. `offset` is -1 with acks=0, or if the broker reported a duplicate."""

    topic: str
    partition: int
    offset: int


class ProducerBatch(OpenBatch):
    """Records of one partition that are sent, acknowledged or failed together.

    `sequence` is -1 until it is first sent. A batch keeps its sequence number, by which a broker detects a duplicate,
    until it is certainly not in the log. `ordinal` grows from batch to batch of a producer. The broker may find a batch
    too large: its `parts` are sent in its place then, and it is done when they are (KIP-126).
    """

    __slots__ = (
        "_wait",
        "base_offset",
        "created_at",
        "encoding",
        "error",
        "error_reported",
        "in_flight",
        "ordinal",
        "parent",
        "partition",
        "parts",
        "sequence",
        "unsure",
    )

    def __init__(
        self,
        partition: TopicPartition,
        created_at: float,
        buffered: BufferedBytes,
        limit: int,
        wait: Wait,
        on_delivery: "OnDelivery | None" = None,
        ordinal: int = 0,
    ) -> None:
        super().__init__(buffered, limit, on_delivery)
        self.ordinal = ordinal
        self.partition = partition
        self.created_at = created_at
        self.sequence = -1
        self.in_flight = False
        self.encoding = False  # true while a helper compresses it
        self.unsure = False  # true if it may be in the log, since the outcome of an attempt is unknown
        self.base_offset = -1
        self.error: KohortError | None = None
        self.error_reported = False  # true if a call has raised `error`
        self.parent: ProducerBatch | None = None
        self.parts: list[ProducerBatch] = []
        self._wait = wait

    def place(self, index: int) -> "tuple[ProducerBatch, int]":
        """The batch that was sent with the record, and its index there."""
        for part in self.parts:
            if index < part.count:
                return part.place(index)
            index -= part.count
        return self, index

    def failure(self, index: int, timeout_s: float | None) -> KohortError | None:
        """The error of the record with this index, once it is settled."""
        if not self.done:
            self._wait(lambda: self.place(index)[0].done, timeout_s)
        sent, _ = self.place(index)
        sent.error_reported = sent.error is not None
        return sent.error

    def outcome(self, index: int, timeout_s: float | None) -> Delivered:
        """The result of the record with this index; see `Delivery.result`."""
        error = self.failure(index, timeout_s)
        if error is not None:
            raise error
        sent, index = self.place(index)
        topic, partition = self.partition
        return Delivered(topic, partition, sent.base_offset + index if sent.base_offset >= 0 else -1)

    @property
    def whole(self) -> "ProducerBatch":
        """The batch that the caller's records entered."""
        return self if self.parent is None else self.parent.whole

    def split(self) -> "list[ProducerBatch]":
        """Divide the records among two parts, with the same sequence numbers, and return the parts.

        Their bytes stay counted with this batch.
        """
        from kohort.fastpath import decode  # a producer's start does not need them
        from kohort.fastpath._encode import BatchBuilder, seal

        assert self.body is not None
        records = decode(seal(self.body), max_decompressed_bytes=SEQUENCES - 1)
        middle, sequence = self.count // 2, self.sequence
        for some in (records[:middle], records[middle:]):
            builder = BatchBuilder()
            for one in some:
                builder.append(one.key, one.value, one.timestamp_ms, one._raw_headers)
            part = ProducerBatch(self.partition, self.created_at, self.buffered, 0, self._wait, None, self.ordinal)
            part.adopt(builder.finish())
            part.parent, part.sequence = self, sequence
            sequence = (sequence + part.count) % SEQUENCES
            self.parts.append(part)
        self.free()
        return self.parts


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The unsettled batches of a partition, in order (`queue`).

    Only the last one may be open. Closing it is one step, which a signal handler cannot interrupt. After a
    failure no batch is sent until all in flight are settled. Then one is sent at a time until the first succeeds. This
    preserves order and sequence numbers. The first batch of a producer id to a topic is sent alone, since a broker
    begins with any number of an unknown id.
    """

    partition: TopicPartition
    queue: deque[ProducerBatch] = field(default_factory=deque)
    producer: ProducerId = NO_PRODUCER_ID
    next_sequence: int = 0
    in_flight: int = 0
    node: int = -1
    known: bool = False  # a batch under this producer id is in the log: a broker takes the next number only
    topic_id: int = 0  # of the topic that the last batch was sent to; a topic may be deleted and created again
    failing: bool = False
    rewrite: bool = False  # the broker lost the sequence: renumber all batches under a newer epoch (KIP-360)
    attempts: Attempts = FRESH
    used_at: float = -inf  # the time (monotonic s) of the last batch
    waits_since: float = inf  # the time (monotonic s) since which a batch is due and cannot be sent
    direct: "DirectSend | None" = None  # sends a record that comes alone
    settled: list[ProducerBatch] = field(default_factory=list)  # with callbacks, which earlier batches precede

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
            self.queue[-1].close()

    def number(self, batch: ProducerBatch, producer: ProducerId) -> None:
        """Assign a sequence number to a batch that is sent for the first time.

        The queue takes a newer epoch if no batch is in flight.
        """
        if batch.sequence >= 0:
            return
        if self.producer != producer and self.in_flight == 0:
            self.known = self.known and self.producer.id == producer.id
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

    def split(self, batch: ProducerBatch) -> None:
        """Put the parts of a batch in its place.

        They are sent when the batches in flight are settled, since brokers refuse those behind it.
        """
        at = self.queue.index(batch)
        self.queue.remove(batch)
        for part in reversed(batch.split()):
            self.queue.insert(at, part)
        self.failing = True

    def due_callbacks(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """The settled batches whose callbacks are due, in order, after `batch` was settled."""
        if batch.has_callbacks:
            insort(self.settled, batch, key=ORDINAL)
        first = self.queue[0].ordinal if self.queue else inf
        due = bisect_left(self.settled, first, key=ORDINAL)
        found, self.settled = self.settled[:due], self.settled[due:]
        return found

    def give_back(self, batch: ProducerBatch) -> None:
        """Reuse the sequence numbers of a rejected batch.

        Only if the batch is not in the log and no later batch has a number.
        """
        is_last = self.next_sequence == (batch.sequence + batch.count) % SEQUENCES
        if batch.sequence >= 0 and not batch.unsure and is_last:
            self.next_sequence = batch.sequence


class Deliveries:
    """The results of rows that were sent together; thread-safe."""

    __slots__ = ("_sent", "_wait")

    def __init__(self, sent: Mapping[ProducerBatch, int], wait: Wait) -> None:
        self._sent = sent  # the number of rows in each batch
        self._wait = wait

    def __len__(self) -> int:
        """The number of rows."""
        return sum(self._sent.values())

    def done(self) -> bool:
        """True if all rows are acknowledged or have failed."""
        return all(batch.done for batch in self._sent)

    def result(self, timeout_s: float | None = None) -> dict[TopicPartition, int]:
        """Wait until all are acknowledged, and return the number of rows by partition.

        Raises as `Delivery.result`.
        """
        if not self.done():
            self._wait(self.done, timeout_s)
        counts: dict[TopicPartition, int] = {}
        for batch, rows in self._sent.items():
            if batch.error is not None:
                batch.error_reported = True
                raise batch.error
            counts[batch.partition] = counts.get(batch.partition, 0) + rows
        return counts
