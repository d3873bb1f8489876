"""The producer without sockets, thread and clock, which are in the driver.

`append` and `append_batch` take records on the caller's thread. `Sender` sends them. `TransactionManager` has the
producer id and decides whether they may be sent. All run under the driver's lock and are fast: batches are compressed
when they are written to a socket.

A signal handler may raise on the caller's thread after each call. So `append` and `append_batch` change state in one
atomic step only. Other effects may occur twice or without a record, and are harmless. All other changes are made on the
driver's thread.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping

from kohort.common import KohortError, TopicPartition
from kohort.fastpath._encode import BatchBuilder, Body
from kohort.network.arguments import INT16_MAX, fits_the_wire
from kohort.network.backoff import Backoff
from kohort.network.client_metrics import Counters
from kohort.network.connection_states import ConnectionStates
from kohort.network.errors import AuthorizationFailed, IllegalState, UnknownTopic
from kohort.network.metadata_refresh import MetadataRefresher
from kohort.network.metadata_updater import MetadataUpdater
from kohort.network.requests import ConnectionPurpose, Endpoint, PendingRequest, PollResult, UnsentRequest
from kohort.producer.errors import ProducerClosed, RecordTooLarge
from kohort.producer.partitioner import PARTITIONERS, Sticky
from kohort.producer.producer_batch import Pairs, PartitionQueue, ProducerBatch
from kohort.producer.producer_config import ProducerConfig
from kohort.producer.sender import Sender
from kohort.producer.transaction_manager import TransactionManager

log = logging.getLogger("kohort.producer")

RECORD_OVERHEAD = 24  # maximum bytes of a record besides key, value and headers
FAILURES_KEPT = 1_000
GROWS = 0.1  # fraction of the delivery timeout for which a batch that cannot be sent takes records


class ProducerCore:
    """The state of one producer; see the module. `chance` returns numbers in [0, 1)."""

    def __init__(self, config: ProducerConfig, *, chance: Callable[[], float], started: float) -> None:
        self.config = config
        self.chance = chance
        self.started = started
        self.backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        self.endpoints = ConnectionStates.of(self.config, chance)
        self.metadata = MetadataRefresher(
            self.backoff, self.config.metadata_max_age_ms / 1000, self.config.allow_auto_create_topics
        )
        self.cluster = MetadataUpdater(
            self,
            lambda: frozenset(self._topics),
            on_coordinator_lost=lambda endpoint, _error: self.transactions.coordinators.gone(endpoint),
        )
        self.counters = Counters()
        self.lanes: dict[TopicPartition, PartitionQueue] = {}
        self.buffered = 0  # bytes of records that are not settled, before compression
        self.pressed = False  # a caller waits for room: linger_ms is ignored in the next poll
        self.wake: Callable[[], None] = _idle  # makes the driver poll
        self.stop: Callable[[], None] = _idle  # makes the driver end
        self.retired = False  # dropped unclosed: the driver ends when everything is settled
        self.failures: deque[tuple[int, ProducerBatch]] = deque(maxlen=FAILURES_KEPT)
        self.failures_counted = 0
        self.failures_raised = 0  # number of failures up to which `flush` has raised
        self.transactions = TransactionManager(self)
        self.sender = Sender(self)
        self._topics: set[str] = set()
        self._topic_errors: dict[str, KohortError] = {}
        self._partition_of_key = PARTITIONERS[self.config.partitioner]
        self._sticky = Sticky(chance)
        # A batch expires as a whole, so records that are appended late would expire too soon.
        self._grows_s = max(self.config.linger_ms, self.config.delivery_timeout_ms * GROWS) / 1000
        self._outgoing: list[UnsentRequest] = []
        self._fatal: KohortError | None = None
        self._news = self._fresh = False

    # ------------------------------------------------------------------ called by the driver

    def log_fields(self) -> Mapping[str, object]:
        """The fields of log lines of the driver's thread."""
        return {"client_id": self.config.client_id, "transactional_id": self.config.transactional_id or ""}

    def poll(self, now: float, wall_ms: int) -> PollResult:
        """Handle everything that happened, and return the requests to send."""
        self.cluster.poll(now)
        if self.retired:
            self._wind_up()
        self.transactions.poll(now)
        self.sender.poll(now)
        wakes = [*self.cluster.next_poll_at(now), *self.transactions.next_poll_at(), *self.sender.next_poll_at(now)]
        outgoing, self._outgoing = tuple(self._outgoing), []
        self._news, self._fresh = self._fresh, False
        # Times in the past without work to do are ignored: otherwise the driver would spin.
        return PollResult(outgoing, min((wake for wake in wakes if wake is not None and wake > now), default=None))

    def _wind_up(self) -> None:
        """Send buffered records, abort an open transaction, then end."""
        self.close_batches()
        self.transactions.close()
        if self._fatal is not None or (self.sender.idle and self.transactions.at_rest):
            self.stop()

    @property
    def has_updates(self) -> bool:
        """True if a caller may have to be woken because of an event since the poll before the last."""
        return self._news

    @has_updates.setter
    def has_updates(self, value: bool) -> None:
        self._fresh = self._fresh or value

    @property
    def fatal(self) -> KohortError | None:
        return self._fatal

    @property
    def request_s(self) -> float:
        return self.config.request_timeout_ms / 1000

    def send(self, line: ConnectionPurpose, endpoint: Endpoint | None, ask: PendingRequest) -> None:
        """Pass a request to the driver; without an endpoint any broker will do."""
        self._outgoing.append(UnsentRequest(line, endpoint, ask))

    def fail(self, error: KohortError) -> None:
        """End the producer: fail everything that waits."""
        if self._fatal is None:
            self._fatal = error
            if not isinstance(error, ProducerClosed):
                log.error("the producer is of no more use: %s", error)
            self.sender.give_up(error)
        self.has_updates = True

    def failed(self, batch: ProducerBatch) -> None:
        """Keep a failed batch until `flush` raises its error."""
        self.failures_counted += 1
        self.failures.append((self.failures_counted, batch))

    def untold(self) -> tuple[int, KohortError | None]:
        """The number of failed batches, and the first error not raised by a delivery or `flush`."""
        errors = (
            one.error for number, one in self.failures if number > self.failures_raised and not one.error_reported
        )
        return self.failures_counted, next(errors, None)

    def metrics(self) -> dict[str, int]:
        """Counters of requests and connections, and the buffered bytes."""
        counted = ("requests", "requests_unanswered", "connections_opened", "connections_ended")
        return {f"{name}_total": getattr(self.counters, name) for name in counted} | {"buffered_bytes": self.buffered}

    def put_error(self, error: KohortError) -> None:
        """Handle an error that belongs to no call.

        An error of a topic is raised by the calls that wait to send to it.
        """
        topic = error.place.get("topic")
        if isinstance(topic, str):
            if isinstance(error, AuthorizationFailed):
                error = AuthorizationFailed("not allowed to write to the topic", hint="grant WRITE on it", topic=topic)
            self._topic_errors[topic] = error
        else:
            log.warning("%s", error)
        self.has_updates = True

    # ------------------------------------------------------------------ called by the user's thread

    def partitions(self, topic: str) -> int | None:
        """The number of partitions of a topic; None if unknown. Raises the error that ended the producer."""
        if self._fatal is not None:
            raise self._fatal
        view = self.metadata.view.topics.get(topic)
        if view is None:
            return None
        if self._topic_errors:
            self._topic_errors.pop(topic, None)  # outdated: the topic exists now
        return len(view.partitions)

    def press(self, topic: str) -> None:
        """Send all batches in the next poll, since a caller waits for room or for the topic.

        Raises as `add_topic`.
        """
        self.pressed = True
        self.add_topic(topic)

    def add_topic(self, topic: str) -> None:
        """Request the topic's metadata if it is unknown.

        Raises the topic's error, or the error that ended the producer.
        """
        if self.partitions(topic) is not None:
            return
        error = self._topic_errors.pop(topic, None)
        if error is not None:
            if any(place.topic == topic for place in self.sender.busy):
                self.cluster.forget_missing()  # records wait for it: request it again, and report its error again
            else:
                self._topics.discard(topic)
                self.metadata.remove_transient([topic])
            raise error
        if topic not in self._topics:
            if not isinstance(topic, str) or not topic or not topic.isascii() or not fits_the_wire(topic):
                raise IllegalState(
                    f"a topic name is a non-empty string of ASCII, of {INT16_MAX} bytes at most",
                    topic=repr(topic)[:100],
                )
            self._topics.add(topic)
            self.metadata.add_transient([topic])
            self.cluster.forget_missing()

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Pairs | None,
        partition: int | None,
        timestamp_ms: int,
        now: float,
    ) -> tuple[ProducerBatch, int] | None:
        """Append a record; returns its batch and its index there.

        None if there is no room, or the topic is unknown. Raises errors of the record, the transaction or the producer.
        """
        if self.transactions.transactional_id is not None:
            self.transactions.may_take_records()
        count = self.partitions(topic)
        if count is None:
            return None
        size = RECORD_OVERHEAD + (0 if key is None else len(key)) + (0 if value is None else len(value))
        if headers:
            size += sum(len(name or "") + len(content or b"") for name, content in headers)
        self._fits(topic, size)
        if self.buffered and self.buffered + size > self.config.buffer_bytes:
            return None
        lane = self._lane(topic, self.chosen(topic, count, key, partition))
        queue = lane.queue
        batch = queue[-1] if queue and not queue[-1].closed else None
        if batch is not None and (
            batch.size + size > self.config.batch_bytes or batch.created_at < now - self._grows_s
        ):
            self.close_lane(lane)
            batch = None
        if batch is None:
            batch = ProducerBatch(lane.partition, now, BatchBuilder())
            self.wake()  # before the record: after it, an interrupt could leave the driver asleep
        index = batch.count
        assert batch.builder is not None
        batch.builder.append_to(batch, queue, self, key, value, timestamp_ms, headers)
        if batch.size >= self.config.batch_bytes:
            self.close_lane(lane)
            self.wake()
        return batch, index

    def append_batch(self, partition: TopicPartition, body: Body, size: int, now: float) -> ProducerBatch | None:
        """Append an encoded batch; None if there is no room. `size`: its bytes before compression."""
        if self.transactions.transactional_id is not None:
            self.transactions.may_take_records()
        if self._fatal is not None:
            raise self._fatal
        if body.count == 1:  # a batch of several never exceeds `batch_bytes`
            self._fits(partition.topic, size)
        if self.buffered and self.buffered + size > self.config.buffer_bytes:
            return None
        lane = self._lane(*partition)
        self.close_lane(lane)
        batch, put = (
            ProducerBatch(lane.partition, now, body=body, size=size, count=body.count, closed=True),
            lane.queue.append,
        )
        self.wake()
        self.buffered += size  # no handler runs between this and the end of the next, last call
        put(batch)
        return batch

    def _fits(self, topic: str, size: int) -> None:
        """Raises RecordTooLarge if a record of this size fits no request."""
        if size > self.config.max_request_bytes:
            raise RecordTooLarge(
                f"a record of {size} bytes",
                hint="raise max_request_bytes, and the broker's message.max.bytes",
                topic=topic,
                max_request_bytes=self.config.max_request_bytes,
            )

    def sticky(self, topic: str, count: int) -> int:
        """The partition for records without a key, until a batch of the topic is closed."""
        return self._sticky.choose(topic, count, lambda: self._led(topic))

    def chosen(self, topic: str, count: int, key: bytes | None, partition: int | None) -> int:
        """The partition for a record. Raises UnknownTopic if `partition` is not below `count`."""
        if partition is not None:
            if not 0 <= partition < count:
                raise UnknownTopic(f"the topic has {count} partitions", topic=topic, partition=partition)
            return partition
        if key is None or (not key and self.config.partitioner == "crc32"):
            return self.sticky(topic, count)
        return self._partition_of_key(key, count)

    def _led(self, topic: str) -> list[int]:
        view = self.metadata.view
        return [one.partition for one in view.partitions_of(topic) if view.leader(one) is not None]

    def _lane(self, topic: str, partition: int) -> PartitionQueue:
        place = TopicPartition(topic, partition)
        lane = self.lanes.get(place)
        if lane is None:
            lane = self.lanes[place] = PartitionQueue(place)
        self.sender.busy[place] = lane
        self.transactions.uses(place)
        return lane

    def close_lane(self, lane: PartitionQueue) -> None:
        """Close the open batch of a partition."""
        lane.close_batch()
        self._sticky.move_on(lane.partition.topic)

    def skip_for_now(self, lane: PartitionQueue) -> None:
        """Choose another partition for records without a key, since this one cannot be sent to now.

        Its open batch still takes records.
        """
        self._sticky.leave(lane.partition)

    def close_batches(self) -> None:
        """Close all open batches, for flush, commit, or when there is no room left."""
        for lane in self.sender.busy.values():
            self.close_lane(lane)

    def unsettled(self) -> list[ProducerBatch]:
        """The batches neither acknowledged nor failed; open batches are closed."""
        while self.failures and self.failures[0][0] <= self.failures_raised:
            self.failures.popleft()
        self.close_batches()
        return [batch for lane in self.sender.busy.values() for batch in lane.queue]


def _idle() -> None:
    """Do nothing: without a driver, the core is polled anyway."""
