"""The batches of a producer that are not settled, by partition.

A signal handler may raise on the caller's thread after each call. `lane` may then have been called without a record,
which is harmless.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count, islice
from typing import Final

from kohort.common import KohortError, TopicPartition
from kohort.common.counted import counted
from kohort.network.errors import UnknownTopic
from kohort.network.metadata import NOTHING_KNOWN, BrokerNode
from kohort.producer._open_batch import BufferedBytes, OpenBatches, TopicBatches
from kohort.producer.partitioner import drawn
from kohort.producer.producer_batch import PartitionQueue, ProducerBatch, Wait
from kohort.producer.producer_context import ProducerContext
from kohort.producer.record_arguments import partition_given

FAILURES_KEPT: Final = 1_000


class RecordAccumulator:
    """The queues of all partitions; used under the lock of the producer's core.

    `busy`: queues with batches. `open`: the batches that records enter without the lock. `room`: the bytes of records
    that are not settled, before compression. `pressed`: a caller waits for room, so linger_ms is ignored in the next
    poll. `on_failure` gets the error of each failed batch. `wait`: the wait of deliveries. `callbacks`: settled batches
    whose callbacks are due.
    """

    def __init__(self, context: ProducerContext, on_failure: Callable[[KohortError], None]) -> None:
        self._context = context
        self._on_failure = on_failure
        self.lanes: dict[TopicPartition, PartitionQueue] = {}
        self.busy: dict[TopicPartition, PartitionQueue] = {}
        self.open = OpenBatches()
        self.room = BufferedBytes(context.config.buffer_bytes)
        self._led_in = NOTHING_KNOWN
        self._led_by_topic: dict[str, Sequence[int]] = {}  # as of that metadata: a choice costs no walk of a topic
        self.wait: Wait = _no_wait
        self.pressed = False
        self.callbacks: deque[ProducerBatch] = deque()
        self._ordinals = count()
        self.failures: deque[tuple[int, ProducerBatch]] = deque()
        self.failures_counted = 0
        self.failures_raised = 0  # number of failures up to which `flush` has raised

    @property
    def buffered(self) -> int:
        """Bytes of records that are not settled."""
        return self.room.used

    def is_full(self, size: int) -> bool:
        """True if there is no room for a record of `size` bytes."""
        return bool(self.room.used) and self.room.used + size > self.room.limit

    # --- choice of partitions

    def chosen(self, topic: str, partitions: int, key: bytes | None, partition: int | None, now: float) -> int:
        """The partition for a record. Raises UnknownTopic if `partition` is not below `partitions`."""
        batches = self._topic(topic, partitions)
        if partition is not None:
            partition = partition_given(partition, topic)
            check_partition(topic, partition, partitions)
            return partition
        number = batches.choose(key)
        return self.sticky(topic, partitions, now) if number < 0 else number

    def sticky(self, topic: str, partitions: int, now: float) -> int:
        """The partition for records without a key, until a batch of the topic is closed."""
        batches = self._topic(topic, partitions)
        if batches.sticky < 0:
            among = self._available(topic, now)
            if among and among[-1] >= partitions:  # metadata is newer than `partitions`, or lacks a partition
                among = among[: bisect_left(among, partitions)]
            batches.stick_to(drawn(among or range(partitions), self._queued(topic), self._context.chance))
        return batches.sticky

    def _queued(self, topic: str) -> dict[int, int]:
        """The number of batches before a new one, of partitions with batches; none without adaptive partitioning."""
        if not self._context.config.adaptive_partitioning:
            return {}
        return {place.partition: len(lane.queue) for place, lane in self.busy.items() if place.topic == topic}

    def _topic(self, topic: str, partitions: int) -> TopicBatches:
        """The open batches of a topic with so many partitions."""
        batches = self.open.topic(topic)
        if batches is None or batches.partitions != partitions:
            named = self._context.config.partitioner
            # Records that a function gives no partition are sticky.
            batches = TopicBatches(partitions, named if isinstance(named, str) else "uniform_sticky")
            self.open.put(topic, batches)
        return batches

    def _available(self, topic: str, now: float) -> Sequence[int]:
        """The partitions with a leader that takes batches, in order; those with any leader if there are none.

        Of these, only the partitions with a leader in the client's rack, if there are any (KIP-1123).
        """
        view = self._context.metadata.view
        if late_s := self._context.config.availability_timeout_ms / 1000:
            late = {view.leader(lane.partition) for lane in self.busy.values() if now - lane.waits_since > late_s}
            if late:
                return self._led(topic, late)
        if view is not self._led_in:
            self._led_in, self._led_by_topic = view, {}
        found = self._led_by_topic.get(topic)
        if found is None:
            found = self._led_by_topic[topic] = self._led(topic, ())
        return found

    def _led(self, topic: str, late: Collection[BrokerNode | None]) -> Sequence[int]:
        config, view = self._context.config, self._context.metadata.view
        leaders = ((one.partition, view.leader(one)) for one in view.partitions_of(topic))
        led = {number: leader for number, leader in leaders if leader is not None}
        led = {one: leader for one, leader in led.items() if leader not in late} or led
        if config.rack_aware_partitioning and config.rack is not None:
            led = {one: leader for one, leader in led.items() if leader.rack == config.rack} or led
        return tuple(led)

    def skip_for_now(self, lane: PartitionQueue, now: float) -> None:
        """Choose another partition for records without a key, since this one cannot be sent to now.

        Its open batch still takes records.
        """
        lane.waits_since = min(lane.waits_since, now)
        topic, partition = lane.partition
        batches = self.open.topic(topic)
        if batches is not None and batches.sticky == partition:
            batches.stick_to(-1)

    # --- queues

    def lane(self, place: TopicPartition) -> PartitionQueue:
        """The queue of a partition, to which a record is about to be added."""
        lane = self.lanes.get(place)
        if lane is None:
            lane = self.lanes[place] = PartitionQueue(place)
        self.busy[place] = lane
        return lane

    def new_batch(self, lane: PartitionQueue, now: float) -> ProducerBatch:
        """A batch for the queue, which does not have it yet."""
        config, lane.used_at = self._context.config, now
        return ProducerBatch(
            lane.partition, now, self.room, config.batch_bytes, self.wait, config.on_delivery, next(self._ordinals)
        )

    def let_in(self, batch: ProducerBatch) -> None:
        """Let further records of its partition enter the batch without the lock."""
        topic, partition = batch.partition
        batches = self.open.topic(topic)
        if batches is not None:
            batches.open(partition, batch)

    def close_lane(self, lane: PartitionQueue) -> None:
        """Close the open batch of a partition, and choose another one for records without a key."""
        lane.close_batch()
        batches = self.open.topic(lane.partition.topic)
        if batches is not None:
            batches.stick_to(-1)

    def close_batches(self) -> None:
        """Close all open batches, for flush, commit, or when there is no room left."""
        for lane in self.busy.values():
            self.close_lane(lane)

    def unsettled(self) -> list[ProducerBatch]:
        """The batches neither acknowledged nor failed; open batches are closed."""
        while self.failures and self.failures[0][0] <= self.failures_raised:
            self.failures.popleft()
        self.close_batches()
        return self.queued()

    def queued(self) -> list[ProducerBatch]:
        """The batches neither acknowledged nor failed."""
        return [batch for lane in self.busy.values() for batch in lane.queue]

    @property
    def idle(self) -> bool:
        """True if all batches are settled."""
        return not any(lane.queue for lane in self.busy.values())

    @property
    def in_flight(self) -> bool:
        """True if a batch is in a request without a response."""
        return any(lane.in_flight for lane in self.busy.values())

    # --- the end of batches

    def let_out(self, lane: PartitionQueue) -> None:
        """Let further records of the partition that come alone be sent at once."""
        topic, partition = lane.partition
        batches = self.open.topic(topic)
        if batches is not None and lane.direct is not None:
            batches.send_alone(partition, lane.direct)

    def settle(self, lane: PartitionQueue, batch: ProducerBatch, error: KohortError | None = None) -> None:
        """Settle a batch that is acknowledged, or failed with `error`."""
        lane.settle(batch)
        self._finish(lane, batch, error)
        self._context.updated()
        if error is not None:
            batch.error_reported = batch.whole.calls_back_all
            self._context.sensors.failed_records += batch.count
            self.failures_counted += 1
            if len(self.failures) == FAILURES_KEPT:  # the first half is kept, so that this is rare
                self.failures = deque(islice(self._unraised(), FAILURES_KEPT // 2))
            self.failures.append((self.failures_counted, batch))  # until `flush` raises it
            self._on_failure(error)

    def _finish(self, lane: PartitionQueue, batch: ProducerBatch, error: KohortError | None) -> None:
        """Free a batch, and the one that it is the last part of."""
        batch.release()
        batch.error = error
        batch.done = True
        parent = batch.parent
        if parent is not None and all(part.done for part in parent.parts):
            self._finish(lane, parent, next((part.error for part in parent.parts if part.error is not None), None))
        self.callbacks.extend(lane.due_callbacks(batch))  # after those of the parent, which precede later batches

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
        return self.failures_counted, next((batch.error for _, batch in self._unraised()), None)

    def _unraised(self) -> Iterator[tuple[int, ProducerBatch]]:
        return (one for one in self.failures if one[0] > self.failures_raised and not one[1].error_reported)


def check_partition(topic: str, number: int, partitions: int, named: str = "") -> None:
    """Raises UnknownTopic if a topic with so many partitions does not have this one. `named`: its text begins so."""
    if not 0 <= number < partitions:
        raise UnknownTopic(f"{named}the topic has {counted(partitions, 'partition')}", topic=topic, partition=number)


def _no_wait(_reached: Callable[[], bool], _timeout_s: float | None) -> None:
    raise AssertionError("a producer without a driver waits for nothing")
