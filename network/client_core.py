"""The common part of the cores of the admin, the producer and the share consumer."""

from collections.abc import Callable
from typing import Generic, TypeVar

from kohort.common import KohortError
from kohort.network._samples import Counters
from kohort.network.backoff import Backoff
from kohort.network.client_config import ClientConfig
from kohort.network.connection_states import ConnectionStates

Config = TypeVar("Config", bound=ClientConfig)


class ClientCore(Generic[Config]):
    """The settings, the brokers and the updates of a core. `chance` returns random numbers in [0, 1).

    `started`: the time of the start (monotonic s). A core calls `_polled` at the end of each poll.
    """

    def __init__(self, config: Config, *, chance: Callable[[], float], started: float) -> None:
        self.config = config
        self.chance = chance
        self.started = started
        self.backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.endpoints = ConnectionStates.of(config, chance)
        self.counters = Counters()
        self._fatal: KohortError | None = None
        self._news = self._fresh = False

    @property
    def fatal(self) -> KohortError | None:
        """The error that has ended the client."""
        return self._fatal

    @property
    def request_s(self) -> float:
        """The time-out of a request (s)."""
        return self.config.request_timeout_ms / 1000

    @property
    def has_updates(self) -> bool:
        """True if a caller may have to be woken because of an event since the poll before the last."""
        return self._news

    @has_updates.setter
    def has_updates(self, value: bool) -> None:
        self._fresh = self._fresh or value

    def is_at_rest(self) -> bool:
        """Never: each response may lead to a request."""
        return False

    def _updated(self) -> None:
        self._fresh = True

    def _polled(self) -> None:
        self._news, self._fresh = self._fresh, False
