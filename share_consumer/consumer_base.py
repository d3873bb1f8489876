"""The common part of ShareConsumer and AsyncShareConsumer: everything that does not wait.

A signal handler may raise in the main thread after each call. So the driver's thread makes all changes, and returned
records are handed over by the last step of a call (`Visit.handed`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from kohort.common import KohortError, TopicPartition
from kohort.fastpath import Record
from kohort.network._guard import Visit
from kohort.network.arguments import callback_given, seconds_given, topic_given
from kohort.network.client_handle import ClientHandle
from kohort.network.errors import IllegalState, OperationTimeout
from kohort.network.network_client import Driver
from kohort.network.process_exit import warn_unclosed
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

if TYPE_CHECKING:
    from typing import Unpack

    from kohort.share_consumer.share_settings import ShareConsumerSettings

LONGEST_POLL_S: Final = 3600.0
"""The time-out of one step of an iteration."""

Failures = dict[TopicPartition, dict[int, KohortError]]
OnAcknowledged = Callable[[AcknowledgeOutcome], object]


class ShareConsumerBase:
    """State, arguments and checks of both faces."""

    def __init__(
        self,
        bootstrap: str | Sequence[str] = (),
        *,
        group: str = "",
        on_acknowledged: OnAcknowledged | None = None,
        **settings: "Unpack[ShareConsumerSettings]",
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

    def __del__(self) -> None:
        driver = getattr(self, "_driver", None)
        if driver is not None and not driver.stopping:
            warn_unclosed(
                "share consumer", self._config.client_id, self._config.group, driver, partial(_retire, driver)
            )

    @property
    def config(self) -> ShareConsumerConfig:
        """The checked settings."""
        return self._config

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

    def hold(self, batch: ShareRecords) -> None:
        """Keep the records of a batch that have no acknowledgement over polls, in both modes.

        Their locks are renewed (KIP-1222) until each record is acknowledged, also while no poll runs. A lock that could
        not be renewed is a LockLost among the failures. Raises IllegalState if the batch has no such records.
        """
        with self._enter():
            self._take_handed()
            if not self._handle.call(lambda core: core.fetcher.hold(batch, self._driver.now())):
                raise not_acquired(batch)

    @property
    def lock_timeout_ms(self) -> int | None:
        """The duration of locks, as the last response had it; None before the first."""
        with self._enter():
            return self._handle.read(lambda core: core.fetcher.lock_timeout_ms)

    def metrics(self) -> dict[str, int]:
        """Counters of requests, connections, records and acknowledgements. Any thread may call it."""
        return self._handle.read(ShareConsumerCore.metrics)

    # --- inner

    def _begin_poll(self, timeout_s: float) -> float:
        """Begin a poll. Returns its end (monotonic s). Raises the error of a corrupt batch of an earlier poll."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        now = self._driver.now()
        self._poll_on(self._door.handed, now, now + timeout_s)
        self._door.handed = None
        return now + timeout_s

    def _poll_on(self, handed: Sequence[ShareRecords] | None, now: float, until: float) -> None:
        self._handle.call(partial(ShareConsumerCore.begin_poll, handed=handed, now=now, until=until))

    def _begin_commit(self) -> None:
        handed, now = self._door.handed, self._driver.now()
        self._handle.call(lambda core: core.begin_commit(handed, now))
        self._door.handed = None

    def _committed(self) -> bool | None:
        """True if every acknowledgement has an outcome, else None."""
        return None if self._driver.core.fetcher.unsettled else True

    def _failures(self) -> Failures:
        self._call_back()
        return _by_offset(self._handle.call(ShareConsumerCore.failures))

    def _no_outcome(self) -> OperationTimeout:
        return OperationTimeout("no response in time", hint="call commit again", group=self._config.group)

    def _begin_close(self, until: float) -> None:
        handed, now = self._door.handed, self._driver.now()

        def begin(core: ShareConsumerCore) -> None:
            core.fetcher.take(handed or ())
            core.begin_close(now, until)

        self._handle.call(begin)

    def _left(self) -> bool | None:
        """True if the group is left, or the time for it is over, else None."""
        return True if self._driver.core.left(self._driver.now()) else None

    def _end(self) -> None:
        closed = ShareConsumerClosed("the share consumer was closed")
        self._driver.enqueue(lambda core: core.fail(closed))

    def _commit_s(self, timeout_s: float | None) -> float:
        return self._config.default_api_timeout_ms / 1000 if timeout_s is None else seconds_given(timeout_s)

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

    def _enter(self) -> Visit:
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
