"""The proxy applies exactly the given faults, to exactly the given frames."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.testing.fault_proxy import FaultProxy, ProxiedCluster, _pieces
from kohort.testing.faults import (
    TO_BROKER,
    TO_CLIENT,
    Bandwidth,
    BlackHole,
    Direction,
    HalfClose,
    Latency,
    Limit,
    Reset,
    Slice,
)
from kohort.testing.frame_tracker import FrameTracker, Piece
from kohort.testing.plain_wire import send, string
from kohort.testing.topics import create_topic
from tests.support.broker_selection import wanted_version

METADATA, HEARTBEAT = 3, 12


class EchoBroker:
    """Responds to every request frame with its correlation id and its own body; keeps all of them."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen: list[tuple[int, int]] = []
        self.ended = threading.Semaphore(0)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._respond, args=(connection,), daemon=True))
            self._threads[-1].start()

    def _respond(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        try:
            while len(size := stream.read(4)) == 4:
                frame = stream.read(struct.unpack(">i", size)[0])
                api_key, _, correlation_id = struct.unpack_from(">hhi", frame)
                self.seen.append((api_key, correlation_id))
                connection.sendall(struct.pack(">ii", len(frame) - 4, correlation_id) + frame[8:])
        except OSError:
            pass
        finally:
            connection.close()
            self.ended.release()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


class Client:
    """A raw connection that writes request frames and reads whole responses."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)

    def send(self, api_key: int, correlation_id: int, body: bytes = b"body") -> None:
        frame = struct.pack(">hhi", api_key, 0, correlation_id) + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, fewer at the stream's end."""
        got = b""
        while len(got) < size and (part := self.socket.recv(size - len(got))):
            got += part
        return got

    def respond(self) -> tuple[int, bytes]:
        size, correlation_id = struct.unpack(">ii", self.read(8))
        return correlation_id, self.read(size - 4)

    def silent(self) -> bool:
        """Nothing arrives for a while."""
        self.socket.settimeout(0.2)
        try:
            return bool(self.socket.recv(1)) and False
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(20)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


@pytest.fixture
def upstream() -> Iterator[EchoBroker]:
    broker = EchoBroker()
    yield broker
    broker.close()


@pytest.fixture
def proxy(upstream: EchoBroker) -> Iterator[FaultProxy]:
    with FaultProxy(upstream.address) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[Client]:
    with Client(proxy.address) as client:
        yield client


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.005)


def test_without_faults_every_byte_passes_unchanged(client: Client, upstream: EchoBroker, proxy: FaultProxy) -> None:
    big = bytes(range(256)) * 4000
    for number, body in enumerate((b"", b"x", big)):
        client.send(METADATA, number, body)
        assert client.respond() == (number, body)
    assert upstream.seen == [(METADATA, 0), (METADATA, 1), (METADATA, 2)]
    assert [(frame.direction, frame.api_key) for frame in proxy.frames][:2] == [
        (Direction.TO_BROKER, METADATA),
        (Direction.TO_CLIENT, METADATA),
    ]


def test_latency_delays_each_way_and_keeps_the_order(client: Client, proxy: FaultProxy) -> None:
    proxy.add(Latency(60, jitter_ms=30))
    began = time.monotonic()
    for number in range(5):
        client.send(METADATA, number)
    assert [client.respond()[0] for _ in range(5)] == [0, 1, 2, 3, 4]
    assert time.monotonic() - began >= 0.12


def test_bandwidth_holds_bytes_back(client: Client, proxy: FaultProxy) -> None:
    proxy.add(Bandwidth(100_000), direction=TO_CLIENT)
    began = time.monotonic()
    client.send(METADATA, 1, bytes(30_000))
    assert client.respond() == (1, bytes(30_000))
    assert time.monotonic() - began >= 0.25


def test_slices_arrive_whole_in_the_end(client: Client, proxy: FaultProxy) -> None:
    proxy.add(Slice(max_bytes=1, pause_ms=1))
    began = time.monotonic()
    client.send(METADATA, 1, b"0123456789")
    assert client.respond() == (1, b"0123456789")
    assert time.monotonic() - began >= 0.04  # 22 bytes there and 18 back, a millisecond each


