"""The common part of Producer and AsyncProducer: their creation, their time-outs, and what they show."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from kohort.common import KohortError
from kohort.network.arguments import INT32_MAX, seconds_given
from kohort.network.client_handle import ClientHandle
from kohort.network.error_mapping import UNKNOWN_TOPIC_GRACE_S
from kohort.network.errors import OperationTimeout, UnknownTopic
from kohort.network.network_client import Driver
from kohort.network.process_exit import OPEN
from kohort.producer._open_batch import Delivery
from kohort.producer.errors import BufferFull
from kohort.producer.producer_batch import Headers
from kohort.producer.producer_config import ProducerConfig
from kohort.producer.producer_core import ProducerCore
from kohort.producer.transaction_states import TxnState

if TYPE_CHECKING:
    from typing import Unpack

    from kohort.producer.producer_metrics import ProducerMetrics
    from kohort.producer.producer_settings import ProducerSettings

T = TypeVar("T")


class SendObserver(Protocol):
    """Follows the records of `send`: `kohort.producer.spans`."""

    def began(self, topic: str, value: bytes | None, headers: Headers | None) -> tuple[Any, Headers]: ...
    def failed(self, span: Any, error: BaseException) -> None: ...
    def sent(self, span: Any, delivery: Delivery) -> None: ...
    def look(self) -> None: ...


class ProducerBase:
    """Everything of a producer that neither sends nor waits."""

    _observer: SendObserver | None = None
    _driver: Driver[ProducerCore]
    _handle: ClientHandle[ProducerCore]

    def __init__(self, bootstrap: str | Sequence[str] = (), **settings: "Unpack[ProducerSettings]") -> None:
        self._create(ProducerConfig.of(bootstrap=bootstrap, **settings))

    @classmethod
    def from_config(cls, properties: Mapping[str, Any]) -> Self:
        """Create a producer from Kafka's dotted names; values may be strings.

        Unknown names raise ConfigError with the nearest known name.
        """
        producer = cls.__new__(cls)
        producer._create(ProducerConfig.from_kafka(properties))
        return producer

    def _create(self, config: ProducerConfig) -> None:
        try:
            self._begin(config)
            self._driver.start()
        except BaseException:
            self._abandon()
            raise

    def _begin(self, config: ProducerConfig) -> None:
        self._config = config
        self._partitioner = None if isinstance(config.partitioner, str) else config.partitioner
        self._special = self._partitioner is not None  # whether records have that or an observer

    def _abandon(self) -> None:
        """Stop the driver after an interrupt. Its InitProducerId would fence the caller's next producer."""
        driver: Driver[ProducerCore] | None = self.__dict__.get("_driver")
        if driver is not None:
            driver.stop_soon()
            OPEN.pop(self, None)

    def _watch(self, observer: SendObserver) -> None:
        """Let `observer` follow the records of `send`."""
        self._observer, self._special = observer, True

    @contextlib.contextmanager
    def _observed(
        self, topic: str, value: bytes | None, headers: Headers | None
    ) -> Iterator[tuple[Headers | None, Callable[[Delivery], Delivery]]]:
        """The record's headers, and a function that takes its delivery and returns it."""
        observer = self._observer
        if observer is None:
            yield headers, _unobserved
            return
        span, headers = observer.began(topic, value, headers)

        def note(delivery: Delivery) -> Delivery:
            observer.sent(span, delivery)
            return delivery

        try:
            yield headers, note
        except BaseException as error:
            observer.failed(span, error)
            raise

    @property
    def config(self) -> ProducerConfig:
        """The checked settings."""
        return self._config

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records that are neither acknowledged nor failed."""
        return self._handle.read(lambda core: core.accumulator.buffered)

    def metrics(self) -> "ProducerMetrics":
        """All metrics of one moment, under Java's names: docs/metrics.md."""
        return self._handle.read(lambda core: core.metrics(self._driver.now()))

    @property
    def _state(self) -> TxnState:
        return self._driver.core.transactions.state

    def _seconds(self, timeout_s: float | None) -> float:
        return self._config.max_block_ms / 1000 if timeout_s is None else seconds_given(timeout_s)

    def _known_by(self) -> float:
        """The time (monotonic s) from which on metadata has a partition that a call has named now, or there is none."""
        return self._driver.now() + UNKNOWN_TOPIC_GRACE_S

    def _tried(self, attempt: Callable[[], T | None], known_by: float) -> T | None:
        """The value of `attempt`, under the lock; also None for a partition that metadata before `known_by` lacks."""
        metadata = self._driver.core.metadata
        try:
            return attempt()
        except UnknownTopic as error:
            number = error.place.get("partition")
            may_be_added = isinstance(number, int) and 0 <= number <= INT32_MAX
            if not may_be_added or metadata.responded_at >= known_by:
                raise
            metadata.request_update()
            self._driver.wakeup()
            return None

    def _at_last(self, attempt: Callable[[], T | None], core: ProducerCore, topic: str) -> T:
        """The value of a last attempt, under the lock. Raises what is missing if there is none."""
        found = attempt()
        if found is None:
            raise self._too_late(core, topic)
        return found

    def _too_late(self, core: ProducerCore, topic: str) -> KohortError:
        if topic not in core.metadata.view.topics:
            unreached, hint = core.unreached
            return OperationTimeout(
                f"no metadata of the topic after {self._config.max_block_ms} ms{unreached}",
                hint=hint or "check the topic's name",
                topic=topic,
            )
        return BufferFull(
            f"no room within {self._config.max_block_ms} ms",
            hint="send less, or raise buffer_bytes or max_block_ms",
            buffered_bytes=core.accumulator.buffered,
            buffer_bytes=self._config.buffer_bytes,
        )


def _unobserved(delivery: Delivery) -> Delivery:
    return delivery
