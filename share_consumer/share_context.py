"""The part of a share consumer that its fetcher and its heartbeats share."""

from collections.abc import Callable
from typing import NamedTuple

from kohort.common import KohortError
from kohort.network._samples import Counters
from kohort.network.backoff import Attempts, Backoff
from kohort.network.metadata_refresh import MetadataRefresher
from kohort.network.requests import PendingRequest
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.share_sensors import ShareSensors


class ShareContext(NamedTuple):
    """Settings, metadata, and the functions of a `ShareConsumerCore`; used under its lock.

    `send_to_any` passes a request to any broker. `fail` ends the consumer. `put_error` has the next poll raise an
    error. `updated` has callers woken. `chance` returns numbers in [0, 1).
    """

    config: ShareConsumerConfig
    member_id: str
    metadata: MetadataRefresher
    counters: Counters
    sensors: ShareSensors
    backoff: Backoff
    chance: Callable[[], float]
    send_to_any: Callable[[PendingRequest, float], None]
    fail: Callable[[KohortError], None]
    put_error: Callable[[KohortError], None]
    updated: Callable[[], None]

    @property
    def request_s(self) -> float:
        """The time (s) after which a request without a response fails."""
        return self.config.request_timeout_ms / 1000

    def failed(self, attempts: Attempts, now: float) -> Attempts:
        """`attempts` after one more failure."""
        return attempts.failed(now, self.backoff, self.chance())
