"""The admin without sockets, thread and clock, which are in the driver."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kohort.admin.admin_config import AdminConfig
from kohort.common import KohortError
from kohort.common.named_tuple import NamedTuple
from kohort.network.client_core import ClientCore
from kohort.network.error_mapping import group_error
from kohort.network.errors import ConnectionFailed
from kohort.network.find_coordinator import CoordinatorFinder, CoordinatorKind
from kohort.network.metadata_refresh import MetadataRefresher
from kohort.network.metadata_updater import MetadataUpdater
from kohort.network.promise import Promise
from kohort.network.request_manager import earliest
from kohort.network.request_versions import fit
from kohort.network.requests import (
    ConnectionPurpose,
    Endpoint,
    NoResponse,
    PendingRequest,
    PollResult,
    RequestResult,
    ResponseReceived,
    SendFailed,
    UnsentRequest,
)
from kohort.protocol.errors import BrokerError

READS: Final = frozenset({"DescribeConfigs", "Metadata"})
"""Read-only APIs that any broker serves, so that they may be sent to several."""


class AdminRequest(NamedTuple):
    """A request, its API and its destination.

    `request`: the typed value, or a function of the version that makes it. `endpoint` None: any broker.
    """

    api: str
    request: Any
    endpoint: Endpoint | None = None
    at_most: int | None = None


class _CoordinatorWanted(NamedTuple):
    group: str
    until: float
    promise: Promise[Endpoint]


class AdminCore(ClientCore[AdminConfig]):
    """Passes requests to the driver, and results to their callers, by promises.

    It sends no requests of its own, except for the first addresses of the brokers.
    """

    def __init__(self, config: AdminConfig, *, chance: Callable[[], float], started: float) -> None:
        super().__init__(config, chance=chance, started=started)
        self.metadata = MetadataRefresher(self.backoff, config.metadata_max_age_ms / 1000)
        self.cluster = MetadataUpdater(self, frozenset)
        self._finder = CoordinatorFinder(
            self.cluster.send_to_any, self.request_s, self.backoff, chance, self._no_coordinator
        )
        self._unsent: list[UnsentRequest] = []
        self._delayed: list[tuple[float, Callable[[float], None]]] = []
        self._waiting: set[Promise[Any]] = set()
        self._of_groups: list[_CoordinatorWanted] = []
        self._of_metadata: list[Promise[None]] = []

    def log_fields(self) -> Mapping[str, object]:
        """The fields of log lines of the driver's thread."""
        return {"client_id": self.config.client_id}

    def poll(self, now: float, wall_ms: int) -> PollResult:
        due = [step for at, step in self._delayed if at <= now]
        self._delayed = [one for one in self._delayed if one[0] > now]
        for step in due:
            step(now)
        self._find_coordinators(now)
        self._announce_metadata()
        cluster = self.cluster.poll(now)
        unsent, self._unsent = tuple(self._unsent), []
        self._polled()
        times = (cluster.next_poll_at, *self._finder.next_poll_at(), *(at for at, _step in self._delayed))
        return PollResult(cluster.requests + unsent, earliest(now, times))

    @property
    def bootstrap_s(self) -> float:
        """Time (s) at the start after which the client ends if no broker was reached."""
        return self.config.bootstrap_timeout_ms / 1000

    # --- called for the user's thread, by the driver's

    def send(self, request: AdminRequest, not_before: float, until: float) -> Promise[Any]:
        """Send one request at a time (monotonic s) or later; the promise has the response or the error.

        A broker that may not be called again yet is called at the end of its backoff, if that is before `until`. So is
        the first broker of all, until the client ends since none was reached.
        """
        promise: Promise[Any] = self._promise()
        self._delayed.append((not_before, partial(self._send, request, promise, until)))
        return promise

    def coordinator(self, group: str, not_before: float, until: float) -> Promise[Endpoint]:
        """Look up a group's coordinator, not before a time, and with retries until another (monotonic s)."""
        wanted = _CoordinatorWanted(group, until, self._promise())
        self._delayed.append((not_before, lambda _now: self._of_groups.append(wanted)))
        return wanted.promise

    def has_metadata(self) -> Promise[None]:
        """Kept once there is metadata."""
        promise: Promise[None] = self._promise()
        self._of_metadata.append(promise)
        return promise

    def fail(self, error: KohortError) -> None:
        """End the admin: all promises get the error."""
        self._fatal = self._fatal or error
        waiting, self._waiting = self._waiting, set()
        for promise in waiting:
            promise.set_exception(self._fatal)

    def put_error(self, error: KohortError) -> None:
        """Ignore errors that do not belong to a request."""

    # --- inner

    def _promise(self) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        if self._fatal is None:
            self._waiting.add(promise)
        else:
            promise.set_exception(self._fatal)
        return promise

    def _keep(self, promise: Promise[Any], value: object) -> None:
        """Set the value or the error, unless the admin has ended before."""
        if promise in self._waiting:
            self._waiting.discard(promise)
            promise.end(value)

    def _send(self, request: AdminRequest, promise: Promise[Any], until: float, now: float) -> None:
        def done(outcome: RequestResult, when: float) -> None:
            may_repeat = isinstance(outcome, NoResponse) and not (outcome.called and self.endpoints.ever_responded)
            if may_repeat and promise in self._waiting:
                may_call_at = when if request.endpoint is None else self.endpoints.may_try_at(request.endpoint)
                retry_at = max(may_call_at, when + self.backoff.initial_ms / 1000)
                if retry_at < until:
                    self._delayed.append((retry_at, partial(self._send, request, promise, until)))
                    return
            self._keep(promise, _value_or_error(request.api, outcome))

        body = request.request

        def build(version: int) -> Any:
            return fit(body(version) if callable(body) else body, version)

        pending = PendingRequest(request.api, build, done, self.request_s, request.at_most)
        if request.endpoint is None and request.api in READS:
            self.cluster.send_to_any(pending, now)
        else:
            self._unsent.append(UnsentRequest(ConnectionPurpose.CONTROL, request.endpoint, pending))

    def _find_coordinators(self, now: float) -> None:
        for group, until, promise in self._of_groups:
            found = self._finder.of(CoordinatorKind.GROUP, group, now)
            failure = self._finder.failure(CoordinatorKind.GROUP, group)
            if found is not None:
                self._keep(promise, found.endpoint)
            elif failure is not None and failure.retry_at >= until:
                self._keep(promise, failure.error)
        left = [one for one in self._of_groups if not one.promise.done()]
        for group in {one.group for one in self._of_groups} - {one.group for one in left}:
            # It may be another broker at the next call, and nothing here would notice.
            self._finder.forget(CoordinatorKind.GROUP, group)
        self._of_groups = left

    def _no_coordinator(self, _kind: CoordinatorKind, group: str, error: KohortError) -> None:
        for wanted in self._of_groups:
            if wanted.group == group:
                self._keep(wanted.promise, group_error(error.code, group) if isinstance(error, BrokerError) else error)

    def _announce_metadata(self) -> None:
        if self._of_metadata and self.metadata.view.brokers:
            for promise in self._of_metadata:
                self._keep(promise, None)
            self._of_metadata = []


def _value_or_error(api: str, outcome: RequestResult) -> object:
    match outcome:
        case ResponseReceived(value):
            return value
        case SendFailed(error):
            return error
        case NoResponse(error):
            return ConnectionFailed(f"no response to {api}: {error.message}", hint=error.hint, **error.place)
