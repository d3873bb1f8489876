"""The common part of ShareConsumer and AsyncShareConsumer: everything that does not wait.

A signal handler may raise in the main thread after each call. So the driver's thread makes all changes, and results are
handed over by the last step of a call (`Visit.handed`).
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from kohort.common import KohortError, TopicPartition
from kohort.fastpath import Record
from kohort.network._guard import Visit
from kohort.network.arguments import callback_given, names_given, seconds_given
from kohort.network.client_handle import ClientHandle
from kohort.network.errors import ConcurrentUseError, IllegalState, OperationTimeout, WakeupError
from kohort.network.network_client import Driver
from kohort.network.process_exit import warn_unclosed
from kohort.share_consumer.errors import ShareConsumerClosed
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.share_core import Handed, ShareConsumerCore
from kohort.share_consumer.share_fetcher import ParkedFetch, decode_parked
from kohort.share_consumer.share_records import (
    AcknowledgeOutcome,
    AcknowledgeType,
    ShareRecords,
    acknowledge_type,
    not_acquired,
)

if TYPE_CHECKING:
    from typing import Unpack

    from kohort.share_consumer.share_metrics import ShareConsumerMetrics
    from kohort.share_consumer.share_settings import ShareConsumerSettings

LONGEST_POLL_S: Final = 3600.0
"""The time-out of one step of an iteration."""

Failures = dict[TopicPartition, dict[int, KohortError]]
OnAcknowledged = Callable[[AcknowledgeOutcome], object]


class ShareObserver(Protocol):
    """An observer of polls and commits, called on the caller's thread and under no lock (`spans.py`)."""

    def began(self, now: float) -> None: ...
    def brought(self, batches: Sequence[ShareRecords]) -> None: ...
    def committed(self, failed: Sequence[AcknowledgeOutcome]) -> None: ...
    def failed(self, operation: str, error: KohortError) -> None: ...


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
        self._wakeup = False
        self._observer: ShareObserver | None = None
        self._error: KohortError | None = None  # which a poll raises, until it has
        self._outcome: AcknowledgeOutcome | None = None  # whose callback is next
        self._outcomes: deque[AcknowledgeOutcome] = deque()
        self._driver = driver = Driver(config, partial(ShareConsumerCore, config))
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

        Raises IllegalState for an empty list, TypeError for one string in place of a list.
        """
        names = frozenset(names_given(topics, "topics"))
        if not names:
            raise IllegalState("subscribe needs topics, and none were given", hint="call unsubscribe to leave")
        with self._enter():
            self._subscribe(names)

    def unsubscribe(self) -> None:
        """Leave the group. Returned records stay acquired until their locks expire, and can be acknowledged."""
        with self._enter():
            self._subscribe(frozenset())

    def _subscribe(self, topics: frozenset[str]) -> None:
        self._take_handed()
        self._handle.call(lambda core: core.subscribe(topics, self._driver.now()))

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
        must be acknowledged again. Raises IllegalState for a record that is not acquired, or is settled. Raises
        TypeError for what is neither a record nor a batch.
        """
        kind = acknowledge_type(how)
        with self._enter():
            self._take_handed()
            run, fetcher = self._driver.lock.run, self._driver.core.fetcher
            if isinstance(records, ShareRecords):
                noted = run(fetcher.acknowledge_batch, records, kind)
            else:
                try:
                    place = records.topic, records.partition, records.offset, records.timestamp_ms
                except AttributeError:
                    raise TypeError(f"acknowledge a record or a batch that a poll returned, not {records!r}") from None
                noted = run(fetcher.acknowledge, *place, kind)
            if not noted:
                raise not_acquired(records)

    def hold(self, batch: ShareRecords) -> None:
        """Keep the records of a batch that have no acknowledgement over polls, in both modes.

        Their locks are renewed (KIP-1222) until each record is acknowledged, also while no poll runs. A lock that could
        not be renewed is a LockLost among the failures. Raises IllegalState if the batch has no such records, TypeError
        for what is no batch.
        """
        if not isinstance(batch, ShareRecords):
            raise TypeError(f"hold a batch that a poll returned, not {batch!r}")
        with self._enter():
            self._take_handed()
            if not self._handle.call(lambda core: core.fetcher.hold(batch)):
                raise not_acquired(batch)

    def pause(self) -> None:
        """Let later polls request no records, so that other members get them.

        Acknowledgements and renewals of locks go on. Records that are acquired still come. A request under way may
        acquire more.
        """
        self._set_paused(True)

    def resume(self) -> None:
        """Let later polls request records again."""
        self._set_paused(False)

    def _set_paused(self, paused: bool) -> None:
        with self._enter():
            self._handle.call(lambda core: setattr(core.fetcher, "paused", paused))

    @property
    def lock_timeout_ms(self) -> int | None:
        """The duration of locks, as the last response had it; None before the first."""
        with self._enter():
            return self._handle.read(lambda core: core.fetcher.lock_timeout_ms)

    def metrics(self) -> "ShareConsumerMetrics":
        """All metrics of one moment, under Java's names: docs/metrics.md. Any thread may call it."""
        from kohort.share_consumer.share_metrics import metrics_of  # for share consumers that are watched

        return self._handle.read(lambda core: metrics_of(core, self._driver.now()))

    def wakeup(self) -> None:
        """The running poll, or else the next one, raises WakeupError. Any thread and any signal handler may call it."""
        self._wakeup = True
        self._driver.core.has_updates = True
        self._driver.wake_callers()

    # --- inner

    def _begin_poll(self, timeout_s: float) -> float:
        """Begin a poll. Returns its end (monotonic s)."""
        now = self._driver.now()
        if self._observer is not None:
            self._observer.began(now)
        handed, until = self._door.handed, now + timeout_s
        self._handle.call(partial(ShareConsumerCore.begin_poll, handed=handed, now=now, until=until))
        self._door.handed = None
        return until

    def _poll_on(self, batches: Sequence[ShareRecords], now: float, until: float) -> None:
        self._handle.call(partial(ShareConsumerCore.poll_on, handed=Handed(batches), now=now, until=until))

    def _raise_due(self) -> None:
        """Raise what is due in a poll. It stays due until the poll's last step."""
        if self._error is None and self._wakeup:
            self._error = WakeupError("wakeup() was called")
            self._wakeup = False
        if self._error is None and self._driver.core.errors:
            self._handle.call(self._take_error)
        if self._error is not None:
            raise self._error

    def _take_error(self, core: ShareConsumerCore) -> None:
        if self._error is None and core.errors:
            self._error = core.errors.popleft()

    def _report(self, operation: str, problem: BaseException) -> None:
        if operation == "poll" and not isinstance(problem, ConcurrentUseError):  # which another task's poll outlives
            self._driver.enqueue(ShareConsumerCore.end_demand)
        if self._observer is not None and isinstance(problem, KohortError) and not isinstance(problem, WakeupError):
            self._observer.failed(operation, problem)

    def _returned(self, batches: Sequence[ShareRecords]) -> tuple[list[ShareRecords], Handed]:
        """The result of a poll, and its form for the next call."""
        self._take_handed()  # of another task
        found = [batch for batch in batches if len(batch)]
        if self._observer is not None:
            self._observer.brought(found)
        return found, Handed(batches, at=self._driver.now())

    def _begin_commit(self) -> None:
        handed, now = self._door.handed, self._driver.now()
        if self._observer is not None:
            self._observer.began(now)
        self._handle.call(lambda core: core.begin_commit(handed, now))
        self._door.handed = None

    def _committed(self) -> bool | None:
        """True if every acknowledgement has an outcome, else None."""
        return None if self._driver.core.unsettled else True

    def _failed(self, committed: bool | None) -> tuple[Failures, Handed]:
        """The failures for a commit, and their form for the next call. They are kept until the caller has them."""
        if committed is None:
            raise OperationTimeout("no response in time", hint="call commit again", group=self._config.group)
        self._call_back()
        self._take_handed()  # of another task
        failed = self._handle.read(lambda core: list(core.fetcher.failures))
        if self._observer is not None:
            self._observer.committed(failed)
        return by_offset(failed), Handed(failures=failed)

    def _begin_close(self, until: float) -> None:
        handed, now = self._door.handed, self._driver.now()
        self._handle.call(lambda core: core.begin_close(handed, now, until))

    def _left(self) -> bool | None:
        """True if the group is left, or the time for it is over, else None."""
        return True if self._driver.core.left(self._driver.now()) else None

    @property
    def _over(self) -> bool:
        """True if no close has anything left to do."""
        uncalled = self._outcome is not None or bool(self._outcomes) or bool(self._driver.core.fetcher.outcomes)
        return self._driver.ended.is_set() and not uncalled

    def _parted(self, until: float) -> bool:
        """True if the driver has nothing left to do, or no time for it."""
        driver = self._driver
        if driver.crashed is not None:
            return True
        is_late = driver.now() >= until
        if is_late and not driver.stopping:
            self._handle.call(lambda _core: None)  # a turn, in which the member leaves without what has had no time
        return self._handle.read(lambda _core: self._left()) is True or is_late  # the lock: after that turn

    def _leave_at_exit(self, timeout_s: float) -> None:
        """Leave the group at the interpreter's end, where no call can close."""
        self._driver.check_same_process()
        if not self._driver.stopping:
            _retire(self._driver)
        self._driver.ended.wait(timeout_s)

    def _end(self) -> None:
        closed = ShareConsumerClosed("the share consumer was closed")
        self._driver.enqueue(lambda core: core.fail(closed))

    def _commit_s(self, timeout_s: float | None) -> float:
        return self._config.default_api_timeout_ms / 1000 if timeout_s is None else seconds_given(timeout_s)

    def _look(self) -> list[ParkedFetch] | None:
        core = self._driver.core
        found = core.ready(self._driver.now())
        if core.errors or self._wakeup or (core.fetcher.outcomes and not found):
            return []
        return found or None

    def _batches(self, parked: Sequence[ParkedFetch], *, every: bool) -> list[ShareRecords]:
        found: list[ShareRecords] = []
        for one in parked:
            if one.batches is None:
                decode_parked(one, self._config.max_decompressed_bytes)
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
            self._handle.call(lambda core: core.take(handed))
            self._door.handed = None

    def _call_back(self) -> None:
        """Call `on_acknowledged` for each outcome. If it raises, the next call continues with the others."""
        while (outcome := self._next_outcome()) is not None:
            self._in_callback = True
            try:
                self._outcome = None  # and nothing comes between this and the call
                self._on_acknowledged(outcome)  # type: ignore[misc]  # without one no outcomes are kept
            finally:
                self._in_callback = False

    def _next_outcome(self) -> AcknowledgeOutcome | None:
        if self._outcome is None:
            if not self._outcomes and self._driver.core.fetcher.outcomes:
                self._handle.call(self._take_outcomes)
            if self._outcomes:
                self._outcome = self._outcomes[0]
                self._outcomes.popleft()
        return self._outcome

    def _take_outcomes(self, core: ShareConsumerCore) -> None:
        self._outcomes.extend(core.fetcher.outcomes)
        core.fetcher.outcomes.clear()


def _assignment(core: ShareConsumerCore) -> frozenset[TopicPartition]:
    named = {topic.id: topic.name for topic in core.metadata.view.topics.values()}
    return frozenset(
        TopicPartition(named[topic_id], number)
        for topic_id, numbers in core.heartbeats.member.assignment.items()
        for number in numbers
        if topic_id in named
    )


def by_offset(failures: Iterable[AcknowledgeOutcome]) -> Failures:
    """Failed acknowledgements by partition and offset."""
    found: Failures = {}
    for one in failures:
        if one.error is not None:
            places = found.setdefault(one.partition, {})
            places.update(dict.fromkeys(range(one.first_offset, one.last_offset + 1), one.error))
    return found


def _retire(driver: Driver[ShareConsumerCore]) -> None:
    driver.core.retired = driver.stop_soon
    driver.wakeup()
