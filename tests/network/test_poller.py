"""Connections in their steady state: served without a turn, and left to a turn with nothing lost."""

import errno
import socket
import ssl
from collections.abc import Iterator
from math import inf
from selectors import EVENT_READ
from typing import Any

import pytest

from kohort.network.transport import Ended
from tests.network.steady_peer import Peer

LARGE_BYTES = 8_000_000  # more than a socket takes at once


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    made: list[Peer] = []
    yield made
    for peer in made:
        peer.close()


@pytest.mark.parametrize("later", [True, False])
def test_a_response_in_pieces_is_followed_up_without_a_turn(later: bool, peers: list[Peer]) -> None:
    peer = Peer(b"first", b"second")
    peers.append(peer)
    if later:
        peer.driver.on_update = None
    for body in (b"first", b"second"):
        for byte in peer.respond():
            peer.theirs.send(bytes((byte,)))
            assert peer.wait() == []
        assert peer.theirs.recv(4096).endswith(body)
    assert (peer.offered, peer.notices, peer.driver.bell.rings) == (2, 0, 0)
    peer.core.has_updates = True
    peer.bodies = [b"third"]
    peer.theirs.send(peer.respond())
    assert peer.wait() == []
    assert (peer.notices, peer.driver.bell.rings) == (not later, 1)


def test_a_response_that_is_not_followed_up_is_found_by_the_turn(peers: list[Peer]) -> None:
    peer = Peer(None, None)
    peers.append(peer)
    peer.theirs.send(peer.respond())
    assert peer.wait() == [peer.owner]
    assert len(peer.turn()) == 1


@pytest.mark.parametrize("late", ["an error of brokers", "a driver that stops", "bytes to write"])
def test_a_connection_with_news_is_left_to_the_turn(late: str, peers: list[Peer]) -> None:
    peer = Peer(b"never")
    peers.append(peer)
    if late == "an error of brokers":
        peer.core.endpoints.last_error = OSError()
    elif late == "a driver that stops":
        peer.driver.stopping = True
    else:
        peer.channel.to_write.append(memoryview(b"rest"))
    peer.theirs.send(peer.respond())
    assert peer.wait() == [peer.owner]
    assert peer.offered == 0


@pytest.mark.parametrize("later", [True, False])
def test_what_a_full_socket_does_not_take_is_written_by_turns(later: bool, peers: list[Peer]) -> None:
    peer = Peer(bytes(LARGE_BYTES))
    peers.append(peer)
    if later:
        peer.driver.on_update = None
    peer.theirs.send(peer.respond())
    assert peer.wait() == [peer.owner]
    received = 0
    while received < LARGE_BYTES:
        peer.channel.write()
        received += len(peer.theirs.recv(1 << 20))
    assert not peer.channel.connection.outgoing()
    peer.theirs.setblocking(False)
    with pytest.raises(BlockingIOError):
        peer.theirs.recv(1 << 20)
    assert received - LARGE_BYTES < 100  # the header, and nothing twice


def test_many_connections_at_once_are_served_or_left_to_turns(peers: list[Peer]) -> None:
    peers += [Peer(b"body") for _ in range(20)]
    poller = peers[0].poller
    for peer in peers:
        peer.driver.on_update = None
    for peer in peers[1:]:
        peer.poller.unregister(peer.ours)
        poller.register(peer.ours, EVENT_READ, peer.owner)
    for peer in peers:
        peer.theirs.send(peer.respond())
    left = peers[0].wait(5.0)
    served = [peer for peer in peers if peer.owner not in left]
    assert len(served) == 16  # of the requests that one call sends
    for peer in served:
        assert peer.theirs.recv(4096).endswith(b"body")
    for peer in peers:
        if peer.owner in left:
            assert peer.turn() == []
            peer.channel.write()
            assert peer.theirs.recv(4096).endswith(b"body")


def test_an_error_of_the_socket_ends_the_connection_in_the_turn(peers: list[Peer]) -> None:
    peer = Peer()
    peers.append(peer)
    left, right = socket.create_server(("127.0.0.1", 0)), socket.socket()
    right.connect(left.getsockname())
    far, _address = left.accept()
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    far.close()  # with a reset
    left.close()
    peer.poller.unregister(peer.ours)
    peer.ours.close()
    right.setblocking(False)
    peer.ours = peer.channel.sock = right
    peer.channel.responded = True
    peer.poller.register(right, EVENT_READ, peer.owner)
    assert peer.wait(5.0) == [peer.owner]
    with pytest.raises(Ended, match="Connection reset by peer"):
        peer.turn()


class BrokenSocket:
    """A socket of TLS, whose peer resets it between the poller's wait and its read."""

    def __init__(self, sock: socket.socket) -> None:
        self.fileno = sock.fileno

    def recv_into(self, target: memoryview) -> int:
        raise ConnectionResetError(errno.ECONNRESET, "reset")


def test_an_error_of_a_read_outside_of_a_turn_is_that_of_the_turn(peers: list[Peer]) -> None:
    peer = Peer()
    peers.append(peer)
    peer.poller.unregister(peer.ours)
    broken: Any = BrokenSocket(peer.ours)
    peer.channel.sock, peer.channel.tls = broken, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    peer.poller.register(broken, EVENT_READ, peer.owner)
    peer.channel.responded = True
    peer.theirs.send(peer.respond())
    assert peer.wait() == [peer.owner]
    peer.channel.sock = peer.ours
    with pytest.raises(Ended, match="Connection reset by peer"):
        peer.turn()


@pytest.mark.parametrize("place", ["the request that follows", "the notice of an update"])
def test_a_defect_is_that_of_the_turn_and_other_drivers_of_the_thread_go_on(place: str, peers: list[Peer]) -> None:
    peer = Peer() if place == "the request that follows" else Peer(b"body")
    peers.append(peer)
    peer.core.has_updates = True
    peer.driver.on_update = [].pop
    peer.theirs.send(peer.respond())
    assert peer.wait() == [peer.owner]
    with pytest.raises(IndexError):
        peer.turn()


def test_a_wait_ends_in_time_or_by_a_ring(peers: list[Peer]) -> None:
    peer = Peer()
    peers.append(peer)
    assert peer.wait(0.01) == []
    peer.rung.append(peer.driver)
    assert peer.poller.wait(inf) == []
