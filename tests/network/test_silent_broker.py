"""One broker of several takes connections and never responds: no call waits for it if another can respond."""

import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kohort import Admin, Consumer, KohortError, Producer, TopicPartition
from kohort.network.backoff import Backoff
from kohort.network.connection_states import ConnectionStates
from kohort.network.errors import ConnectionFailed
from kohort.network.requests import Endpoint
from kohort.testing import FakeBroker, RealCluster
from kohort.testing.fake_broker import Call, Drop
from kohort.testing.topics import create_topic, serves
from tests.coordinator_client.consumer_helpers import read, wait_until

PLACE = TopicPartition("topic", 0)
CLIENTS = 6  # each begins with an address by chance: one of two would be silent for all but one in 64 runs


@contextmanager
def silent(count: int = 1) -> Iterator[list[str]]:
    """Ports that take connections, and that is all."""
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        yield [f"127.0.0.1:{one.getsockname()[1]}" for one in listening]
    finally:
        for one in listening:
            one.close()


SLOW: dict[str, Any] = {"connection_setup_timeout_ms": 600_000, "request_timeout_ms": 60_000}


def reads(addresses: list[str]) -> None:
    with Consumer(addresses, bootstrap_timeout_ms=2_000, **SLOW) as consumer:
        consumer.assign({PLACE: 0})
        read(consumer, 1, patience_s=120)


def joins(addresses: list[str]) -> None:
    with Consumer(addresses, group=f"group-{uuid.uuid4()}", auto_offset_reset="earliest", **SLOW) as consumer:
        consumer.subscribe(["topic"])
        read(consumer, 1, patience_s=120)
        consumer.commit(timeout_s=30)


def looks_up(addresses: list[str]) -> None:
    with Consumer(addresses, group="other", **SLOW) as consumer:
        assert consumer.committed([PLACE], timeout_s=30) == {PLACE: None}


def writes(addresses: list[str]) -> None:
    with Producer(addresses, **SLOW) as producer:
        producer.send("topic", b"y")
        producer.flush(120)


def administers(addresses: list[str]) -> None:
    with Admin(addresses, default_api_timeout_ms=30_000, **SLOW) as admin:
        admin.create_topic(f"topic-{uuid.uuid4()}", partitions=1, replication_factor=1)
        assert "topic" in {one.topic for one in admin.list_topics()}
        assert admin.committed("other") == {}


@pytest.mark.proves("B-27")
@pytest.mark.parametrize("does", [reads, joins, looks_up, writes, administers])
def test_a_client_starts_beside_an_address_that_says_nothing(does: Callable[[list[str]], None]) -> None:
    with FakeBroker(topics={"topic": 1}) as broker, silent() as addresses:
        broker.produce("topic", 0, [(None, b"x")])
        for _ in range(CLIENTS):
            does([*addresses, broker.bootstrap])


@pytest.mark.proves("B-27")
def test_each_address_gets_its_turn_before_a_client_gives_up() -> None:
    with (
        FakeBroker(topics={"topic": 1}) as broker,
        silent(3) as addresses,
        Consumer([*addresses, broker.bootstrap], bootstrap_timeout_ms=4_000) as consumer,
    ):
        assert consumer.topics(timeout_s=30) == {"topic": (PLACE,)}


def test_where_all_are_silent_the_start_ends_as_it_did() -> None:
    with (
        silent(2) as addresses,
        Consumer(addresses, bootstrap_timeout_ms=800, connection_setup_timeout_ms=700) as consumer,
        pytest.raises(KohortError, match=r"no response while connecting.*reached in 0\.8 s .*tried: 2"),
    ):
        consumer.topics(timeout_s=30)


@pytest.mark.proves("B-27")
def test_a_broker_that_keeps_metadata_to_itself_is_not_waited_for() -> None:
    mute: set[int] = set()

    def keep_it(call: Call) -> Drop | None:
        mute.add(call.node)
        return Drop() if mute == {call.node} else None

    with FakeBroker(topics={"topic": 1}, nodes=2) as broker:
        broker.control("Metadata", keep_it)
        with Consumer(broker.bootstrap, request_timeout_ms=600_000) as consumer:
            assert consumer.topics(timeout_s=30) == {"topic": (PLACE,)}
        assert len(mute) == 2


def test_who_is_late_goes_behind_those_that_are_not_until_it_answers() -> None:
    one, two = Endpoint("one", 1), Endpoint("two", 1)
    endpoints = ConnectionStates((), Backoff(100, 1000), lambda: 0.5)
    endpoints.late(one)
    assert endpoints.pick([one, two], 0.0) == two
    assert endpoints.pick([one, two], 0.0, but=[two]) == one
    assert endpoints.pick([one, two], 0.0, but=[one, two]) is None
    endpoints.responded(one)
    assert endpoints.pick([one, two], 0.0) == one


def test_who_has_answered_is_asked_again() -> None:
    one, two, three = (Endpoint(name, 1) for name in ("one", "two", "three"))
    endpoints = ConnectionStates((), Backoff(100, 1000), lambda: 0.5)
    endpoints.responded(two, {3: (0, 13)})
    assert endpoints.pick([one, two, three], 0.0) == two
    endpoints.late(two)
    assert endpoints.pick([one, two, three], 0.0) == one
    endpoints.responded(two)
    assert endpoints.pick([one, two, three], 0.0) == two
    endpoints.failed(two, ConnectionFailed("reset"), 0.0)
    assert endpoints.pick([one, two, three], 9.0) == one


@pytest.mark.broker
@pytest.mark.proves("B-27", "B-33")
def test_clients_start_while_a_broker_is_frozen(cluster3: RealCluster, unique: Callable[[str], str]) -> None:
    topic = unique("topic")
    create_topic(cluster3.bootstrap, topic)
    frozen = cluster3.nodes[0]
    wait_until(lambda: all(serves(address, topic, 1) for address in cluster3.bootstrap.split(",")))
    frozen.pause()
    try:
        for _ in range(CLIENTS):
            with Consumer(cluster3.bootstrap) as consumer:
                assert topic in consumer.topics(timeout_s=30)
            with Admin(cluster3.bootstrap, default_api_timeout_ms=30_000, **SLOW) as admin:
                assert topic in {one.topic for one in admin.list_topics()}
    finally:
        frozen.resume()
