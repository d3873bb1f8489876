"""Everything a producer is, but its sockets, thread and clock: the driver gives it turns, as it does a consumer's.

`append` and `lay` take records on the caller's thread; `Sender` sends them, `Transactions` knows under which id and
whether it may. All under the driver's lock, and nothing slow among it: batches are compressed when they are written.

A signal handler may raise on the caller's thread after each call. So `append` and `lay` change nothing but by one step
that is whole in itself; what else they leave behind may be found twice, or in vain, and does no harm. All other changes
are made on the driver's thread.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client.group.events import Event
from kohort.fastpath._encode import BatchBuilder, Body
from kohort.network.arguments import INT16_MAX, fits_the_wire
from kohort.network.backoff import Backoff
from kohort.network.client_metrics import Counters
from kohort.network.connection_states import ConnectionStates
from kohort.network.errors import AuthorizationFailed, IllegalState, UnknownTopic
from kohort.network.metadata_refresh import MetadataRefresher
from kohort.network.metadata_updater import MetadataUpdater
from kohort.network.notices import Notice
from kohort.network.requests import ConnectionPurpose, Endpoint, PendingRequest, PollResult, UnsentRequest
from kohort.producer.errors import ProducerClosed, RecordTooLarge
from kohort.producer.partitioner import PARTITIONERS, Sticky
from kohort.producer.producer_batch import Pairs, PartitionQueue, ProducerBatch
from kohort.producer.producer_config import ProducerConfig
from kohort.producer.sender import Sender
from kohort.producer.transaction_manager import TransactionManager

log = logging.getLogger("kohort.producer")

RECORD_OVERHEAD = 24  # most of what a record takes besides key, value and headers
FAILURES_KEPT = 1_000
GROWS = 0.1  # of its delivery timeout: how long a batch that cannot be sent takes records


class ProducerCore:
    """See the module. `chance` gives numbers in [0, 1)."""

    def __init__(self, config: ProducerConfig, *, chance: Callable[[], float], started: float) -> None:
        self.config = config.connecting
        self.settings = config.producing
        self.chance = chance
        self.started = started
        self.backoff = Backoff(self.config.retry_backoff_ms, self.config.retry_backoff_max_ms)
        self.endpoints = ConnectionStates.of(self.config, chance)
        self.metadata = MetadataRefresher(
            self.backoff, self.config.metadata_max_age_ms / 1000, self.config.allow_auto_create_topics
        )
        self.cluster = MetadataUpdater(self, lambda: frozenset(self._topics))
        self.counters = Counters()
        self.lanes: dict[TopicPartition, PartitionQueue] = {}
        self.buffered = 0  # bytes of records that are not settled, before compression
        self.pressed = False  # a caller waits for room: nothing lingers in the next turn
        self.wake: Callable[[], None] = _idle  # has the driver take a turn
        self.stop: Callable[[], None] = _idle  # has the driver end
        self.retired = False  # dropped unclosed: the driver ends when everything is settled
        self.failures: deque[tuple[int, ProducerBatch]] = deque(maxlen=FAILURES_KEPT)
        self.failures_counted = 0
        self.failures_raised = 0  # up to which of them `flush` has raised
        self.transactions = TransactionManager(self)
        self.sender = Sender(self)
        self._topics: set[str] = set()
        self._topic_errors: dict[str, KohortError] = {}
        self._partition_of_key = PARTITIONERS[self.settings.partitioner]
        self._sticky = Sticky(chance)
        # A batch is given up as one: those who join it late would be given up too soon.
        self._grows_s = max(self.settings.linger_ms, self.settings.delivery_timeout_ms * GROWS) / 1000
        self._outgoing: list[UnsentRequest] = []
        self._fatal: KohortError | None = None
        self._news = self._fresh = False

    # ------------------------------------------------------------------ the driver's side

    def log_fields(self) -> Mapping[str, object]:
        """Whose the log lines of the driver's thread are."""
        return {"client_id": self.config.client_id, "transactional_id": self.settings.transactional_id or ""}

    def poll(self, now: float, wall_ms: int) -> PollResult:
        """Look at everything that happened; what is to be sent comes out."""
        self.cluster.poll(now)
        if self.retired:
            self._wind_up()
        self.transactions.poll(now)
        self.sender.poll(now)
        wakes = [*self.cluster.next_poll_at(now), *self.transactions.next_poll_at(), *self.sender.next_poll_at(now)]
        outgoing, self._outgoing = tuple(self._outgoing), []
        self._news, self._fresh = self._fresh, False
        # A time that has passed without work being owed is waited for no longer: else the driver would spin.
        return PollResult(outgoing, min((wake for wake in wakes if wake is not None and wake > now), default=None))

    def _wind_up(self) -> None:
        """Send what is buffered, abort what is open; then end."""
        self.close_batches()
        self.transactions.close()
        if self._fatal is not None or (self.sender.idle and self.transactions.at_rest):
            self.stop()

    @property
    def has_updates(self) -> bool:
        """Whether since the turn before the last something happened that a caller may be waiting for."""
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
        """Hand a request to the driver; without an endpoint any broker will do."""
        self._outgoing.append(UnsentRequest(line, endpoint, ask))

    def fail(self, error: KohortError) -> None:
        """Nothing will be sent any more: everything that waits is told."""
        if self._fatal is None:
            self._fatal = error
            if not isinstance(error, ProducerClosed):
                log.error("the producer is of no more use: %s", error)
            self.sender.give_up(error)
        self.has_updates = True

    def failed(self, batch: ProducerBatch) -> None:
        """Keep a batch that was given up, until `flush` raises its error."""
        self.failures_counted += 1
        self.failures.append((self.failures_counted, batch))

    def untold(self) -> tuple[int, KohortError | None]:
        """How many batches have failed, and the first error that neither a delivery nor `flush` has raised."""
        errors = (
            one.error for number, one in self.failures if number > self.failures_raised and not one.error_reported
        )
        return self.failures_counted, next(errors, None)

    def metrics(self) -> dict[str, int]:
        """Counters of requests and connections, and what is buffered."""
        counted = ("requests", "requests_unanswered", "connections_opened", "connections_ended")
        return {f"{name}_total": getattr(self.counters, name) for name in counted} | {"buffered_bytes": self.buffered}

    def put_error(self, error: KohortError) -> None:
        """What no call asked for. Errors of a topic are for whoever waits to send to it."""
        topic = error.place.get("topic")
        if isinstance(topic, str):
            if isinstance(error, AuthorizationFailed):
                error = AuthorizationFailed("not allowed to write to the topic", hint="grant WRITE on it", topic=topic)
            self._topic_errors[topic] = error
        else:
            log.warning("%s", error)
        self.has_updates = True

    def coordinator_lost(self, endpoint: Endpoint, error: KohortError) -> None:
        """A coordinator's connection ended while nothing was waiting for an answer."""
        self.transactions.coordinators.gone(endpoint)

    def tell_member(self, event: Event) -> None:
        """A producer is no member of anything."""

    def noted(self, notice: Notice) -> None:
        """The log has it."""

    # ------------------------------------------------------------------ the caller's side

    def partitions(self, topic: str) -> int | None:
        """The number of partitions of a topic; None if it is not known. Raises what ended the producer."""
        if self._fatal is not None:
            raise self._fatal
        view = self.metadata.view.topics.get(topic)
        if view is None:
            return None
        if self._topic_errors:
            self._topic_errors.pop(topic, None)  # of a time when it was not there
        return len(view.partitions)

    def press(self, topic: str) -> None:
        """A caller waits for room, or for the topic: nothing lingers in the next turn. Raises as `need`."""
        self.pressed = True
        self.add_topic(topic)

    def add_topic(self, topic: str) -> None:
        """Request the topic's metadata if it is not known. Raises what is wrong with the topic, or what ended the
        producer."""
        if self.partitions(topic) is not None:
            return
        error = self._topic_errors.pop(topic, None)
        if error is not None:
            if any(place.topic == topic for place in self.sender.busy):
                self.cluster.forget_missing()  # records wait for it: go on asking, and tell again
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
        """The batch that the record is in now, and its place there; None: there is no room, or the topic is not known.

        Raises what is wrong with the record, the transaction or the producer.
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
        if self.buffered and self.buffered + size > self.settings.buffer_bytes:
            return None
        lane = self._lane(topic, self.chosen(topic, count, key, partition))
        queue = lane.queue
        batch = queue[-1] if queue and not queue[-1].closed else None
        if batch is not None and (
            batch.size + size > self.settings.batch_bytes or batch.created_at < now - self._grows_s
        ):
            self.close_lane(lane)
            batch = None
        if batch is None:
            batch = ProducerBatch(lane.partition, now, BatchBuilder())
            self.wake()  # ahead of the record: behind it, an interrupt could leave it to a driver that sleeps
        index = batch.count
        assert batch.builder is not None
        batch.builder.append_to(batch, queue, self, key, value, timestamp_ms, headers)
        if batch.size >= self.settings.batch_bytes:
            self.close_lane(lane)
            self.wake()
        return batch, index

    def append_batch(self, partition: TopicPartition, body: Body, size: int, now: float) -> ProducerBatch | None:
        """A whole batch, laid out already; None: there is no room now. `size`: its bytes before compression."""
        if self.transactions.transactional_id is not None:
            self.transactions.may_take_records()
        if self._fatal is not None:
            raise self._fatal
        if body.count == 1:  # of several there are never more than fit `batch_bytes`
            self._fits(partition.topic, size)
        if self.buffered and self.buffered + size > self.settings.buffer_bytes:
            return None
        lane = self._lane(*partition)
        self.close_lane(lane)
        batch, put = (
            ProducerBatch(lane.partition, now, body=body, size=size, count=body.count, closed=True),
            lane.queue.append,
        )
        self.wake()
        self.buffered += size  # no handler runs between this and the end of the next call, which is the last one
        put(batch)
        return batch

    def _fits(self, topic: str, size: int) -> None:
        """Raises RecordTooLarge for a record of so many bytes that no request may carry it."""
        if size > self.settings.max_request_bytes:
            raise RecordTooLarge(
                f"a record of {size} bytes",
                hint="raise max_request_bytes, and the broker's message.max.bytes",
                topic=topic,
                max_request_bytes=self.settings.max_request_bytes,
            )

    def sticky(self, topic: str, count: int) -> int:
        """The partition for records without a key, until a batch of the topic is closed."""
        return self._sticky.choose(topic, count, lambda: self._led(topic))

    def chosen(self, topic: str, count: int, key: bytes | None, partition: int | None) -> int:
        """The partition for a record. Raises UnknownTopic for a `partition` that is none of the topic's `count`."""
        if partition is not None:
            if not 0 <= partition < count:
                raise UnknownTopic(f"the topic has {count} partitions", topic=topic, partition=partition)
            return partition
        if key is None or (not key and self.settings.partitioner == "crc32"):
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
        """What is open grows no more."""
        lane.close_batch()
        self._sticky.move_on(lane.partition.topic)

    def skip_for_now(self, lane: PartitionQueue) -> None:
        """Nothing of it can be sent now: its batch takes more records, but those without a key go elsewhere."""
        self._sticky.leave(lane.partition)

    def close_batches(self) -> None:
        """Nothing lingers: flush, commit, or no room is left."""
        for lane in self.sender.busy.values():
            self.close_lane(lane)

    def unsettled(self) -> list[ProducerBatch]:
        """The batches that are neither acknowledged nor given up; everything open is closed."""
        while self.failures and self.failures[0][0] <= self.failures_raised:
            self.failures.popleft()
        self.close_batches()
        return [batch for lane in self.sender.busy.values() for batch in lane.queue]


def _idle() -> None:
    """Machines without a driver are given turns anyway."""
