"""Metadata requests, broker addresses, and reports of topics that do not exist."""

from collections.abc import Callable, Collection
from math import inf
from typing import Protocol

from kohort.common import KohortError, TopicPartition
from kohort.common.foreign_text import cut, escaped
from kohort.common.log_context import logger
from kohort.network.client_config import ClientConfig
from kohort.network.connection_states import BoundedTable, ConnectionStates
from kohort.network.error_mapping import UNKNOWN_TOPIC_GRACE_S, no_partition, topic_error
from kohort.network.errors import AuthenticationFailed, TlsError
from kohort.network.hedged_requests import ELSEWHERE_S, HedgedRequests
from kohort.network.metadata import TopicsChanged, believable
from kohort.network.metadata_refresh import MetadataRefresher
from kohort.network.request_manager import earliest
from kohort.network.request_versions import fit
from kohort.network.requests import (
    BrokerIdentity,
    Endpoint,
    PendingRequest,
    PollResult,
    RequestResult,
    ResponseReceived,
    SendFailed,
)
from kohort.protocol.apis.metadata import MetadataResponse
from kohort.protocol.errors import ErrorCode

log = logger("kohort.connections")


class ClientContext(Protocol):
    """The members of a client's core that a `MetadataUpdater` uses."""

    metadata: MetadataRefresher
    endpoints: ConnectionStates
    started: float
    has_updates: bool
    chance: Callable[[], float]

    @property
    def config(self) -> ClientConfig: ...
    @property
    def fatal(self) -> KohortError | None: ...
    @property
    def request_s(self) -> float: ...
    @property
    def bootstrap_s(self) -> float: ...
    def fail(self, error: KohortError) -> None: ...
    def put_error(self, error: KohortError) -> None: ...


