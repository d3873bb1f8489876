"""The producer without sockets, thread and clock, which are in the driver.

Records enter open batches on the caller's thread (`_open_batch`). There `append` and `append_batch` open new ones.
The `RecordAccumulator` has the batches, and `Sender` sends them. `TransactionManager` has the producer id and decides
whether they may be sent. All run under the driver's lock and are fast: helpers compress the batches.

A signal handler may raise on the caller's thread after each call. So `append` and `append_batch` change state in one
atomic step only. Other effects may occur twice or without a record, and are harmless. All other changes are made on the
driver's thread.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Final

from kohort.common import KohortError, TopicPartition
from kohort.common.log_context import logger
from kohort.fastpath._encode import Body
from kohort.network.arguments import INT16_MAX, unsendable
from kohort.network.client_core import ClientCore
from kohort.network.connection_states import BoundedTable
from kohort.network.errors import AuthorizationFailed, IllegalState, UnknownTopic
from kohort.network.metadata_refresh import MetadataRefresher
from kohort.network.metadata_updater import MetadataUpdater
from kohort.network.request_manager import earliest
from kohort.network.requests import PollResult, UnsentRequest
from kohort.network.telemetry.telemetry_reporter import TelemetryContext, TelemetryReporter
from kohort.producer._open_batch import Delivery, record_size
from kohort.producer.errors import ProducerClosed, RecordTooLarge
from kohort.producer.producer_batch import ProducerBatch
from kohort.producer.producer_config import ProducerConfig
from kohort.producer.producer_context import ProducerContext
from kohort.producer.producer_sensors import ProducerSensors
from kohort.producer.record_accumulator import RecordAccumulator, check_partition
from kohort.producer.sender import Sender
from kohort.producer.transaction_manager import TransactionManager
from kohort.producer.transaction_states import TxnState

if TYPE_CHECKING:
    from kohort.producer._open_batch import OnDelivery
    from kohort.producer.producer_metrics import ProducerMetrics

log = logger("kohort.producer")

MOST_REFUSED = 100
"""The errors of so many topics are kept for the other calls that wait for these topics."""
MAX_IDLE_S: Final = 300.0
"""Time without a record after which a topic leaves metadata: the default of Java's `metadata.max.idle.ms`."""