@pytest.mark.parametrize(
    "made",
    [
        lambda: Bandwidth(0),
        lambda: Bandwidth(-1),
        lambda: Bandwidth(float("nan")),
        lambda: Slice(0),
        lambda: Slice(-1),
    ],
)
def test_a_fault_that_would_not_do_what_it_says_is_refused(made: Callable[[], object]) -> None:
    """No bandwidth let everything through, and pieces without a byte dropped it all."""
    with pytest.raises(ValueError, match="bytes"):
        made()


def test_cutting_into_pieces_is_exact() -> None:
    assert _pieces(10, ()) == [(10, None)]
    assert _pieces(0, (Slice(3),)) == []
    assert _pieces(10, (Slice(3),)) == [(3, 0.0), (3, 0.0), (3, 0.0), (1, 0.0)]
    assert _pieces(3, (Bandwidth(100),)) == [(2, 0.02), (1, 0.01)]
    assert _pieces(2, (Slice(1, 5), Bandwidth(1000))) == [(1, 0.005), (1, 0.005)]


def test_reset_towards_the_broker_means_it_never_saw_the_request(
    client: Client, upstream: EchoBroker, proxy: FaultProxy
) -> None:
    laid = proxy.add(Reset(), direction=TO_BROKER, api="Heartbeat")
    client.send(METADATA, 1)
    assert client.respond()[0] == 1
    client.send(HEARTBEAT, 2)
    with pytest.raises(ConnectionResetError):
        client.read(1)
    assert upstream.ended.acquire(timeout=120)
    assert upstream.seen == [(METADATA, 1)]
    assert laid.hits == 1


def test_reset_towards_the_client_loses_the_response_only(
    client: Client, upstream: EchoBroker, proxy: FaultProxy
) -> None:
    proxy.add(Reset(), direction=TO_CLIENT, api=HEARTBEAT)
    client.send(HEARTBEAT, 2)
    with pytest.raises(ConnectionResetError):
        client.read(1)
    assert upstream.seen == [(HEARTBEAT, 2)]


@pytest.mark.parametrize("after_bytes", [1, 7, 8, 11])
def test_limit_lets_so_many_bytes_of_the_response_through_and_closes(
    client: Client, proxy: FaultProxy, after_bytes: int
) -> None:
    proxy.add(Limit(after_bytes), direction=TO_CLIENT)
    client.send(METADATA, 3)
    assert client.read(100) == struct.pack(">ii", 8, 3)[:after_bytes] + b"body"[: max(after_bytes - 8, 0)]


def test_half_close_ends_one_direction_and_leaves_the_other(
    client: Client, upstream: EchoBroker, proxy: FaultProxy
) -> None:
    proxy.add(HalfClose(), direction=TO_CLIENT, times=1)
    client.send(METADATA, 1)
    assert client.read(1) == b""
    client.send(METADATA, 2)
    wait_until(lambda: len(upstream.seen) == 2)
    assert proxy.open_connections == 1


def test_black_hole_one_way_and_back(client: Client, upstream: EchoBroker, proxy: FaultProxy) -> None:
    hole = proxy.add(BlackHole(), direction=TO_CLIENT)
    client.send(METADATA, 1)
    assert client.silent()
    assert upstream.seen == [(METADATA, 1)]
    hole.remove()
    client.send(METADATA, 2)
    assert client.respond()[0] == 2


def test_fault_with_a_count_wears_off(client: Client, proxy: FaultProxy) -> None:
    laid = proxy.add(BlackHole(), direction=TO_BROKER, api="Metadata", times=2)
    for number in range(4):
        client.send(METADATA, number)
    assert [client.respond()[0], client.respond()[0]] == [2, 3]
    assert laid.hits == 2


