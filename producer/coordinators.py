"""Coordinators of a transaction: its own, and those of the groups whose offsets it commits."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from kohort.common import KohortError
from kohort.network.backoff import FRESH, Attempts
from kohort.network.request_versions import fit
from kohort.network.requests import Endpoint, PendingRequest, RequestResult, ResponseReceived, SendFailed
from kohort.producer.producer_context import ProducerContext
from kohort.protocol.apis.find_coordinator import FindCoordinatorRequest
from kohort.protocol.errors import BrokerError


class CoordinatorKind(IntEnum):
    """The key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def place(self) -> str:
        """The name of the key in errors."""
        return "group" if self is CoordinatorKind.GROUP else "transactional_id"


@dataclass(slots=True)
class _Search:
    endpoint: Endpoint | None = None
    asked: bool = False
    attempts: Attempts = FRESH


class Coordinators:
    """Coordinators, looked up when needed and forgotten when they turn out to be wrong.

    `refused` is called with errors that are not retriable.
    """

    def __init__(self, context: ProducerContext, refused: Callable[[CoordinatorKind, str, KohortError], None]) -> None:
        self._context = context
        self._refused = refused
        self._known: dict[tuple[CoordinatorKind, str], _Search] = {}

    def of(self, kind: CoordinatorKind, key: str, now: float) -> Endpoint | None:
        """The coordinator's address; None while it is being looked up."""
        search = self._known.setdefault((kind, key), _Search())
        if search.endpoint is None and not search.asked and search.attempts.may_try(now):
            self._look(kind, key, search, now)
        return search.endpoint

    def gone(self, endpoint: Endpoint) -> None:
        """Forget a broker that is not the coordinator or was not reached.

        It is looked up again when needed.
        """
        for search in self._known.values():
            if search.endpoint == endpoint:
                search.endpoint = None

    def next_poll_at(self) -> list[float | None]:
        return [one.attempts.not_before for one in self._known.values() if one.attempts.failures and not one.asked]

    def _look(self, kind: CoordinatorKind, key: str, search: _Search, now: float) -> None:
        context = self._context
        search.asked = True
        request = FindCoordinatorRequest(key=key, key_type=int(kind), coordinator_keys=(key,))

        def done(outcome: RequestResult, when: float) -> None:
            search.asked = False
            if isinstance(outcome, ResponseReceived):
                one = outcome.value.coordinators[0] if outcome.value.coordinators else outcome.value
                if not one.error_code:
                    search.endpoint, search.attempts = Endpoint(one.host, one.port), FRESH
                    return
                error = BrokerError(one.error_code, one.error_message, api="FindCoordinator", **{kind.place: key})
                if not error.retriable:
                    self._refused(kind, key, error)
            elif isinstance(outcome, SendFailed):
                context.fail(outcome.error)
            search.attempts = context.failed(search.attempts, when)

        context.send_to_any(
            PendingRequest("FindCoordinator", lambda version: fit(request, version), done, context.request_s), now
        )
