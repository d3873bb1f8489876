"""The address that is tried next, and sockets that take another's place."""

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from kohort import Admin, Consumer, Producer, TopicPartition
from kohort.admin.admin_config import AdminConfig
from kohort.admin.admin_core import AdminCore
from kohort.network import connection_states, network_client
from kohort.network.backoff import Backoff
from kohort.network.connection_states import ConnectionStates
from kohort.network.errors import ConnectionFailed
from kohort.network.network_client import Driver
from kohort.network.requests import Endpoint, ResponseReceived
from kohort.network.transport import Channel
from kohort.protocol.apis.metadata import MetadataResponse, MetadataResponseBroker
from kohort.testing import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until, read

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


def test_a_client_keeps_no_brokers_that_left_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_states, "MOST_KEYS", 3)
    core = AdminCore(AdminConfig.of(bootstrap="a:1"), chance=lambda: 0.5, started=0.0)
    for number in range(1, 10):
        core.poll(float(number), 0)
        core.endpoints.failed(A, ConnectionFailed("no"), float(number))
        core.endpoints.failed(Endpoint("gone", number), ConnectionFailed("no"), float(number))
        here = Endpoint("b", number)
        core.endpoints.responded(here, {})
        broker = MetadataResponseBroker(node_id=1, host=here.host, port=here.port)
        response = MetadataResponse(brokers=(broker,), cluster_id="c", controller_id=1, topics=())
        core.cluster._on_response(ResponseReceived(response, 12), float(number))
    assert list(core.cluster.removed) == [Endpoint("b", number) for number in (6, 7, 8)]
    assert list(core.endpoints._ranges) == [Endpoint("b", number) for number in (7, 8, 9)]
    assert list(core.endpoints._attempts) == [Endpoint("gone", 8), A, Endpoint("gone", 9)]


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


