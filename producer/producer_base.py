"""The common part of Producer and AsyncProducer: their creation, and what they show."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from kohort.network.client_handle import ClientHandle
from kohort.network.network_client import Driver
from kohort.producer.producer_config import ProducerConfig
from kohort.producer.producer_core import ProducerCore

if TYPE_CHECKING:
    from typing import Unpack

    from kohort.producer.producer_metrics import ProducerMetrics
    from kohort.producer.producer_settings import ProducerSettings


class ProducerBase:
    """Everything of a producer that neither sends nor waits."""

    _driver: Driver[ProducerCore]
    _handle: ClientHandle[ProducerCore]

    def __init__(self, bootstrap: str | Sequence[str] = (), **settings: "Unpack[ProducerSettings]") -> None:
        self._begin(ProducerConfig.of(bootstrap=bootstrap, **settings))

    @classmethod
    def from_config(cls, properties: Mapping[str, Any]) -> Self:
        """Create a producer from Kafka's dotted names; values may be strings.

        Unknown names raise ConfigError with the nearest known name.
        """
        producer = cls.__new__(cls)
        producer._begin(ProducerConfig.from_kafka(properties))
        return producer

    def _begin(self, config: ProducerConfig) -> None:
        """Start with checked settings."""
        raise NotImplementedError

    @property
    def buffered_bytes(self) -> int:
        """Bytes of records that are neither acknowledged nor failed."""
        return self._handle.read(lambda core: core.accumulator.buffered)

    def metrics(self) -> "ProducerMetrics":
        """All metrics of one moment, under Java's names: docs/metrics.md."""
        from kohort.producer.producer_metrics import metrics_of  # for producers that are watched

        return self._handle.read(lambda core: metrics_of(core, self._driver.now()))
