"""Connections that are replaced, that have ended, and that are not opened."""

from functools import partial
from typing import Any

import pytest

from kohort import Consumer, Producer, TopicPartition
from kohort.admin.admin_config import AdminConfig
from kohort.admin.admin_core import AdminCore
from kohort.network import connection_states
from kohort.network.errors import AuthenticationFailed, ConnectionFailed
from kohort.network.network_client import Driver
from kohort.network.requests import (
    ConnectionPurpose,
    Endpoint,
    NoResponse,
    PendingRequest,
    RequestResult,
    ResponseReceived,
    UnsentRequest,
)
from kohort.protocol.apis.heartbeat import HeartbeatRequest
from kohort.testing.fake_broker import FakeBroker, Hold
from kohort.testing.ports import free_ports
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


def test_of_ended_connections_the_newest_addresses_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_states, "MOST_KEYS", 2)
    closed = [f"127.0.0.1:{port}" for port in free_ports(3)]
    with Consumer(closed, reconnect_backoff_ms=1) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        driver: Any = consumer._session.driver
        wait_until(lambda: driver.core.counters.connections_ended > 3)
        assert len(driver._ended) == len(driver.core.endpoints._attempts) == 2


def test_after_a_failed_login_no_connection_is_opened_and_each_request_delays_the_next() -> None:
    config = AdminConfig.of(bootstrap="localhost:9092")
    driver: Any = Driver(config, partial(AdminCore, config))
    endpoint = Endpoint("localhost", 9092)
    driver.core.fail(AuthenticationFailed("wrong password"))
    for failures in (1, 2):
        assert driver._obstacle(endpoint, 0.0) is driver.core.fatal
        assert not driver.core.endpoints.may_try(endpoint, 0.0)
        assert driver.core.endpoints._attempts[endpoint].failures == failures
