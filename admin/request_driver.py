"""Sends admin requests to the brokers that can serve them, one or many at a time.

It uses the consumers' driver, without a group. The driver runs an `AdminCore`. A `RequestDriver` sends the requests of
one public call and limits its time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from kohort.admin.admin_config import AdminConfig
from kohort.common import KohortError
from kohort.network.backoff import Backoff
from kohort.network.client_metrics import Counters
from kohort.network.connection_states import ConnectionStates
from kohort.network.error_mapping import group_error
from kohort.network.errors import ConnectionFailed, OperationTimeout
from kohort.network.metadata_refresh import MetadataRefresher
from kohort.network.metadata_updater import MetadataUpdater
from kohort.network.network_client import Driver
from kohort.network.promise import Promise
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
from kohort.protocol.apis.find_coordinator import FindCoordinatorRequest
from kohort.protocol.apis.metadata import MetadataRequest

COORDINATOR_RETRIABLE: Final = frozenset({14, 15, 16})
"""Retriable coordinator errors: it is loading, not available yet, or another broker."""

NOT_CONTROLLER: Final = 41

NO_TOPICS: Final = MetadataRequest(
    topics=(),
    allow_auto_topic_creation=False,
    include_cluster_authorized_operations=False,
    include_topic_authorized_operations=False,
)

READS: Final = frozenset({"DescribeConfigs", "FindCoordinator", "Metadata"})
"""Read-only APIs that any broker serves, so that they may be sent to several."""

PAUSE_S: Final = 0.1

LONGEST_WAIT_S: Final = 1.0
"""Interval at which a waiting call checks that the driver is running."""


class AdminClosed(KohortError):
    """The admin was closed; a closed admin cannot be opened again."""


class AdminCore:
    """Passes requests to the driver, and results to their callers.

    It sends no requests of its own, except for the first addresses of the brokers.
    """

    def __init__(self, config: AdminConfig, *, chance: Callable[[], float], started: float) -> None:
        self.config = config
        self.chance = chance
        self.started = started
        self.has_updates = False
        self.counters = Counters()
        self.endpoints = ConnectionStates.of(config, chance)
        self.metadata = MetadataRefresher(
            Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms), config.metadata_max_age_ms / 1000
        )
        self.cluster = MetadataUpdater(self, frozenset)
        self._outgoing: list[UnsentRequest] = []
        self._waiting: set[Promise[RequestResult]] = set()
        self._fatal: KohortError | None = None

    def log_fields(self) -> Mapping[str, object]:
        """The fields of log lines of the driver's thread."""
        return {"client_id": self.config.client_id}

    def poll(self, now: float, wall_ms: int) -> PollResult:
        self.cluster.poll(now)
        outgoing, self._outgoing = tuple(self._outgoing), []
        later = [wake for wake in self.cluster.next_poll_at(now) if wake is not None and wake > now]
        return PollResult(outgoing, min(later, default=None))

    @property
    def fatal(self) -> KohortError | None:
        return self._fatal

    @property
    def request_s(self) -> float:
        return self.config.request_timeout_ms / 1000

    def send(self, line: ConnectionPurpose, endpoint: Endpoint | None, ask: PendingRequest) -> None:
        self._outgoing.append(UnsentRequest(line, endpoint, ask))

    def ask(self, question: "AdminRequest", now: float) -> Promise[RequestResult]:
        """Send one request; the promise has its result."""
        promise: Promise[RequestResult] = Promise()
        if self._fatal is not None:
            promise.set_result(SendFailed(self._fatal))
            return promise
        self._waiting.add(promise)

        def done(outcome: RequestResult, _now: float) -> None:
            if promise in self._waiting:
                self._waiting.discard(promise)
                promise.set_result(outcome)

        request = question.request
        made = request if callable(request) else lambda version: fit(request, version)
        ask = PendingRequest(question.api, made, done, self.request_s, question.at_most)
        if question.endpoint is None and question.api in READS:
            self.cluster.send_to_any(ask, now)
        else:
            self.send(ConnectionPurpose.CONTROL, question.endpoint, ask)
        return promise

    def brokers(self) -> dict[int, Endpoint]:
        """Every broker in metadata, by id. Raises the error that ended the admin."""
        if self._fatal is not None:
            raise self._fatal
        return {node: Endpoint(one.host, one.port) for node, one in self.metadata.view.brokers.items()}

    def fail(self, error: KohortError) -> None:
        self._fatal = self._fatal or error
        waiting, self._waiting = self._waiting, set()
        for promise in waiting:
            promise.set_result(SendFailed(error))

    def put_error(self, error: KohortError) -> None:
        """Ignore errors that do not belong to a request."""


def first_of(answers: Sequence[Any], api: str, **asked: str) -> Any:
    """The first result of a response. Raises KohortError if there is none."""
    if not answers:
        raise KohortError("the response lacks the requested entry", api=api, **asked)
    return answers[0]


class AdminRequest(NamedTuple):
    """A request, its API and its destination.

    `request`: the typed value, or a function of the version that makes it. `endpoint` None: any broker.
    """

    api: str
    request: Any
    endpoint: Endpoint | None = None
    at_most: int | None = None


def driver(config: AdminConfig) -> Driver[AdminCore]:
    """The driver of an admin, not started."""
    return Driver(config, partial(AdminCore, config))


def end(driver: Driver[AdminCore]) -> None:
    """Close every connection. Pending and later requests raise AdminClosed."""
    driver.check_same_process()
    driver.enqueue(lambda core: core.fail(AdminClosed("the admin was closed")))
    driver.stop(5.0)


