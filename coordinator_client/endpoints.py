"""Which address to call for a question that any broker can answer, and when to call one again that failed."""

from collections.abc import Callable, Iterable

from kohort.coordinator_client.config import Config, split_address
from kohort.coordinator_client.connections import Endpoint, VersionRanges
from kohort.coordinator_client.retry import FRESH, Attempts, Backoff
from kohort.fastpath import KohortError


class Endpoints:
    """What calling each address has come to. Known brokers go first; when all of them have failed, the bootstrap
    addresses are as good as they (KIP-899): the brokers may have come back elsewhere."""

    def __init__(
        self,
        bootstrap: tuple[Endpoint, ...],
        backoff: Backoff,
        chance: Callable[[], float],
        *,
        rebootstrap: bool = True,
    ) -> None:
        self.bootstrap = bootstrap
        self.backoff = backoff
        self.chance = chance
        self.rebootstrap = rebootstrap
        self.ever_answered = False
        self.last_error: KohortError | None = None
        self._attempts: dict[Endpoint, Attempts] = {}
        self._ranges: dict[Endpoint, VersionRanges] = {}

    @classmethod
    def of(cls, config: Config, chance: Callable[[], float]) -> "Endpoints":
        """Those that the settings name, and how patiently they are called."""
        return cls(
            tuple(Endpoint(*split_address(address)) for address in config.bootstrap),
            Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            chance,
            rebootstrap=config.metadata_recovery_strategy == "rebootstrap",
        )

    def answered(self, endpoint: Endpoint, ranges: VersionRanges | None = None) -> None:
        """`ranges`: what is spoken there, if it is known."""
        self._attempts.pop(endpoint, None)
        if ranges is not None:
            self._ranges[endpoint] = ranges
        self.ever_answered = True
        self.last_error = None

    def failed(self, endpoint: Endpoint, error: KohortError, now: float) -> None:
        attempts = self._attempts.get(endpoint, FRESH)
        self._ranges.pop(endpoint, None)
        self._attempts[endpoint] = attempts.failed(now, self.backoff, self.chance())
        self.last_error = error

    def offering(self, api_key: int) -> Endpoint | None:
        """An address that has answered, has not failed since, and speaks an API that not every broker offers."""
        return next((endpoint for endpoint, ranges in self._ranges.items() if api_key in ranges), None)

    def may_try(self, endpoint: Endpoint, now: float) -> bool:
        return self._attempts.get(endpoint, FRESH).may_try(now)

    def pick(self, known: Iterable[Endpoint], now: float) -> Endpoint | None:
        """The address that failed least and may be called now, or None."""
        candidates = list(known)
        if not candidates or (self.rebootstrap and all(self._attempts.get(one, FRESH).failures for one in candidates)):
            candidates += self.bootstrap
        ready = [one for one in candidates if self.may_try(one, now)]
        # Among equals any will do; chance spreads a thousand clients over the brokers.
        return min(ready, key=lambda one: (self._attempts.get(one, FRESH).failures, self.chance()), default=None)

    def next_try(self) -> float | None:
        """When an address that failed may be called again (s, monotonic)."""
        return min((one.not_before for one in self._attempts.values()), default=None)
