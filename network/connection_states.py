"""Chooses the address of a request to any broker, and the time of a retry after a failure."""

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeVar

from kohort.common import KohortError
from kohort.network.backoff import FRESH, Attempts, Backoff
from kohort.network.client_config import ClientConfig
from kohort.network.requests import NO_FEATURES, Endpoint, FinalizedFeatures, VersionRanges
from kohort.network.settings_table import split_address
from kohort.protocol.apis.api_versions import ApiVersionsRequest
from kohort.protocol.catalogue import API
from kohort.protocol.schema import first_version

K = TypeVar("K")
V = TypeVar("V")
MOST_KEYS: Final = 1_000
_API_VERSIONS: Final = API["ApiVersions"].key
FIRST_WITH_IDENTITY: Final = first_version(ApiVersionsRequest, "cluster_id")
"""The first version of ApiVersions that names the broker that the client expects (KIP-1242)."""


class BoundedTable(dict[K, V]):
    """The values of the `most` keys that were set last. A client that runs for long sees any number of addresses."""

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self._most = MOST_KEYS if most is None else most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        if len(self) >= self._most:
            del self[next(iter(self))]
        super().__setitem__(key, value)


class ConnectionStates:
    """The result of the last connections to each address. Known brokers go first.

    When all of them have failed, the bootstrap addresses are as good as they (KIP-899), since the brokers may have come
    back elsewhere.
    """

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
        self.ever_responded = False
        self.reads_identity = False  # True if the broker that responded last reads the identity in ApiVersions
        self.features = NO_FEATURES
        self.last_error: KohortError | None = None
        self._attempts: BoundedTable[Endpoint, Attempts] = BoundedTable()
        self._ranges: BoundedTable[Endpoint, VersionRanges] = BoundedTable()
        self._late: set[Endpoint] = set()

    @classmethod
    def of(cls, config: ClientConfig, chance: Callable[[], float]) -> "ConnectionStates":
        """Those that the settings name, and how patiently they are called."""
        return cls(
            tuple(Endpoint(*split_address(address)) for address in config.bootstrap),
            Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            chance,
            rebootstrap=config.metadata_recovery_strategy == "rebootstrap",
        )

    def responded(self, endpoint: Endpoint, ranges: VersionRanges | None = None) -> None:
        """Record a response. `ranges`: the supported versions, if known."""
        self._attempts.pop(endpoint, None)
        self._late.discard(endpoint)
        if ranges is not None and ranges is not self._ranges.get(endpoint):
            self._ranges[endpoint] = ranges
            self.reads_identity = ranges.get(_API_VERSIONS, (0, 0))[1] >= FIRST_WITH_IDENTITY
        self.ever_responded = True
        self.last_error = None

    def finalized(self, features: FinalizedFeatures) -> None:
        """Record the features of the cluster, unless newer ones are known."""
        if features.epoch >= self.features.epoch:
            self.features = features

    def failed(self, endpoint: Endpoint, error: KohortError, now: float) -> bool:
        """Record a failure, and the time of the next attempt. True if it is the first since a response."""
        attempts = self._attempts.get(endpoint, FRESH)
        self._ranges.pop(endpoint, None)
        self._late.discard(endpoint)
        self._attempts[endpoint] = attempts.failed(now, self.backoff, self.chance())
        self.last_error = error
        return not attempts.failures

    @property
    def may_be_stopping(self) -> bool:
        """True until each bootstrap address has failed twice. A connection that a stopping broker cuts is no proof."""
        return any(self._attempts.get(one, FRESH).failures < 2 for one in self.bootstrap)

    def late(self, endpoint: Endpoint) -> None:
        """Marks a broker whose response is late. Other addresses go first until it comes."""
        self._late.add(endpoint)

    def offering(self, api_key: int) -> Endpoint | None:
        """Return an address that supports an optional API, has responded, and has not failed since."""
        return next((endpoint for endpoint, ranges in self._ranges.items() if api_key in ranges), None)

    def may_try_at(self, endpoint: Endpoint) -> float:
        """The time (monotonic s) from which on the address may be called."""
        return self._attempts.get(endpoint, FRESH).not_before

    def may_try(self, endpoint: Endpoint, now: float) -> bool:
        return now >= self.may_try_at(endpoint)

    def pick(self, known: Iterable[Endpoint], now: float, but: Collection[Endpoint] = ()) -> Endpoint | None:
        """Return the address with the fewest failures that may be called now, without those of `but`; None if there is
        none.

        Among equals, addresses that have responded come first, because their versions are known and others may not
        respond.
        """
        candidates = list(known)
        if not candidates or (self.rebootstrap and all(self._attempts.get(one, FRESH).failures for one in candidates)):
            candidates += self.bootstrap
        ready = [one for one in candidates if one not in but and self.may_try(one, now)]
        # Without any response, the choice is random, which spreads a thousand clients over the brokers.
        return min(ready, key=lambda one: (self._troubles(one), one not in self._ranges, self.chance()), default=None)

    def _troubles(self, endpoint: Endpoint) -> int:
        return self._attempts.get(endpoint, FRESH).failures + (endpoint in self._late)

    def next_poll_at(self) -> list[float]:
        """The times (monotonic s) at which addresses that failed may be called again."""
        return [one.not_before for one in self._attempts.values()]