class MetadataUpdater:
    """Metadata and addresses for consumers and producers. Used under the same lock as its caller.

    `named`: the topics that the user has named; missing ones are reported. `on_metadata` is called for each response.
    `on_coordinator_lost` is called when a connection to a coordinator ends, or a request to it has no response.
    `on_data_lost` is called with the time (monotonic s) when a connection for records ends.

    `removed`: the brokers that metadata had and does not have now. A cluster removes a broker whose heartbeats end.
    """

    def __init__(
        self,
        core: ClientContext,
        named: Callable[[], frozenset[str]],
        on_metadata: Callable[[TopicsChanged], None] | None = None,
        on_coordinator_lost: Callable[[Endpoint, KohortError], None] | None = None,
        on_data_lost: Callable[[Endpoint, float], None] | None = None,
    ) -> None:
        self._core = core
        self._named = named
        self._listener = on_metadata
        self._on_coordinator_lost = on_coordinator_lost
        self._on_data_lost = on_data_lost
        self._reported_missing: set[str | TopicPartition] = set()
        self._missing_since: dict[str | TopicPartition, float] = {}
        self.removed: BoundedTable[Endpoint, None] = BoundedTable()
        self.known_at = -inf  # the time of the last metadata, or of the last new bootstrap, to which `removed` belongs
        self._hedged = HedgedRequests(core.endpoints, self.pick, self._hedge_after_s)

    def poll(self, now: float) -> PollResult:
        """Return the requests that are due, and those that others have handed to `send_to_any`."""
        due = None if self.bootstrap_failed(now) else self._request_metadata(now)
        self._look_up(now)
        hedged = self._hedged.poll(now)
        return PollResult(hedged.requests, earliest(now, (hedged.next_poll_at, due, *self._times(now))))

    def _look_up(self, now: float) -> None:
        """Send look-ups besides metadata. This class has none."""

    def _times(self, now: float) -> list[float | None]:
        """The times (monotonic s) of the next polls if nothing happens, but for metadata."""
        core = self._core
        retries = core.endpoints.next_poll_at()
        is_starting = not core.endpoints.ever_responded and core.fatal is None
        return [
            *(retries if retries and self.no_broker_available(now) else ()),
            *(since + UNKNOWN_TOPIC_GRACE_S for since in self._missing_since.values()),
            core.started + core.bootstrap_s if is_starting else None,
        ]

    def coordinator_lost(self, endpoint: Endpoint, error: KohortError) -> None:
        """Handles a coordinator whose idle connection ended, that did not respond, or that is none any more."""
        if self._on_coordinator_lost is not None:
            self._on_coordinator_lost(endpoint, error)

    def data_lost(self, endpoint: Endpoint, now: float) -> None:
        """Handles the loss of a connection for records."""
        if self._on_data_lost is not None:
            self._on_data_lost(endpoint, now)

    def forget_missing(self) -> None:
        """Called when the user names topics again: missing topics are reported again."""
        self._reported_missing.clear()
        self._missing_since.clear()

    def no_broker_available(self, now: float) -> bool:
        return self.pick(now) is None

    # --- metadata

    def _known(self) -> list[Endpoint]:
        return [broker.endpoint for broker in self._core.metadata.view.brokers.values()]

    def send_to_any(self, pending: PendingRequest, now: float) -> None:
        """Sends a request that changes nothing to any broker, and to another one if the response is late."""
        self._hedged.send(pending, now)

    def pick(self, now: float, but: Collection[Endpoint] = ()) -> Endpoint | None:
        """Return an address for a request to any broker, without those of `but`."""
        return self._core.endpoints.pick(self._known(), now, but)

    def _request_metadata(self, now: float) -> float | None:
        """Send the request that is due. Returns the time (monotonic s) of the next one."""
        metadata = self._core.metadata
        due = metadata.next_poll_at()
        if due is None or now < due or self.no_broker_available(now) or not (make := metadata.next_request(now)):
            return due
        pending = PendingRequest(
            "Metadata", lambda version: fit(make(), version), self._on_response, self._core.request_s
        )
        self.send_to_any(pending, now)
        return metadata.next_poll_at()

    def expected(self, endpoint: Endpoint, *, again: bool) -> BrokerIdentity | None:
        """The broker that a new connection expects, so that no other is used (KIP-1242). None: no check.

        Brokers before 4.4 do not read it, and their check takes a round trip. So an address is checked there if a
        connection to it has ended (`again`).
        """
        checks = self._checks_cluster and (self._core.endpoints.reads_identity or again)
        return self._core.metadata.view.identity(endpoint) if checks else None

    @property
    def _checks_cluster(self) -> bool:
        return self._core.config.metadata_cluster_check_enable and self._core.endpoints.rebootstrap

    def rebootstrap(self, now: float) -> None:
        """Forget all brokers, so that the bootstrap addresses are used again, unless the settings forbid it.

        Their connections are closed. Otherwise a member could go on with a coordinator of another cluster.
        """
        if self._core.endpoints.rebootstrap:
            self._have_left(self._known(), now)
            self._core.metadata.view = self._core.metadata.view.without_brokers()

    def _have_left(self, endpoints: list[Endpoint], now: float) -> None:
        self.known_at = now
        for endpoint in endpoints:
            self.removed[endpoint] = None

    def _hedge_after_s(self) -> float:
        """The delay before the request is hedged. It is shorter at the start, so that several addresses are tried in
        time."""
        if self._core.endpoints.ever_responded:
            return ELSEWHERE_S
        return min(ELSEWHERE_S, self._core.bootstrap_s / 4)

    def _on_response(self, outcome: RequestResult, now: float) -> None:
        core = self._core
        match outcome:
            case ResponseReceived(value) if self._requires_rebootstrap(value):
                self.rebootstrap(now)
            # A response without brokers comes from a broker that is starting. Its missing or unknown topics have no
            # meaning.
            case ResponseReceived(value, version) if value.brokers:
                self._on_metadata(believable(value, version), now)
                return
            case SendFailed(error):
                core.fail(error)
        core.metadata.on_failure(now, core.chance())

    def _requires_rebootstrap(self, response: MetadataResponse) -> bool:
        """True if the broker says so (KIP-1102), or if it is of another cluster, which none before 4.4 notices."""
        known, found = self._core.metadata.view.cluster_id, response.cluster_id
        if self._checks_cluster and known is not None and found is not None and found != known:
            shown = escaped(cut(found)), escaped(cut(known))
            log.warning("metadata of the cluster %s, not of %s: the bootstrap addresses are used again", *shown)
            return True
        return response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED

    def _on_metadata(self, response: MetadataResponse, now: float) -> None:
        before = self._known()
        changed = self._core.metadata.on_response(response, now, self._core.chance())
        self._have_left(before, now)
        for endpoint in self._known():
            self.removed.pop(endpoint, None)
        if self._listener is not None:
            self._listener(changed)
        self._report_missing(now)

    def _missing(self) -> dict[str | TopicPartition, int]:
        """The error code of each named topic that does not exist. A subclass may add partitions."""
        refused = self._core.metadata.view.refused
        return {name: refused[name] for name in self._named() if name in refused}

    def _report_missing(self, now: float) -> None:
        """Reports each missing topic or partition once, after it had time to appear."""
        missing = self._missing()
        for one in self._missing_since.keys() - missing.keys():
            del self._missing_since[one]
            self._reported_missing.discard(one)
        for one in missing.keys() - self._reported_missing:
            code = missing[one]
            since = self._missing_since.setdefault(one, now)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and now - since < UNKNOWN_TOPIC_GRACE_S:
                continue
            self._reported_missing.add(one)
            self._core.put_error(topic_error(one, code) if isinstance(one, str) else no_partition(one))
            self._core.has_updates = True

    def bootstrap_failed(self, now: float) -> bool:
        """End the client once no broker was reached in time. True if the client has ended.

        A core calls it before its parts, so that a call which waits gets this error, and not its own time-out.
        """
        if self._core.fatal is not None:
            return True
        error = self._core.endpoints.last_error
        if self._core.endpoints.ever_responded or error is None:
            return False
        is_cut = isinstance(error, TlsError) and error.is_cut
        if isinstance(error, TlsError | AuthenticationFailed) and not (is_cut and self._core.endpoints.may_be_stopping):
            self._core.fail(error)
            return True
        patience_s = self._core.bootstrap_s
        if now - self._core.started >= patience_s:
            tried = len(self._core.endpoints.bootstrap)
            reported = f"no broker was reached in {patience_s:g} s (bootstrap_timeout_ms; addresses tried: {tried})"
            error.hint = f"{error.hint}; {reported}" if error.hint else reported
            self._core.fail(error)
            return True
        return False
