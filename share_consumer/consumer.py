"""`ShareConsumer`: the blocking member of a share group.

A signal handler may raise in the main thread after each call. So the driver's thread makes all changes, and returned
records are handed over by the last step of a call (`Visit.handed`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Never, Self

from kohort.common import KohortError, TopicPartition
from kohort.fastpath import Record
from kohort.network.arguments import callback_given, seconds_given, topic_given
from kohort.network.client_handle import ClientHandle
from kohort.network.errors import IllegalState, OperationTimeout
from kohort.network.network_client import Driver
from kohort.network.process_exit import OPEN, warn_unclosed
from kohort.share_consumer.errors import ShareConsumerClosed
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.share_core import ShareConsumerCore
from kohort.share_consumer.share_fetcher import ParkedFetch, decoded
from kohort.share_consumer.share_records import (
    AcknowledgeOutcome,
    AcknowledgeType,
    ShareRecords,
    acknowledge_type,
    not_acquired,
)

Failures = dict[TopicPartition, dict[int, KohortError]]
OnAcknowledged = Callable[[AcknowledgeOutcome], object]


class ShareConsumer:
    """A member of a share group (KIP-932): a queue on Kafka's topics, with an acknowledgement for each record.

        with ShareConsumer("localhost:9092", group="jobs") as consumer:
            consumer.subscribe(["work"])
            for batch in consumer:
                for record in batch:
                    consumer.acknowledge(record, "accept")
                failures = consumer.commit()

    `settings`: by kohort's names, see `kohort.share_consumer.SETTINGS`. A new group starts at the end of the log: set
    `share.auto.offset.reset=earliest` on the group to change it.

    With `acknowledgement_mode="implicit"`, the next poll or commit accepts the returned records that were not
    acknowledged. With "explicit", poll raises IllegalState while such records exist. Close releases them in both modes.

    `on_acknowledged` is called inside poll, commit and close with an `AcknowledgeOutcome` for each range of offsets.

    One thread at a time may use it (ConcurrentUseError). Heartbeats run on a thread of their own. Every error derives
    from KohortError. If a signal handler raises inside `poll`, the records come with the next poll.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str] = (),
        *,
        group: str = "",
        on_acknowledged: OnAcknowledged | None = None,
        **settings: Any,
    ) -> None:
        self._begin(ShareConsumerConfig.of(bootstrap=bootstrap, group=group, **settings), on_acknowledged)

    @classmethod
    def from_config(cls, properties: Mapping[str, Any], *, on_acknowledged: OnAcknowledged | None = None) -> Self:
        """Create from Kafka's dotted names; values may be strings. Unknown names raise ConfigError with the nearest
        name."""
        consumer = cls.__new__(cls)
        consumer._begin(ShareConsumerConfig.from_kafka(properties), on_acknowledged)
        return consumer

    def _begin(self, config: ShareConsumerConfig, on_acknowledged: OnAcknowledged | None) -> None:
        callback_given(on_acknowledged, "on_acknowledged")
        self._config = config
        self._on_acknowledged = on_acknowledged
        self._closed = self._in_callback = False
        self._error: KohortError | None = None  # of a corrupt batch, for the next poll
        self._driver = driver = Driver(config, partial(ShareConsumerCore, config))
        driver.core.stop = driver.stop_soon
        driver.core.fetcher.reports = on_acknowledged is not None
        self._door = driver.core.door
        self._handle = ClientHandle(driver)
        driver.start()
        OPEN.add(self)

    def __del__(self) -> None:
        driver = getattr(self, "_driver", None)
        if driver is not None and not driver.stopping:
            warn_unclosed(
                "share consumer", self._config.client_id, self._config.group, driver, partial(_retire, driver)
            )

    # --- subscription

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group for these topics. It replaces an earlier subscription.

        Raises IllegalState for an empty list.
        """
        given = (topics,) if isinstance(topics, str) else tuple(topics)
        names = frozenset(topic_given(topic) for topic in given)
        if not names:
            raise IllegalState("subscribe needs topics, and none were given", hint="call unsubscribe to leave")
        with self._enter():
            self._handle.call(lambda core: core.subscribe(names, self._driver.now()))

    def unsubscribe(self) -> None:
        """Leave the group. Returned records stay acquired until their locks expire, and can be acknowledged."""
        with self._enter():
            self._handle.call(lambda core: core.subscribe(frozenset(), self._driver.now()))

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics."""
        with self._enter():
            return self._handle.read(lambda core: core.subscription)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinator has assigned, as far as their topics are known. Members share them."""
        with self._enter():
            return self._handle.read(_assignment)

    # --- records

    def poll(self, timeout_s: float = 1.0, **strange: Never) -> list[ShareRecords]:
        """Return acquired records, a ShareRecords for each range with one delivery count.

        Waits up to `timeout_s` seconds for the first. Raises pending errors. Raises IllegalState before `subscribe`,
        and in explicit mode while records of an earlier poll are not acknowledged.
        """
        timeout_s = seconds_given(timeout_s, **strange)
        visit = self._enter()
        try:
            batches = self._collect(timeout_s, every=True)
            found = [batch for batch in batches if len(batch)]
        except BaseException:
            visit.leave()
            raise
        # The last step: a signal handler that raises before it leaves all records where they were.
        visit.handed = batches
        return found

    def __iter__(self) -> Iterator[ShareRecords]:
        """Yield batches, for ever. Each step is a poll. Iteration ends when the consumer is closed."""
        while not self._closed:
            visit = self._enter()
            try:
                batches = self._collect(3600.0, every=False)
                found = [batch for batch in batches if len(batch)]
            except BaseException:
                visit.leave()
                raise
            visit.handed = batches
            yield from found

    def _collect(self, timeout_s: float, *, every: bool) -> list[ShareRecords]:
        """Return all parked batches, or the first with records and those without before it."""
        driver, handle = self._driver, self._handle
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        now = driver.now()
        until = now + timeout_s
        handed = self._door.handed
        handle.call(lambda core: core.begin_poll(handed, now, until))
        self._door.handed = None
        while True:
            self._call_back()
            left_s = max(until - driver.now(), 0.0)
            parked = handle.wait_for(self._look, left_s)
            if parked is None:
                return []
            batches = self._batches(parked, every=every)
            if any(len(batch) for batch in batches):
                return batches
            handle.call(partial(ShareConsumerCore.begin_poll, handed=batches, now=now, until=until))

    def _look(self) -> list[ParkedFetch] | None:
        core = self._driver.core
        found = core.ready(self._driver.now())
        return found or ([] if core.fetcher.outcomes else None)

    def _batches(self, parked: Sequence[ParkedFetch], *, every: bool) -> list[ShareRecords]:
        found: list[ShareRecords] = []
        for one in parked:
            if one.batches is None:
                error = decoded(one, self._config.max_decompressed_bytes)
                self._error = self._error or error
            for batch in one.batches or ():
                if batch.returned:
                    continue
                found.append(batch)
                if not every and len(batch):
                    return found
        return found

    # --- acknowledgements

    def acknowledge(self, records: Record | ShareRecords, how: str | AcknowledgeType = "accept") -> None:
        """Note the acknowledgement of a record, or of all records of a batch that are not settled.

        `how`: "accept" (done), "release" (deliver again), "reject" (never deliver again), or "renew" (restart the lock,
        KIP-1222). The next poll or commit sends it. A later call replaces an earlier one until then. A renewed record
        must be acknowledged again. Raises IllegalState for a record that is not acquired, or is settled.
        """
        kind = acknowledge_type(how)
        with self._enter():
            self._take_handed()
            run = self._driver.lock.run
            if isinstance(records, ShareRecords):
                noted = run(records.acknowledge, kind)
            else:
                noted = run(
                    self._driver.core.fetcher.acknowledge, records.topic, records.partition, records.offset, kind
                )
            if not noted:
                raise not_acquired(records)

    def commit(self, timeout_s: float | None = None) -> Failures:
        """Send the noted acknowledgements, and wait for their outcomes.

        In implicit mode, all other returned records are accepted. Returns the acknowledgements that failed since the
        last commit, by partition and offset: BrokerError, LockLost, or ConnectionFailed if the outcome is unknown.
        Raises OperationTimeout if there is no response in time. A later commit returns the failures then.
        """
        seconds = self._config.default_api_timeout_ms / 1000 if timeout_s is None else seconds_given(timeout_s)
        with self._enter():
            handed, now = self._door.handed, self._driver.now()
            self._handle.call(lambda core: core.begin_commit(handed, now))
            self._door.handed = None
            fetcher = self._driver.core.fetcher
            if self._handle.wait_for(lambda: None if fetcher.unsettled else True, seconds) is None:
                raise OperationTimeout("no response in time", hint="call commit again", group=self._config.group)
            self._call_back()
            return _by_offset(self._handle.call(lambda core: core.failures()))

    @property
    def lock_timeout_ms(self) -> int | None:
        """The duration of locks, as the last response had it; None before the first."""
        with self._enter():
            return self._handle.read(lambda core: core.fetcher.lock_timeout_ms)

    def metrics(self) -> dict[str, int]:
        """Counters of requests, connections, records and acknowledgements. Any thread may call it."""
        return self._handle.read(ShareConsumerCore.metrics)

    # --- the end

    def close(self, timeout_s: float = 30.0) -> None:
        """Send noted acknowledgements, release all other records, leave the group, close every connection.

        It ends after `timeout_s` seconds at the latest. Safe to call again.
        """
        timeout_s = seconds_given(timeout_s)
        driver = self._driver
        driver.check_same_process()
        if driver.stopping:
            return
        with self._door.visit():
            self._closed = True
            handed, now = self._door.handed, driver.now()
            until = now + timeout_s

            def begin(core: ShareConsumerCore) -> None:
                core.fetcher.take(handed or ())
                core.begin_close(now, until)

            try:
                self._handle.call(begin)
                self._handle.wait_for(lambda: True if driver.core.left(driver.now()) else None, timeout_s)
                self._call_back()
            finally:
                closed = ShareConsumerClosed("the share consumer was closed")
                driver.enqueue(lambda core: core.fail(closed))
                driver.stop(max(until - driver.now(), 1.0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- inner

    def _enter(self) -> Any:
        driver = self._driver
        driver.check_same_process()
        self._door.check()
        driver.check_reentry()
        if self._closed:
            raise ShareConsumerClosed("the share consumer is closed")
        if self._in_callback:
            raise IllegalState("on_acknowledged must not call the consumer", hint="return from the callback first")
        driver.check()
        return self._door.visit()

    def _take_handed(self) -> None:
        handed = self._door.handed
        if handed is not None:
            self._handle.call(lambda core: core.fetcher.take(handed))
            self._door.handed = None

    def _call_back(self) -> None:
        if self._on_acknowledged is None:
            return
        for outcome in self._handle.call(lambda core: core.outcomes()):
            self._in_callback = True
            try:
                self._on_acknowledged(outcome)
            finally:
                self._in_callback = False


def _assignment(core: ShareConsumerCore) -> frozenset[TopicPartition]:
    named = {topic.id: topic.name for topic in core.metadata.view.topics.values()}
    return frozenset(
        TopicPartition(named[topic_id], number)
        for topic_id, numbers in core.heartbeats.member.assignment.items()
        for number in numbers
        if topic_id in named
    )


def _by_offset(failures: Iterable[AcknowledgeOutcome]) -> Failures:
    found: Failures = {}
    for one in failures:
        if one.error is not None:
            places = found.setdefault(one.partition, {})
            places.update(dict.fromkeys(range(one.first_offset, one.last_offset + 1), one.error))
    return found


def _retire(driver: Driver[ShareConsumerCore]) -> None:
    driver.enqueue(lambda core: core.retire())
