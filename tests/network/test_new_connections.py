"""A request that has its connection replaced: the requests of the old one have outcomes, allowed or not."""

from typing import Any

import pytest

from kohort import Producer
from kohort.network.errors import ConnectionFailed
from kohort.network.requests import (
    ConnectionPurpose,
    NoResponse,
    PendingRequest,
    RequestResult,
    ResponseReceived,
    UnsentRequest,
)
from kohort.protocol.apis.heartbeat import HeartbeatRequest
from kohort.testing.fake_broker import FakeBroker, Hold
from tests.coordinator_client.consumer_helpers import wait_until


@pytest.mark.parametrize("is_allowed", [True, False])
def test_the_requests_of_a_replaced_connection_have_outcomes(is_allowed: bool) -> None:
    outcomes: list[RequestResult] = []
    with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap, linger_ms=0, retry_backoff_ms=1) as producer:
        first = producer.send("t", b"first").result(10)
        hold = Hold()
        held = fake.control("Produce", lambda _call: hold)
        delivery = producer.send("t", b"waits")
        wait_until(hold.reached.is_set)
        held.remove()
        driver: Any = producer._driver
        endpoint = next(iter(driver.core.metadata.view.brokers.values())).endpoint
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        pending = PendingRequest("Heartbeat", request, lambda outcome, _now: outcomes.append(outcome), 10.0)
        wanted = [UnsentRequest(ConnectionPurpose.DATA, endpoint, pending, use_new_connection=True)]
        poll = driver.core.poll

        def polled(now: float, wall_ms: int) -> Any:
            turn = poll(now, wall_ms)
            if not wanted:
                return turn
            if not is_allowed:
                driver.core.endpoints.failed(endpoint, ConnectionFailed("elsewhere"), now)
            return turn._replace(requests=(*turn.requests, wanted.pop()))

        driver.core.poll = polled
        driver.wakeup()
        assert delivery.result(20).offset == first.offset + 1, (
            "it was sent again, and dropped as a duplicate or written"
        )
        wait_until(lambda: bool(outcomes))
        hold.release()
    (outcome,) = outcomes
    if is_allowed:
        assert isinstance(outcome, ResponseReceived)
    else:
        assert isinstance(outcome, NoResponse)
        assert not outcome.called
