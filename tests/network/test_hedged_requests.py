"""Requests that any broker can serve, without a socket: the order of brokers, and the outcome that counts."""

from typing import Any

from kohort.network.backoff import Backoff
from kohort.network.connection_states import ConnectionStates
from kohort.network.errors import ConnectionFailed
from kohort.network.hedged_requests import HedgedRequests
from kohort.network.requests import Endpoint, NoResponse, PendingRequest, RequestResult, ResponseReceived, SendFailed

PATIENCE_S = 2.0
FIRST, SECOND, THIRD = (Endpoint("host", port) for port in (1, 2, 3))
AWAY = NoResponse(ConnectionFailed("away"))


class Table:
    """`sent`: the requests handed to the driver; `came`: the outcomes that the sender has got."""

    def __init__(self, *brokers: Endpoint) -> None:
        self.endpoints = ConnectionStates((), Backoff(100, 1000), chance=lambda: 0.5)
        self.sent: list[tuple[Endpoint | None, PendingRequest]] = []
        self.came: list[tuple[RequestResult, float]] = []
        self.anybody = HedgedRequests(
            self.endpoints,
            lambda now, but=(): self.endpoints.pick(brokers, now, but),
            lambda: PATIENCE_S,
        )

    def send(self, *, timeout_s: float = 120.0) -> None:
        self.anybody.send(PendingRequest("Metadata", None, lambda *outcome: self.came.append(outcome), timeout_s), 0.0)
        self.poll(0.0)

    def poll(self, now: float) -> float | None:
        """Take what is to be sent; returns the time of the next poll."""
        result = self.anybody.poll(now)
        self.sent += [(one.endpoint, one.request) for one in result.requests]
        return result.next_poll_at

    def turn(self, now: float) -> list[Endpoint | None]:
        """The brokers that have received the request so far."""
        self.poll(now)
        return [endpoint for endpoint, _ in self.sent]

    def respond(self, number: int, outcome: RequestResult, now: float) -> None:
        """The outcome of the request with this number."""
        self.sent[number][1].done(outcome, now)
        self.poll(now)


def responded(value: Any) -> ResponseReceived:
    return ResponseReceived(value, version=1)


def test_one_that_responds_in_time_gets_the_only_request() -> None:
    table = Table(FIRST, SECOND)
    table.send()
    assert table.turn(1.9) == [FIRST]
    table.respond(0, responded("yes"), 1.95)
    assert table.came == [(responded("yes"), 1.95)]
    assert table.turn(60.0) == [FIRST]
    assert table.poll(60.0) is None


def test_one_more_is_asked_whenever_a_while_has_brought_nothing_and_the_first_answer_counts() -> None:
    table = Table(FIRST, SECOND, THIRD)
    table.send()
    assert table.poll(0.0) == PATIENCE_S
    assert table.turn(2.0) == [FIRST, SECOND]
    assert table.turn(3.9) == [FIRST, SECOND]
    assert table.turn(4.0) == [FIRST, SECOND, THIRD]
    assert table.turn(6.0) == [FIRST, SECOND, THIRD]  # no broker gets it twice
    table.respond(1, responded("second"), 6.1)
    table.respond(0, responded("first"), 6.2)
    table.respond(2, AWAY, 6.3)
    assert table.came == [(responded("second"), 6.1)]


def test_who_was_waited_for_in_vain_is_asked_last_from_then_on() -> None:
    table = Table(FIRST, SECOND)
    table.send()
    table.turn(2.0)
    table.send()
    assert [endpoint for endpoint, _ in table.sent] == [FIRST, SECOND, SECOND]


def test_what_fails_is_reported_without_a_waiter() -> None:
    table = Table(FIRST, SECOND)
    table.send()
    table.turn(2.0)
    table.respond(0, AWAY, 2.5)
    assert table.came == []
    table.respond(1, AWAY, 2.6)
    assert table.came == [(AWAY, 2.6)]
    assert table.turn(9.0) == [FIRST, SECOND]


def test_a_request_that_got_no_response_goes_to_another_broker_at_once() -> None:
    table = Table(FIRST, SECOND)
    table.send(timeout_s=3.0)
    table.respond(0, AWAY, 0.5)
    assert table.came == []
    assert [(endpoint, pending.timeout_s) for endpoint, pending in table.sent] == [(FIRST, 3.0), (SECOND, 2.5)]
    table.respond(1, AWAY, 0.6)
    assert table.came == [(AWAY, 0.6)]


def test_after_its_time_a_request_goes_to_no_other_broker() -> None:
    table = Table(FIRST, SECOND)
    table.send(timeout_s=3.0)
    table.respond(0, AWAY, 3.0)
    assert table.came == [(AWAY, 3.0)]
    assert len(table.sent) == 1


def test_what_cannot_be_sent_is_an_error_at_once() -> None:
    table = Table(FIRST, SECOND)
    table.send()
    table.turn(2.0)
    refused = SendFailed(ConnectionFailed("no version in common"))
    table.respond(1, refused, 2.1)
    assert table.came == [(refused, 2.1)]


def test_later_ones_have_what_is_left_of_the_time_and_none_is_asked_after_it() -> None:
    table = Table(FIRST, SECOND, THIRD)
    table.send(timeout_s=3.0)
    table.turn(2.0)
    assert [pending.timeout_s for _, pending in table.sent] == [3.0, 1.0]
    assert table.turn(4.0) == [FIRST, SECOND]


def test_where_nobody_can_be_asked_the_driver_says_so() -> None:
    table = Table()
    table.send()
    assert table.turn(0.1) == [None]
    table.respond(0, AWAY, 0.2)
    assert table.came == [(AWAY, 0.2)]