def test_a_socket_that_is_registered_is_closed_after_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forked child may have it, too. Then epoll would report it until the child ends."""
    resolve, unwatch, ended = socket.getaddrinfo, Driver._unwatch, list[socket.socket]()

    def two(host: Any, port: Any, *more: Any, **given: Any) -> list[Any]:
        (one, *_) = resolve("127.0.0.1", port, *more, **given)
        return [(*one[:4], ("127.0.0.1", 1)), one]

    def unwatched(driver: Driver[Any], channel: Channel) -> None:
        if channel.watched is not None:
            ended.append(channel.watched)
            assert channel.watched.fileno() >= 0
        unwatch(driver, channel)

    monkeypatch.setattr(socket, "getaddrinfo", two)
    monkeypatch.setattr(Driver, "_unwatch", unwatched)
    with FakeBroker(topics={"t": 1}) as fake, Consumer(fake.bootstrap.replace("127.0.0.1", "localhost")) as consumer:
        consumer.partitions_for("t")
    assert len(ended) > 1
    assert [one.fileno() for one in ended] == [-1] * len(ended)


@contextmanager
def fruitless(*, closes: bool) -> Iterator[int]:
    """A port that takes connections, and closes them or stays silent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close() -> None:
            with suppress(OSError):
                while True:
                    listener.accept()[0].close()

        if closes:
            threading.Thread(target=close, daemon=True).start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports that were called, in order."""
    ports: list[int] = []
    call = Channel._call

    def watched(channel: Channel, family: int, address: Any) -> None:
        ports.append(address[1])
        call(channel, family, address)

    monkeypatch.setattr(Channel, "_call", watched)
    return ports


@pytest.mark.proves("B-28")
@pytest.mark.parametrize("closes", [True, False])
def test_the_next_connection_calls_the_address_behind_one_that_took_it_without_a_response(
    closes: bool, called: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo
    with FakeBroker(topics={"t": 1}) as fake, fruitless(closes=closes) as first:
        port = int(fake.bootstrap.rpartition(":")[2])

        outages: list[OSError] = []

        def two(host: Any, port: Any, *more: Any, **given: Any) -> list[Any]:
            if outages:
                raise outages.pop()
            (one, *_) = resolve("127.0.0.1", port, *more, **given)
            return [(*one[:4], ("127.0.0.1", first)), one]

        fake.produce("t", 0, [(None, b"v")])
        monkeypatch.setattr(socket, "getaddrinfo", two)
        fake.advertise(1, "localhost", port)
        with Consumer(f"localhost:{port}", auto_offset_reset="earliest", connection_setup_timeout_ms=2000) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert [record.value for record in read(consumer, 1)] == [b"v"]
            assert Counter(called)[first] == 1
            outages.append(socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"))
            ended = consumer.metrics().connection_close_total
            channels = consumer._session.driver._channels
            for channel in list(channels.values()):
                assert channel.sock is not None
                channel.sock.shutdown(socket.SHUT_RDWR)
            poll_until(consumer, lambda: consumer.metrics().connection_close_total > ended)
            fake.produce("t", 0, [(None, b"w")])
            assert [record.value for record in read(consumer, 1)] == [b"w"]
            assert Counter(called)[first] == 1, "the address that responded is called again"
            fake.stop_node(1)
            poll_until(consumer, lambda: Counter(called)[first] > 1)


@pytest.mark.proves("B-28")
def test_addresses_that_come_after_the_end_of_their_connection_leave_the_driver_at_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve, hosts, may_end = socket.getaddrinfo, Counter[Any](), threading.Event()
    late: list[threading.Thread] = []

    def slow(host: Any, *more: Any, **given: Any) -> list[Any]:
        hosts[host] += 1
        if hosts[host] == 1:
            late.append(threading.current_thread())
            may_end.wait(PATIENCE_S)
        return resolve("127.0.0.1", *more, **given)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"v")])
        port = fake.bootstrap.rpartition(":")[2]
        with Consumer(f"localhost:{port}", auto_offset_reset="earliest", connection_setup_timeout_ms=100) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert [record.value for record in read(consumer, 1)] == [b"v"]
            may_end.set()
            late[0].join(PATIENCE_S)
            driver = consumer._session.driver
            turns, turn = Counter[None](), driver.turn

            def counted(ready: Any, *, due: bool) -> float | None:
                turns[None] += 1
                return turn(ready, due=due)

            monkeypatch.setattr(driver, "turn", counted)
            consumer.poll(0.3)
            assert turns[None] < 50  # a few


@pytest.mark.proves("B-28")
def test_the_addresses_of_a_slow_resolver_are_those_of_the_next_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name is resolved only after the connection that it was for has ended by its time-out."""
    resolve, end, ended = socket.getaddrinfo, Driver._end, threading.Semaphore(0)

    def ending(driver: Any, *of: Any, **more: Any) -> Any:
        outcomes = end(driver, *of, **more)
        ended.release()
        return outcomes

    def slow(_host: Any, *more: Any, **given: Any) -> list[Any]:
        assert ended.acquire(timeout=PATIENCE_S)
        return resolve("127.0.0.1", *more, **given)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    monkeypatch.setattr(Driver, "_end", ending)
    with FakeBroker(topics={"t": 1}) as fake:
        port = fake.bootstrap.rpartition(":")[2]
        settings: dict[str, Any] = {"connection_setup_timeout_ms": 100, "max_block_ms": 20_000}
        with Producer(f"localhost:{port}", **settings) as producer:
            assert producer.send("t", b"v").result(PATIENCE_S).offset == 0
        ended.release(100)


def test_addresses_that_came_long_ago_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, resolved = socket.getaddrinfo, threading.Event()

    def watched(_host: Any, *more: Any, **given: Any) -> list[Any]:
        resolved.set()
        return resolve("127.0.0.1", *more, **given)

    monkeypatch.setattr(socket, "getaddrinfo", watched)
    with FakeBroker(topics={"t": 1}) as fake:
        port = int(fake.bootstrap.rpartition(":")[2])
        fake.advertise(1, "localhost", port)
        with Producer(fake.bootstrap) as producer:
            driver = producer._driver
            at = driver.now() - network_client.LATE_ADDRESSES_S
            driver._found_late[Endpoint("localhost", port)] = (at, [(socket.AF_INET, ("127.0.0.1", 1))])
            assert producer.send("t", b"v").result(PATIENCE_S).offset == 0
        assert resolved.is_set()


@pytest.mark.proves("B-28")
def test_a_resolver_that_does_not_respond_is_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def silent(*_of: Any, **_given: Any) -> list[Any]:
        over.wait(PATIENCE_S)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    with Admin("localhost:9092", connection_setup_timeout_ms=100, bootstrap_timeout_ms=200) as admin:
        with pytest.raises(ConnectionFailed, match="the host's name was not resolved in time") as raised:
            admin.list_topics()
        assert raised.value.place == {"host": "localhost", "port": 9092}
        over.set()
