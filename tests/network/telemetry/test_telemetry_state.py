"""The state machine of KIP-714: subscriptions, pushes, their times, and nonsense of brokers."""

from typing import Any
from uuid import UUID

import pytest

from kohort.network.telemetry.telemetry_state import (
    DEFAULT_INTERVAL_S,
    NO_CLIENT_INSTANCE_ID,
    SHORTEST_S,
    Push,
    Telemetry,
    TelemetryRequest,
    TelemetrySubscription,
)
from kohort.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from kohort.protocol.errors import ErrorCode

ME = UUID(int=7)


def subscription(
    *wanted: str,
    number: int = 1,
    error: int = 0,
    codecs: tuple[int, ...] = (),
    interval_ms: int = 10_000,
    most_bytes: int = 1 << 20,
    delta: bool = False,
    client: UUID = ME,
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        error_code=error,
        client_instance_id=client,
        subscription_id=number,
        accepted_compression_types=codecs,
        push_interval_ms=interval_ms,
        telemetry_max_bytes=most_bytes,
        delta_temporality=delta,
        requested_metrics=wanted,
    )


def subscribed(*wanted: str, chance: float = 0.5, **reported: Any) -> Telemetry:
    """A machine that received this subscription at 100.0."""
    machine = Telemetry(lambda: chance)
    assert machine.next_request(100.0) == TelemetryRequest(NO_CLIENT_INSTANCE_ID)
    machine.subscription(subscription(*wanted, **reported), 100.0)
    return machine


def push_of(owed: TelemetryRequest | Push | None) -> Push:
    assert isinstance(owed, Push)
    return owed


@pytest.mark.parametrize(("chance", "due"), [(0.0, 105.0), (0.5, 110.0), (0.99, 114.9)])
def test_the_first_push_waits_for_a_random_part_of_the_interval(chance: float, due: float) -> None:
    machine = subscribed("*", chance=chance)
    assert machine.next_poll_at() == pytest.approx(due)
    assert machine.next_request(due - 0.1) is None
    push = push_of(machine.next_request(due + 0.001))
    assert (push.client, push.subscribed.number, push.last) == (ME, 1, False)
    assert machine.next_request(due + 1) is None  # one at a time
    machine.pushed(0, due + 1)
    assert machine.next_poll_at() == pytest.approx(due + 11)
    assert isinstance(machine.next_request(due + 11.001), Push)


def test_who_is_asked_for_nothing_asks_again_under_its_id() -> None:
    machine = subscribed()
    assert machine.next_poll_at() == 110.0
    assert machine.next_request(109.9) is None
    assert machine.next_request(110.0) == TelemetryRequest(ME)
    machine.subscription(subscription("org.", client=NO_CLIENT_INSTANCE_ID, number=2), 110.0)
    assert push_of(machine.next_request(130.0)).client == ME


def reported_codes() -> list[str]:
    return ["UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE"]


@pytest.mark.parametrize("name", reported_codes())
def test_a_changed_subscription_is_requested_at_once_and_pushed_at_its_interval(name: str) -> None:
    machine = subscribed("*")
    assert machine.next_request(110.0) is not None
    assert not machine.pushed(ErrorCode[name], 110.5)
    assert machine.next_request(110.5) == TelemetryRequest(ME)
    machine.subscription(subscription("*", number=2), 110.6)
    assert machine.next_request(120.0) is None  # however often the broker says so, there is one push an interval
    assert push_of(machine.next_request(120.5)).subscribed.number == 2


@pytest.mark.parametrize("name", ["TELEMETRY_TOO_LARGE", "THROTTLING_QUOTA_EXCEEDED"])
def test_what_is_too_much_waits_for_the_interval_and_is_sent_again(name: str) -> None:
    machine = subscribed("*")
    assert machine.next_request(110.0) is not None
    machine.pushed(ErrorCode[name], 110.5)
    assert (machine.next_request(120.0), machine.next_poll_at()) == (None, 120.5)
    assert machine.next_request(120.5) == TelemetryRequest(ME)


@pytest.mark.parametrize("name", ["INVALID_REQUEST", "INVALID_RECORD", "UNSUPPORTED_VERSION", "UNKNOWN_SERVER_ERROR"])
def test_an_error_that_would_come_again_ends_it(name: str) -> None:
    machine = subscribed("*")
    assert machine.next_request(110.0) is not None
    machine.pushed(ErrorCode[name], 110.5)
    assert machine.stopped == f"PushTelemetry: {name}"
    assert (machine.next_request(1e9), machine.next_poll_at()) == (None, None)
    refused = Telemetry(lambda: 0.0)
    assert refused.next_request(1.0) == TelemetryRequest(NO_CLIENT_INSTANCE_ID)
    refused.subscription(subscription(error=ErrorCode[name]), 1.0)
    assert refused.stopped == f"GetTelemetrySubscriptions: {name}"


