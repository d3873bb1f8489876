"""Look-ups of coordinators: retries, refusals, and brokers that are none any more."""

from collections import deque

import pytest

from kohort.common import KohortError
from kohort.network.backoff import Backoff
from kohort.network.errors import ConnectionFailed
from kohort.network.find_coordinator import CoordinatorFinder, CoordinatorKind, CoordinatorNode
from kohort.network.requests import Endpoint, NoResponse, PendingRequest, RequestResult, ResponseReceived, SendFailed
from kohort.protocol.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.protocol.errors import BrokerError

GROUP, TRANSACTION = CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION
ONE = CoordinatorNode(1, Endpoint("one", 9092))
TIMEOUT_S = 30.0


class Rig:
    """A finder, the requests it has sent, and the errors it has given."""

    def __init__(self) -> None:
        self.sent: deque[PendingRequest] = deque()
        self.refused: list[tuple[CoordinatorKind, str, KohortError]] = []
        self.finder = CoordinatorFinder(
            lambda request, _now: self.sent.append(request),
            TIMEOUT_S,
            Backoff(100, 1_000, jitter=0.0),
            lambda: 0.5,
            lambda *refusal: self.refused.append(refusal),
        )

    def settle(self, outcome: RequestResult, now: float) -> None:
        self.sent.popleft().done(outcome, now)


def found(node: CoordinatorNode = ONE) -> RequestResult:
    return ResponseReceived(FindCoordinatorResponse(error_code=0, node_id=node.node_id, **node.endpoint._asdict()), 3)


def code(number: int) -> RequestResult:
    return ResponseReceived(FindCoordinatorResponse(error_code=number), 3)


def test_one_request_finds_a_coordinator_for_all_that_need_it() -> None:
    rig = Rig()
    assert rig.finder.of(GROUP, "g", 1.0) is rig.finder.of(GROUP, "g", 1.1) is None
    (request,) = rig.sent
    assert (request.api, request.timeout_s) == ("FindCoordinator", TIMEOUT_S)
    assert request.request(3).key == "g"
    assert request.request(4).coordinator_keys == ("g",)
    rig.settle(found(), 1.2)
    assert rig.finder.of(GROUP, "g", 1.3) == rig.finder.known(GROUP, "g") == ONE
    assert not rig.sent
    assert rig.finder.known(TRANSACTION, "g") is None


def test_a_response_for_many_keys_is_read_too() -> None:
    rig = Rig()
    rig.finder.of(TRANSACTION, "t", 1.0)
    assert rig.sent[0].request(4).key_type == 1
    one = Coordinator(key="t", error_code=0, error_message=None, node_id=1, host="one", port=9092)
    rig.settle(ResponseReceived(FindCoordinatorResponse(coordinators=(one,)), 4), 1.1)
    assert rig.finder.known(TRANSACTION, "t") == ONE


@pytest.mark.parametrize("failure", [code(14), code(15), code(16), code(7), NoResponse(ConnectionFailed("it broke"))])
def test_a_failure_that_may_pass_is_retried_after_a_backoff(failure: RequestResult) -> None:
    rig = Rig()
    rig.finder.of(GROUP, "g", 1.0)
    rig.settle(failure, 1.0)
    assert rig.finder.next_poll_at() == [1.1]
    assert rig.finder.of(GROUP, "g", 1.05) is None
    assert not rig.sent
    last = rig.finder.failure(GROUP, "g")
    assert last is not None
    assert last.retry_at == 1.1
    rig.finder.of(GROUP, "g", 1.1)
    rig.settle(found(), 1.2)
    assert rig.finder.failure(GROUP, "g") is None
    assert not rig.finder.next_poll_at()
    assert not rig.refused


def test_a_refusal_names_the_key() -> None:
    rig = Rig()
    rig.finder.of(TRANSACTION, "t", 1.0)
    rig.settle(code(53), 1.0)
    ((kind, key, error),) = rig.refused
    assert (kind, key) == (TRANSACTION, "t")
    assert isinstance(error, BrokerError)
    assert error.place["transactional_id"] == "t"


def test_a_request_that_cannot_be_sent_is_refused() -> None:
    rig = Rig()
    rig.finder.of(GROUP, "g", 1.0)
    problem = KohortError("no version in common")
    rig.settle(SendFailed(problem), 1.0)
    assert rig.refused == [(GROUP, "g", problem)]


def test_a_lost_coordinator_is_looked_up_again_for_every_key() -> None:
    rig = Rig()
    for key in ("a", "b"):
        rig.finder.of(GROUP, key, 1.0)
        rig.settle(found(ONE if key == "a" else CoordinatorNode(2, Endpoint("two", 9092))), 1.0)
    rig.finder.lost(ONE.endpoint)
    assert rig.finder.known(GROUP, "a") is None
    assert rig.finder.known(GROUP, "b") is not None
    assert rig.finder.of(GROUP, "a", 1.1) is None
    assert len(rig.sent) == 1
