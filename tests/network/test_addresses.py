"""The address that is tried next, and sockets that take another's place."""

import socket
from typing import Any

import pytest

from kohort import Consumer, TopicPartition
from kohort.network.backoff import Backoff
from kohort.network.connection_states import ConnectionStates
from kohort.network.errors import ConnectionFailed
from kohort.network.requests import Endpoint
from kohort.testing import FakeBroker
from tests.coordinator_client.consumer_helpers import read

A, B = Endpoint("a", 1), Endpoint("b", 1)


def test_the_others_go_first_until_an_address_that_was_late_responds() -> None:
    known = ConnectionStates((A, B), Backoff(50, 1000), lambda: 0.5)
    known.responded(A, {})
    assert known.pick([A, B], 0.0) == A  # a connection is open there
    known.late(A)
    assert known.pick([A, B], 0.0) == B
    known.responded(A)
    assert known.pick([A, B], 0.0) == A


def test_an_address_that_failed_has_no_lateness_beside_it() -> None:
    known = ConnectionStates((A, B), Backoff(50, 1000), lambda: 0.5)
    known.late(A)
    for one in (A, B):
        known.failed(one, ConnectionFailed("no"), 0.0)
    assert known.pick([A, B], 0.0) is None
    assert known.pick([A, B], 100.0) == A  # the first of two that failed once
    known.responded(B)
    assert known.last_error is None
    assert known.pick([A, B], 100.0) == B


def test_a_host_is_called_at_its_next_address_where_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def two(host: Any, port: Any, *more: Any, **given: Any) -> list[Any]:
        (one, *_) = resolve("127.0.0.1", port, *more, **given)
        return [(*one[:4], ("127.0.0.1", 1)), one]

    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"v")])
        monkeypatch.setattr(socket, "getaddrinfo", two)
        with Consumer(fake.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert [record.value for record in read(consumer, 1)] == [b"v"]
            assert consumer.metrics().connection_close_total == 0