def test_refused_reset_and_accepted_again(client: Client, upstream: EchoBroker, proxy: FaultProxy) -> None:
    client.send(METADATA, 1)
    assert client.respond()[0] == 1
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        Client(proxy.address)
    client.send(METADATA, 2)
    assert client.respond()[0] == 2
    proxy.reset_connections()
    with pytest.raises(ConnectionResetError):
        client.read(1)
    proxy.accept()
    with Client(proxy.address) as again:
        again.send(METADATA, 3)
        assert again.respond()[0] == 3


def test_upstream_that_is_down_resets_the_client() -> None:
    with (
        FaultProxy("127.0.0.1:1") as proxy,
        pytest.raises(ConnectionResetError),  # as early as in the client's connect
        Client(proxy.address) as client,
    ):
        client.read(1)


def test_end_of_either_side_reaches_the_other(upstream: EchoBroker, proxy: FaultProxy) -> None:
    with Client(proxy.address) as client:
        client.send(METADATA, 1)
        client.respond()
    assert upstream.ended.acquire(timeout=120)
    wait_until(lambda: proxy.open_connections == 0)


def test_bytes_that_are_no_kafka_pass_and_belong_to_no_api(upstream: EchoBroker, proxy: FaultProxy) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    proxy.upstream = f"127.0.0.1:{listener.getsockname()[1]}"
    proxy.add(Reset(), api="Metadata")
    hello = bytes([0x16, 0x03, 0x01, 0x02, 0x00]) + bytes(200)
    with Client(proxy.address) as client:
        client.socket.sendall(hello)
        taken, _ = listener.accept()
        assert taken.makefile("rb").read(len(hello)) == hello
        taken.close()
    listener.close()


def test_closing_twice_is_harmless(upstream: EchoBroker) -> None:
    proxy = FaultProxy(upstream.address)
    proxy.close()
    proxy.close()


requests = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 2**31 - 1), st.binary(max_size=60)), max_size=8)


@given(requests, st.lists(st.integers(1, 40), min_size=1))
def test_tracker_names_every_frame_however_the_bytes_are_cut(
    frames: list[tuple[int, int, bytes]], cuts: list[int]
) -> None:
    pending: dict[int, int] = {}
    stream = b"".join(
        struct.pack(">ihhi", 8 + len(body), key, 0, correlation_id) + body for key, correlation_id, body in frames
    )
    tracker = FrameTracker(Direction.TO_BROKER, pending)
    pieces: list[Piece] = []
    at = number = 0
    while at < len(stream):
        size = cuts[number % len(cuts)]
        pieces += tracker.feed(stream[at : at + size])
        at += size
        number += 1
    assert b"".join(piece.data for piece in pieces) + tracker.rest() == stream
    assert [piece.api_key for piece in pieces if piece.first] == [key for key, _, _ in frames]
    assert pending == {correlation_id: key for key, correlation_id, _ in frames}


@pytest.mark.broker
def test_real_cluster_sends_clients_back_through_the_proxies() -> None:
    with ProxiedCluster(1, version=wanted_version()) as proxied:
        create_topic(proxied.bootstrap, "through", partitions=2)
        response = send(proxied.bootstrap, METADATA, 1, struct.pack(">i", 1) + string("through"), timeout_s=10)
        assert string("127.0.0.1") + struct.pack(">i", proxied.proxies[0].port) in response
        proxied.proxies[0].add(Reset(), direction=TO_CLIENT, api="Metadata", times=1)
        with pytest.raises(ConnectionResetError):
            send(proxied.bootstrap, METADATA, 1, struct.pack(">i", 0), timeout_s=10)
        assert send(proxied.bootstrap, METADATA, 1, struct.pack(">i", 0), timeout_s=10)


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_what_is_behind_it_may_have_an_address_of_ipv6() -> None:
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as server,
        FaultProxy(f"[::1]:{server.getsockname()[1]}") as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=20),
    ):
        server.settimeout(20)
        server.accept()[0].close()


def test_a_proxy_on_a_used_port_leaves_no_thread() -> None:
    before = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match="address already in use"):
        FaultProxy(port=other.getsockname()[1])
    assert threading.active_count() == before


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_bandwidth_is_a_finite_rate(rate: float) -> None:
    with pytest.raises(ValueError, match="is no rate"):
        Bandwidth(rate)