@pytest.mark.parametrize("name", ["THROTTLING_QUOTA_EXCEEDED", *reported_codes()])
def test_a_broker_without_a_result_gets_no_requests_in_a_spin(name: str) -> None:
    machine = Telemetry(lambda: 0.0)
    assert machine.next_request(100.0) == TelemetryRequest(NO_CLIENT_INSTANCE_ID)
    machine.subscription(subscription(error=ErrorCode[name]), 100.0)
    assert machine.next_request(100.0 + DEFAULT_INTERVAL_S - 1) is None
    assert machine.next_request(100.0 + DEFAULT_INTERVAL_S) == TelemetryRequest(NO_CLIENT_INSTANCE_ID)


def test_no_response_is_no_reason_to_hurry() -> None:
    machine = subscribed("*")
    assert machine.next_request(110.0) is not None
    machine.unanswered(140.0)
    assert machine.next_request(149.9) is None
    assert machine.next_request(150.0) == TelemetryRequest(ME)


def test_a_close_pushes_once_more_and_never_again() -> None:
    machine = subscribed("*")
    machine.close()
    assert push_of(machine.next_request(101.0)).last  # though the interval is not over
    machine.pushed(ErrorCode.THROTTLING_QUOTA_EXCEEDED, 101.1)
    assert machine.stopped == "closed"
    assert machine.next_request(1e9) is None


def test_a_close_in_the_middle_of_a_push_pushes_the_last_behind_it() -> None:
    machine = subscribed("*")
    assert not push_of(machine.next_request(110.0)).last
    machine.close()
    assert machine.next_request(110.0) is None
    machine.pushed(0, 110.1)
    assert push_of(machine.next_request(110.1)).last


def test_a_close_of_who_pushes_nothing_is_quiet() -> None:
    for machine in (Telemetry(lambda: 0.0), subscribed()):
        machine.close()
        assert machine.next_request(1.0) is None
        assert machine.stopped == "closed"


def test_nonsense_of_a_broker_is_taken_as_the_usual() -> None:
    reported = TelemetrySubscription.reported(subscription("*", interval_ms=-1, most_bytes=0, codecs=(99, -3)))
    assert (reported.interval_s, reported.most_bytes, reported.codec) == (DEFAULT_INTERVAL_S, 1 << 20, 0)
    assert TelemetrySubscription.reported(subscription("*", interval_ms=1)).interval_s == SHORTEST_S
    machine = subscribed("*", client=NO_CLIENT_INSTANCE_ID)
    assert machine.stopped == "the broker gives no id"


def test_the_first_codec_that_we_have_is_the_brokers_first() -> None:
    assert TelemetrySubscription.reported(subscription("*", codecs=(9, 3, 4))).codec == 3
    assert TelemetrySubscription.reported(subscription("*", codecs=(0, 4))).codec == 4


@pytest.mark.parametrize(
    ("wanted", "name", "wants"),
    [
        (("*",), "a.b", True),
        (("",), "a.b", True),
        (("a.",), "a.b", True),
        (("a.b", "c."), "c.d", True),
        (("a.bc",), "a.b", False),
        ((), "a.b", False),
    ],
)
def test_names_are_wanted_by_prefix(wanted: tuple[str, ...], name: str, wants: bool) -> None:
    assert TelemetrySubscription.reported(subscription(*wanted)).wants(name) is wants


def test_a_million_requested_metrics_are_looked_up_and_not_gone_through() -> None:
    class Counted(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    reported = TelemetrySubscription.reported(
        subscription(*[Counted(f"org.apache.kafka.{number}") for number in range(10_000)], "", "é")
    )
    reported = reported._replace(wanted=reported.wanted - {""})
    Counted.compared = 0
    assert not reported.wants("org.apache.kafka.consumer.fetch.manager.records.lag.max")
    assert reported.wants("org.apache.kafka.77.more")
    assert Counted.compared < 100


@pytest.mark.parametrize("interval_ms", [0, -1, -(2**31), 1, 2**31 - 1])
def test_no_interval_of_a_broker_makes_a_spin_or_an_error(interval_ms: int) -> None:
    machine = subscribed("*", interval_ms=interval_ms, most_bytes=-(2**31), codecs=(-128, 127))
    due = machine.next_poll_at()
    assert due is not None
    assert 100.0 + SHORTEST_S / 2 <= due <= 100.0 + 1.5 * (2**31 / 1000)
    pushed = machine.next_request(due)
    assert isinstance(pushed, Push)
    machine.pushed(0, due)
    after = machine.next_poll_at()
    assert after is not None
    assert after >= due + SHORTEST_S