class RequestDriver:
    """Sends the requests of one public call and waits for their responses.

    All requests of the call, to any number of brokers, end within `default_api_timeout_ms`, with OperationTimeout if
    necessary. Raises ConnectionFailed if there is no response, AdminClosed, and ForkError in a forked child.
    """

    def __init__(self, driver: Driver[AdminCore]) -> None:
        driver.check_same_process()
        self.config = driver.core.config
        self._driver = driver
        self._until = time.monotonic() + self.config.default_api_timeout_ms / 1000

    def all(self, questions: Sequence[AdminRequest]) -> list[Any]:
        """The responses, in order, of requests sent at the same time."""
        return [self._answer(*each) for each in zip(questions, self._sent(questions), strict=True)]

    def one(self, api: str, request: Any, *, at_most: int | None = None) -> Any:
        """The response of any broker.

        A read-only request is sent to another broker if one cannot be reached. Any other request is sent only to
        brokers that have responded before.
        """
        question = AdminRequest(api, request, None, at_most)
        if api in READS:
            for _ in range(self._others()):
                with suppress(ConnectionFailed):
                    return self.all([question])[0]
        else:
            self.brokers()
        return self.all([question])[0]

    def of_controller(self, api: str, request: Any, *, codes: Callable[[Any], Sequence[int]]) -> Any:
        """The response of a broker that may change the cluster.

        That is any broker, or the controller in a cluster with ZooKeeper. `codes`: the error codes in a response, to
        recognize NOT_CONTROLLER.
        """
        answer = self.one(api, request)
        while NOT_CONTROLLER in codes(answer) and self._left_s() > PAUSE_S:
            time.sleep(PAUSE_S)
            told = self.one("Metadata", NO_TOPICS).controller_id
            answer = self.all([AdminRequest(api, request, self.brokers().get(told))])[0]
        return answer

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

        `codes`: the error codes in a response, to recognize that it is not the coordinator.
        """
        while True:
            answer = self.all([AdminRequest(api, request, self._coordinator(group), at_most)])[0]
            if not COORDINATOR_RETRIABLE.intersection(codes(answer)) or self._left_s() <= PAUSE_S:
                return answer
            time.sleep(PAUSE_S)

    def of_brokers(self, api: str, request: Any, *, code: Callable[[Any], int]) -> list[Any]:
        """The responses of all brokers, with retries while a coordinator is loading.

        `code`: the error code of a response.
        """
        asked, answers = self.brokers(), dict[int, Any]()
        while True:
            answers |= zip(asked, self.all([AdminRequest(api, request, one) for one in asked.values()]), strict=True)
            asked = {node: one for node, one in asked.items() if code(answers[node]) in COORDINATOR_RETRIABLE}
            if not asked or self._left_s() <= PAUSE_S:
                return list(answers.values())
            time.sleep(PAUSE_S)

    def brokers(self) -> Mapping[int, Endpoint]:
        """Every broker of the cluster, by id."""
        while True:
            self._driver.check()
            known = self._driver.lock.run(self._driver.core.brokers)
            if known:
                return known
            if not self._left_s():
                raise OperationTimeout("no broker has named the cluster's brokers in time")
            time.sleep(0.005)

    def _others(self) -> int:
        """The number of other brokers to try if one cannot be reached."""
        return max(len(self._driver.core.metadata.view.brokers), len(self.config.bootstrap)) - 1

    def _coordinator(self, group: str) -> Endpoint:
        request = FindCoordinatorRequest(key=group, key_type=0, coordinator_keys=(group,))
        while True:
            answer = self.one("FindCoordinator", request)
            found = answer.coordinators[0] if answer.coordinators else answer
            if found.error_code == 0:
                return Endpoint(found.host, found.port)
            if found.error_code not in COORDINATOR_RETRIABLE or self._left_s() <= PAUSE_S:
                raise group_error(found.error_code, group)
            time.sleep(PAUSE_S)

    def pause(self, within_s: float = float("inf")) -> bool:
        """Wait before a retry.

        Returns False, at once, if the call's time is over, or if `within_s` seconds of it have passed.
        """
        passed_s = self.config.default_api_timeout_ms / 1000 - self._left_s()
        if self._left_s() <= PAUSE_S or passed_s >= within_s:
            return False
        time.sleep(PAUSE_S)
        return True

    def _left_s(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def _sent(self, questions: Sequence[AdminRequest]) -> list[Promise[RequestResult]]:
        self._driver.check()
        return self._driver.execute(lambda core: [core.ask(one, self._driver.now()) for one in questions])

    def _outcome(self, question: AdminRequest, promise: Promise[RequestResult]) -> RequestResult:
        while True:
            with suppress(TimeoutError):
                return promise.result(min(self._left_s(), LONGEST_WAIT_S))
            self._none_came(question)

    def _none_came(self, question: AdminRequest) -> None:
        """Raise OperationTimeout if the call's time is over, or the driver's error if it has ended."""
        self._driver.check()
        if not self._left_s():
            raise OperationTimeout(f"no response to {question.api} in time", api=question.api)

    def _answer(self, question: AdminRequest, promise: Promise[RequestResult]) -> Any:
        match self._outcome(question, promise):
            case ResponseReceived(value):
                return value
            case SendFailed(error):
                raise error
            case NoResponse(error):
                raise ConnectionFailed(
                    f"no response to {question.api}: {error.message}", hint=error.hint, **error.place
                )
