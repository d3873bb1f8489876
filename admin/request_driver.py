"""Sends admin requests to the brokers that can serve them, one or many at a time.

It uses the consumers' driver, without a group. The driver runs an `AdminCore`.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final, TypeVar

from kohort.admin.admin_core import READS, AdminCore, AdminRequest
from kohort.common import KohortError
from kohort.network.backoff import FRESH
from kohort.network.client_handle import ClientHandle
from kohort.network.error_mapping import UNKNOWN_TOPIC_GRACE_S
from kohort.network.errors import ConnectionFailed, OperationTimeout
from kohort.network.metadata import WITHOUT_TOPICS
from kohort.network.network_client import Driver
from kohort.network.promise import Promise
from kohort.network.requests import Endpoint
from kohort.protocol.errors import ErrorCode

COORDINATOR_RETRIABLE: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Retriable coordinator errors: it is loading, not available yet, or another broker."""

OVER_QUOTA: Final = ErrorCode.THROTTLING_QUOTA_EXCEEDED
"""A change of topics that was not made, since the client has made too many (KIP-599). It may be made later."""

COORDINATOR_READS: Final = frozenset(
    {
        "ConsumerGroupDescribe",
        "DescribeGroups",
        "DescribeShareGroupOffsets",
        "OffsetFetch",
        "ShareGroupDescribe",
        "StreamsGroupDescribe",
    }
)
"""Read-only APIs of a coordinator, which are safe to repeat without a response."""

T = TypeVar("T")


class AdminClosed(KohortError):
    """The admin was closed; a closed admin cannot be opened again.

    Cure:
        Make a new admin.
    """


def first_of(responses: Sequence[Any], api: str, **requested: str) -> Any:
    """The first result of a response. Raises KohortError if there is none."""
    if not responses:
        raise KohortError("the response lacks the requested entry", api=api, **requested)
    return responses[0]


def endpoints(response: Any) -> dict[int, Endpoint]:
    """The addresses of brokers in a Metadata response, by id."""
    return {one.node_id: Endpoint(one.host, one.port) for one in response.brokers}


class RequestDriver:
    """Sends the requests of one public call and waits for their responses.

    All requests of the call, to any number of brokers, end within `default_api_timeout_ms`, with OperationTimeout if
    necessary. Raises ConnectionFailed if there is no response, AdminClosed, and ForkError in a forked child.
    """

    def __init__(self, driver: Driver[AdminCore]) -> None:
        self._handle = ClientHandle(driver)
        self._handle.check()
        self.config = driver.core.config
        self._now, self._core = driver.now, driver.core
        self._started = driver.now()
        self._until = self._started + self.config.default_api_timeout_ms / 1000
        self._attempts = FRESH

    def all(self, requests: Sequence[AdminRequest]) -> list[Any]:
        """The responses, in order, of requests sent at the same time."""
        not_before, until = self._attempts.not_before, self._until
        sent = self._handle.call(lambda core: [core.send(one, not_before, until) for one in requests])
        return [self._result(promise, one.api) for promise, one in zip(sent, requests, strict=True)]

    def one(self, api: str, request: Any) -> Any:
        """The response of any broker.

        A read-only request is sent to another broker if one cannot be reached. Any other request is sent only to
        brokers that have responded before.
        """
        if api not in READS:
            self._result(self._handle.call(AdminCore.has_metadata), "Metadata")
        return self.all([AdminRequest(api, request)])[0]

    def of_controller(self, api: str, request: Any, *, codes: Callable[[Any], Sequence[int]]) -> Any:
        """The response of a broker that may change the cluster.

        That is any broker, or the controller in a cluster with ZooKeeper. `codes`: the error codes in a response, to
        recognize NOT_CONTROLLER, and a quota.
        """
        response = self.one(api, request)
        while {ErrorCode.NOT_CONTROLLER, OVER_QUOTA}.intersection(codes(response)) and self.retry():
            found = self.one("Metadata", WITHOUT_TOPICS)
            response = self.all([AdminRequest(api, request, endpoints(found).get(found.controller_id))])[0]
        return response

    def of_coordinator(
        self,
        group: str,
        api: str,
        request: Any,
        *,
        codes: Callable[[Any], Sequence[int]],
        at_most: int | None = None,
    ) -> Any:
        """The response of the group's coordinator.

        `codes`: the error codes in a response, to recognize that it is not the coordinator. A read-only request is
        repeated if the coordinator cannot be reached, since another broker replaces it.
        """
        while True:
            coordinator = self._coordinator(group)
            try:
                response = self.all([AdminRequest(api, request, coordinator, at_most)])[0]
            except ConnectionFailed:
                if api not in COORDINATOR_READS or not self.retry():
                    raise
                continue
            if not COORDINATOR_RETRIABLE.intersection(codes(response)) or not self.retry():
                return response

    def of_brokers(self, api: str, request: Any, *, code: Callable[[Any], int]) -> list[Any]:
        """The responses of all brokers to a read-only request, with retries while a coordinator is loading.

        `code`: the error code of a response. If a broker cannot be reached, all are requested again, since metadata has
        a dead broker for some time.
        """
        requested, responses = self._brokers(), dict[int, Any]()
        while True:
            try:
                received = self.all([AdminRequest(api, request, one) for one in requested.values()])
            except ConnectionFailed:
                if not self.retry():
                    raise
                requested, responses = self._brokers(), {}
                continue
            responses |= zip(requested, received, strict=True)
            requested = {node: one for node, one in requested.items() if code(responses[node]) in COORDINATOR_RETRIABLE}
            if not requested or not self.retry():
                return list(responses.values())

    def once_known(self, send: Callable[[], T], codes: Callable[[T], Iterable[int]]) -> T:
        """The response of `send`, which is repeated for UNKNOWN_TOPIC_GRACE_S while it has UNKNOWN_TOPIC_OR_PARTITION.

        Brokers learn of a new topic at different times.
        """
        while True:
            response = send()
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in codes(response)
            if not unknown or not self.retry(UNKNOWN_TOPIC_GRACE_S):
                return response

    def retry(self, within_s: float = inf) -> bool:
        """Delay the next request by a backoff.

        Returns False if it would be sent after the call's time, or more than `within_s` seconds after its start.
        """
        self._attempts = self._attempts.failed(self._now(), self._core.backoff, self._core.chance())
        return self._attempts.not_before < min(self._until, self._started + within_s)

    def _brokers(self) -> dict[int, Endpoint]:
        """All brokers. A broker that starts may report none at first."""
        while not (found := endpoints(self.one("Metadata", WITHOUT_TOPICS))):
            if not self.retry():
                raise OperationTimeout("no brokers in metadata in time", api="Metadata")
        return found

    def _coordinator(self, group: str) -> Endpoint:
        not_before, until = self._attempts.not_before, self._until
        found = self._handle.call(lambda core: core.coordinator(group, not_before, until))
        return self._result(found, "FindCoordinator")

    def _result(self, promise: Promise[T], api: str) -> T:
        try:
            return self._handle.result(promise, self._until - self._now())
        except TimeoutError:
            raise OperationTimeout(f"no response to {api} in time", api=api) from None
