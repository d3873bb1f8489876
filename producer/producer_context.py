"""The part of a producer that its sender, its transactions and its batches share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kohort.common import KohortError
from kohort.network._samples import Counters
from kohort.network.backoff import Attempts, Backoff
from kohort.network.metadata_refresh import MetadataRefresher
from kohort.network.requests import PendingRequest
from kohort.producer.producer_config import ProducerConfig
from kohort.producer.producer_sensors import ProducerSensors


@dataclass(frozen=True, slots=True)
class ProducerContext:
    """Settings, metadata, and the functions of a `ProducerCore`; used under its lock.

    `features` returns the cluster's finalized features. `send_to_any` passes a request to any broker. `fail` ends the
    producer. `fatal` returns the error that ended it. `updated` has callers woken. `chance` returns numbers in [0, 1).
    """

    config: ProducerConfig
    metadata: MetadataRefresher
    backoff: Backoff
    chance: Callable[[], float]
    features: Callable[[], Mapping[str, int]]
    send_to_any: Callable[[PendingRequest, float], None]
    fail: Callable[[KohortError], None]
    fatal: Callable[[], KohortError | None]
    updated: Callable[[], None]
    sensors: ProducerSensors
    counters: Counters

    @property
    def request_s(self) -> float:
        """The time (s) after which a request without a response fails."""
        return self.config.request_timeout_ms / 1000

    def failed(self, attempts: Attempts, now: float) -> Attempts:
        """`attempts` after one more failure."""
        return attempts.failed(now, self.backoff, self.chance())