class ProducerCore(ClientCore[ProducerConfig]):
    """The state of one producer; see the module. `chance` returns random numbers in [0, 1)."""

    def __init__(self, config: ProducerConfig, *, chance: Callable[[], float], started: float) -> None:
        super().__init__(config, chance=chance, started=started)
        self.metadata = MetadataRefresher(
            self.backoff, config.metadata_max_age_ms / 1000, config.allow_auto_create_topics
        )
        self.cluster = MetadataUpdater(
            self,
            lambda: frozenset(self._topics),
            on_metadata=lambda _changed: self._on_metadata(),
            on_coordinator_lost=lambda endpoint, _error: self.transactions.coordinators.lost(endpoint),
        )
        self.wake: Callable[[], None] = _idle  # makes the driver poll, for new records only
        self.stop: Callable[[], None] = _idle  # makes the driver end
        self.retired = False  # dropped unclosed: the driver ends when everything is settled
        self.sensors = ProducerSensors()
        self._context = context = ProducerContext(
            config,
            self.metadata,
            self.backoff,
            chance,
            lambda: self.endpoints.features.levels,
            self.cluster.send_to_any,
            self.fail,
            lambda: self.fatal,
            self._updated,
            self.sensors,
            self.counters,
        )
        self.accumulator = RecordAccumulator(context, lambda error: self.transactions.batch_failed(error))
        self.transactions = TransactionManager(context, self.accumulator)
        self.sender = Sender(context, self.accumulator, self.transactions)
        self.sender.is_plain, self.sender.came_to_rest = self._is_plain, self._polled
        self.telemetry = TelemetryReporter(
            TelemetryContext(
                client="producer",
                enabled=config.enable_metrics_push,
                request_s=self.request_s,
                endpoints=self.endpoints,
                chance=chance,
                wall_ms=lambda: self._wall_ms,
                metrics=self.metrics,
                labels=lambda: {"transactional_id": config.transactional_id},
                notify=self._updated,
            )
        )
        self._wall_ms = 0
        self._topics: dict[str, float] = {}  # when they were last used (monotonic s), as of the last metadata
        self._topic_errors: dict[str, KohortError] = {}
        self._polls_at = inf  # the time of the next poll, unless it is woken
        self._others_at: float | None = None  # as `_polls_at`, without the sender
        self.refusals = 0
        """The number of errors that `press` has raised. A call that waits keeps the number at its start."""
        # By topic, with that number.
        self._refused: BoundedTable[str, tuple[int, KohortError]] = BoundedTable(MOST_REFUSED)

    # ------------------------------------------------------------------ called by the driver

    def log_fields(self) -> Mapping[str, object]:
        """The fields of log lines of the driver's thread."""
        return {"client_id": self.config.client_id, "transactional_id": self.config.transactional_id or ""}

    def poll(self, now: float, wall_ms: int) -> PollResult:
        """Handle everything that happened, and return the requests to send."""
        self._wall_ms = wall_ms
        self.cluster.bootstrap_failed(now)
        if self.retired:
            self._wind_up()
        before = self.transactions.poll(now)
        sent = self.sender.poll(now)
        after = self.telemetry.poll(now)
        cluster = self.cluster.poll(now)  # last, since the others request updates and coordinators
        self._others_at = earliest(now, (before.next_poll_at, after.next_poll_at, cluster.next_poll_at))
        return self._polled_until(
            cluster.requests + before.requests + sent.requests + after.requests,
            earliest(now, (sent.next_poll_at, self._others_at)),
        )

    def poll_added(self, now: float, wall_ms: int) -> PollResult:
        """As `poll`, where only new records have come. Only the sender is polled, unless it has to wait for others."""
        if not self._is_plain() or (self._others_at is not None and self._others_at <= now):
            return self.poll(now, wall_ms)
        sent = self.sender.poll(now)
        if self.sender.blocked:
            everything = self.poll(now, wall_ms)
            return everything._replace(requests=sent.requests + everything.requests)
        return self._polled_until(sent.requests, earliest(now, (sent.next_poll_at, self._others_at)))

    def _polled_until(self, requests: tuple[UnsentRequest, ...], next_poll_at: float | None) -> PollResult:
        self._polled()
        self._polls_at = inf if next_poll_at is None else next_poll_at
        return PollResult(requests, next_poll_at)

    def _is_plain(self) -> bool:
        """True without a transaction, metrics, an error or an end of the producer to be dealt with."""
        transactions = self.transactions
        return (
            (transactions.state is TxnState.IDLE or not self.sender.idempotent)
            and transactions.transactional_id is None
            and self._fatal is None
            and not self.retired
            and self.telemetry.ended  # otherwise a response changes the time of its next request
        )

    def is_at_rest(self) -> bool:
        """True if no batch, transaction, error or end of the producer is left to be dealt with."""
        if not self._is_plain() or not self.sender.is_at_rest():
            return False
        self._polled()
        return True

    def _wind_up(self) -> None:
        """Send buffered records, abort an open transaction, then end."""
        self.accumulator.close_batches()
        self.transactions.close()
        if self._fatal is not None or (self.accumulator.idle and self.transactions.at_rest):
            self.stop()

    @property
    def bootstrap_s(self) -> float:
        """Infinite: a producer may be made before its brokers, and its calls have time-outs of their own."""
        return inf

    @property
    def unreached(self) -> tuple[str, str]:
        """The addresses and the last error as a part of a sentence, and a hint; empty once a broker has responded."""
        error = self.endpoints.last_error
        if error is None or self.endpoints.ever_responded:
            return "", ""
        addresses = ", ".join(f"{one.host}:{one.port}" for one in self.endpoints.bootstrap)
        hint = error.hint or "check bootstrap, and that a broker runs there"
        return f": no broker was reached at {addresses}: {error.message}", hint

    def metrics(self, now: float) -> "ProducerMetrics":
        """All metrics at `now`."""
        from kohort.producer.producer_metrics import metrics_of  # for producers that are watched

        return metrics_of(
            self._context,
            buffered=self.accumulator.buffered,
            requests_in_flight=self.sender.requests_in_flight,
            closed=isinstance(self._fatal, ProducerClosed),
            now=now,
        )

    def fail(self, error: KohortError) -> None:
        """End the producer: fail everything that waits."""
        if self._fatal is None:
            self._fatal = error
            if not isinstance(error, ProducerClosed):
                log.error("the producer failed and must be closed: %s", error)
            self.accumulator.give_up(error)
        self._fresh = True

    def put_error(self, error: KohortError) -> None:
        """Handle an error that belongs to no call.

        An error of a topic is raised by the calls that wait to send to it.
        """
        topic = error.place.get("topic")
        if isinstance(topic, str):
            error = self._topic_errors[topic] = self._in_a_producers_words(error, topic)
            if isinstance(error, UnknownTopic) and self._has_records(topic):
                self.transactions.batch_failed(error)  # otherwise it could not end until they expire
        else:
            log.warning("%s", error)
        self._fresh = True

    def _has_records(self, topic: str) -> bool:
        return any(lane.queue for (name, _), lane in self.accumulator.busy.items() if name == topic)

    def _in_a_producers_words(self, error: KohortError, topic: str) -> KohortError:
        if isinstance(error, AuthorizationFailed):
            hint = "grant WRITE on it, and CREATE if it does not exist"
            return AuthorizationFailed("not allowed to write to the topic", hint=hint, topic=topic)
        if isinstance(error, UnknownTopic) and error.hint is not None:  # else the name is invalid
            refused = ", and the broker creates none at first use" if self.config.allow_auto_create_topics else ""
            return UnknownTopic(f"no such topic{refused}", hint="check its name, or create it", topic=topic)
        return error

    # ------------------------------------------------------------------ called by the user's thread

    def partitions(self, topic: str, number: int = 0, named: str = "") -> int | None:
        """The number of partitions of a topic; None if unknown.

        Raises UnknownTopic for a topic without the partition `number`, and the error that ended the producer. `named`:
        as in `check_partition`.
        """
        if self._fatal is not None:
            raise self._fatal
        if type(topic) is not str:
            _check_topic(topic)  # first, since not every object can be a key
        view = self.metadata.view.topics.get(topic)
        if view is None:
            return None
        if self._topic_errors:
            self._topic_errors.pop(topic, None)  # outdated: the topic exists now
        check_partition(topic, number, len(view.partitions), named)
        return len(view.partitions)

    def press(self, topic: str, since: int) -> None:
        """Send all batches in the next poll, since a caller waits for room or for the topic.

        `since`: the value of `refusals` at the start of its wait. Raises as `add_topic`. All calls that wait for the
        topic get its error.
        """
        self.accumulator.pressed = True
        number, error = self._refused.get(topic, (0, None))
        if error is not None and number > since and self.partitions(topic) is None:
            raise error
        try:
            self.add_topic(topic)
        except KohortError as found:
            self.refusals += 1
            self._refused[topic] = self.refusals, found
            raise

    def add_topic(self, topic: str) -> None:
        """Request the topic's metadata if it is unknown.

        Raises the topic's error, or the error that ended the producer.
        """
        if self.partitions(topic) is not None:
            return
        error = self._topic_errors.pop(topic, None)
        if error is not None:
            if self._has_records(topic):
                self.cluster.forget_missing()  # records wait for it: request it again, and report its error again
            else:
                self._forget([topic])
            raise error
        if topic not in self._topics:
            _check_topic(topic)
            self.cluster.forget_missing()
        self._use(topic)

    def _use(self, topic: str) -> None:
        """Have the topic in metadata, as long as it is used."""
        if topic not in self._topics:
            self.metadata.add_transient([topic])  # first: an interrupt after it leaves a name that is requested
            self._topics[topic] = inf

    def _forget(self, topics: list[str]) -> None:
        for topic in topics:
            if self._topics.pop(topic, None) is not None:
                self.metadata.remove_transient([topic])

    def _on_metadata(self) -> None:
        """Metadata has come. Later requests leave out topics that were not used for long, as Java's client does.

        Otherwise a topic that is deleted would be created again by each request, until the producer is closed.
        """
        self._updated()
        used, now = self._topics, self.metadata.responded_at
        for (topic, _), lane in self.accumulator.lanes.items():
            if topic in used:
                used[topic] = max(used[topic], now if lane.queue else lane.used_at)
        for topic in used:
            used[topic] = min(used[topic], now)
        if idle := [topic for topic, used_at in used.items() if used_at < now - MAX_IDLE_S]:
            self._forget(idle)
            for topic in idle:
                self._topic_errors.pop(topic, None)
            self.accumulator.open.clear()  # so that their next records come by `append`

    def append(
        self,
        now: float,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: "OnDelivery | None",
    ) -> Delivery | None:
        """Append a record that the open batch of its partition could not take, and return its delivery.

        None if there is no room, or the topic is unknown. Raises errors of the record, the transaction or the producer.
        """
        if self.transactions.transactional_id is not None:
            self.transactions.may_take_records()
        count = self.partitions(topic)
        if count is None:
            return None
        self._use(topic)
        size = record_size(key, value, headers)
        self._fits(topic, size)
        accumulator, config = self.accumulator, self.config
        while not accumulator.is_full(size):
            lane = accumulator.lane(TopicPartition(topic, accumulator.chosen(topic, count, key, partition, now)))
            self.transactions.uses(lane.partition)
            batch = lane.open
            if batch is not None:
                delivery = batch.append(key, value, headers, timestamp_ms, on_delivery)
                if delivery is None:
                    accumulator.close_lane(lane)
                    self.wake()
                    continue
            else:
                if lane.direct is not None:
                    delivery = lane.direct.append(now, size, key, value, headers, timestamp_ms, on_delivery)
                    if delivery is not None:
                        accumulator.let_out(lane)
                        return delivery
                batch = accumulator.new_batch(lane, now)
                if now + config.linger_ms / 1000 < self._polls_at:
                    self.wake()  # before the record: after it, an interrupt could leave the driver asleep
                delivery = batch.append(key, value, headers, timestamp_ms, on_delivery, lane.queue.append)
                if delivery is None:  # another thread has taken the room: the queue does not have the batch
                    return None
                if batch.size >= config.batch_bytes:
                    accumulator.close_lane(lane)
                    self.wake()
            accumulator.let_in(batch)
            return delivery
        return None

    def append_batch(self, partition: TopicPartition, body: Body, now: float) -> ProducerBatch | None:
        """Append an encoded batch; None if there is no room."""
        if self.transactions.transactional_id is not None:
            self.transactions.may_take_records()
        if self._fatal is not None:
            raise self._fatal
        if body.count == 1:  # a batch of several never exceeds `batch_bytes`
            self._fits(partition.topic, len(body))
        accumulator = self.accumulator
        if accumulator.is_full(len(body)):
            return None
        self._use(partition.topic)
        lane = accumulator.lane(partition)
        self.transactions.uses(partition)
        batch = accumulator.new_batch(lane, now)
        accumulator.close_lane(lane)
        self.wake()
        return batch if batch.enqueue(body, lane.queue.append) else None

    def _fits(self, topic: str, size: int) -> None:
        """Raises RecordTooLarge if a record of this size fits no request."""
        if size > self.config.max_request_bytes:
            uncompressed = "" if self.config.compression == "none" else " before compression"
            raise RecordTooLarge(
                f"a record of {size} bytes{uncompressed}",
                hint="raise max_request_bytes, and the broker's message.max.bytes",
                topic=topic,
                max_request_bytes=self.config.max_request_bytes,
            )


def _check_topic(topic: object) -> None:
    """Raises IllegalState unless it can be a topic's name."""
    if not isinstance(topic, str) or not topic or not topic.isascii() or unsendable(topic):
        raise IllegalState(
            f"a topic name is a non-empty string of ASCII, of {INT16_MAX} bytes at most", topic=repr(topic)[:100]
        )


def _idle() -> None:
    """Do nothing: without a driver, the core is polled anyway."""
