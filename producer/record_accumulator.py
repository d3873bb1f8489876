"""The batches of a producer that are not settled, by partition.

A signal handler may raise on the caller's thread after each call. `lane` may then have been called without a record,
which is harmless.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from kohort.common import KohortError, TopicPartition
from kohort.network.errors import UnknownTopic
from kohort.producer.partitioner import PARTITIONERS, Sticky
from kohort.producer.producer_batch import PartitionQueue, ProducerBatch
from kohort.producer.producer_context import ProducerContext

FAILURES_KEPT: Final = 1_000


class RecordAccumulator:
    """The queues of all partitions; used under the lock of the producer's core.

    `busy`: queues with batches. `buffered`: bytes of records that are not settled, before compression. `pressed`: a
    caller waits for room, so linger_ms is ignored in the next poll. `on_failure` gets the error of each failed batch.
    """

    def __init__(self, context: ProducerContext, on_failure: Callable[[KohortError], None]) -> None:
        self._context = context
        self._on_failure = on_failure
        self.lanes: dict[TopicPartition, PartitionQueue] = {}
        self.busy: dict[TopicPartition, PartitionQueue] = {}
        self.buffered = 0
        self.pressed = False
        self.failures: deque[tuple[int, ProducerBatch]] = deque(maxlen=FAILURES_KEPT)
        self.failures_counted = 0
        self.failures_raised = 0  # number of failures up to which `flush` has raised
        self._partition_of_key = PARTITIONERS[context.config.partitioner]
        self._sticky = Sticky(context.chance)

    # --- choice of partitions

    def chosen(self, topic: str, count: int, key: bytes | None, partition: int | None) -> int:
        """The partition for a record. Raises UnknownTopic if `partition` is not below `count`."""
        if partition is not None:
            if not 0 <= partition < count:
                raise UnknownTopic(f"the topic has {count} partitions", topic=topic, partition=partition)
            return partition
        if key is None or (not key and self._context.config.partitioner == "crc32"):
            return self.sticky(topic, count)
        return self._partition_of_key(key, count)

    def sticky(self, topic: str, count: int) -> int:
        """The partition for records without a key, until a batch of the topic is closed."""
        return self._sticky.choose(topic, count, lambda: self._led(topic))

    def _led(self, topic: str) -> list[int]:
        view = self._context.metadata.view
        return [one.partition for one in view.partitions_of(topic) if view.leader(one) is not None]

    def skip_for_now(self, lane: PartitionQueue) -> None:
        """Choose another partition for records without a key, since this one cannot be sent to now.

        Its open batch still takes records.
        """
        self._sticky.leave(lane.partition)

    # --- queues

    def lane(self, place: TopicPartition) -> PartitionQueue:
        """The queue of a partition, to which a record is about to be added."""
        lane = self.lanes.get(place)
        if lane is None:
            lane = self.lanes[place] = PartitionQueue(place)
        self.busy[place] = lane
        return lane

    def close_lane(self, lane: PartitionQueue) -> None:
        """Close the open batch of a partition."""
        lane.close_batch()
        self._sticky.move_on(lane.partition.topic)

    def close_batches(self) -> None:
        """Close all open batches, for flush, commit, or when there is no room left."""
        for lane in self.busy.values():
            self.close_lane(lane)

    def unsettled(self) -> list[ProducerBatch]:
        """The batches neither acknowledged nor failed; open batches are closed."""
        while self.failures and self.failures[0][0] <= self.failures_raised:
            self.failures.popleft()
        self.close_batches()
        return [batch for lane in self.busy.values() for batch in lane.queue]

    @property
    def idle(self) -> bool:
        """True if all batches are settled."""
        return not any(lane.busy for lane in self.busy.values())

    @property
    def in_flight(self) -> bool:
        """True if a batch is in a request without a response."""
        return any(lane.in_flight for lane in self.busy.values())

    # --- the end of batches

    def settle(self, lane: PartitionQueue, batch: ProducerBatch, error: KohortError | None = None) -> None:
        """Settle a batch that is acknowledged, or failed with `error`."""
        lane.settle(batch)
        self.buffered -= batch.size
        batch.builder = batch.body = None  # deliveries may be kept; their bytes are freed
        batch.error = error
        batch.done = True
        self._context.updated()
        if error is not None:
            self.failures_counted += 1
            self.failures.append((self.failures_counted, batch))  # until `flush` raises it
            self._on_failure(error)

    def give_up(self, error: KohortError) -> bool:
        """Fail all batches that are not in flight; returns True if one of them had been sent."""
        numbered = False
        for lane in self.busy.values():
            lane.close_batch()
            for batch in [one for one in lane.queue if not one.in_flight]:
                if batch.done:
                    continue  # failed already with the transaction
                numbered = numbered or batch.sequence >= 0
                self.settle(lane, batch, error)
        return numbered

    def fail_in_flight(self, error: KohortError) -> None:
        """Fail also the batches in flight, since no response will come."""
        for lane in self.busy.values():
            lane.in_flight = 0
            for batch in lane.queue:
                batch.in_flight = False
        self.give_up(error)

    def unraised(self) -> tuple[int, KohortError | None]:
        """The number of failed batches, and the first error not raised by a delivery or `flush`."""
        errors = (
            one.error for number, one in self.failures if number > self.failures_raised and not one.error_reported
        )
        return self.failures_counted, next(errors, None)
