"""Calls of sockets that keep the GIL: results and errors are those of the socket's own methods."""

import socket
import sys
from collections.abc import Iterator

import pytest

from kohort.network._poller import recv_into, send

LARGE_BYTES = 1 << 20

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has the socket's own methods only")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def test_bytes_go_both_ways(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    assert send(ours, memoryview(b"a request")[2:]) == 7
    assert theirs.recv(100) == b"request"
    theirs.send(b"response")
    target = bytearray(5)
    assert recv_into(ours, memoryview(target)) == 5
    assert bytes(target) == b"respo"
    assert recv_into(ours, target) == 3
    theirs.close()
    assert recv_into(ours, target) == 0


def fill(ours: socket.socket) -> None:
    while True:
        send(ours, bytes(60_000))


def test_a_socket_that_would_block_says_so(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _theirs = pair
    with pytest.raises(BlockingIOError):
        recv_into(ours, bytearray(1))
    with pytest.raises(BlockingIOError):
        fill(ours)


def test_a_peer_that_is_gone_is_an_error_and_no_signal(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(BrokenPipeError):
        send(ours, b"request")
    ours.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        send(ours, b"request")
    with pytest.raises(OSError, match="Bad file descriptor"):
        recv_into(ours, bytearray(1))


class OwnMethods(socket.socket):
    """A socket with methods of its own, as one of TLS."""

    def send(self, data: object, flags: int = 0) -> int:
        return 42

    def recv_into(self, buffer: object, nbytes: int = 0, flags: int = 0) -> int:
        return 43


def test_the_methods_of_other_sockets_are_called(pair: tuple[socket.socket, socket.socket]) -> None:
    with OwnMethods() as other:
        assert (send(other, b"x"), recv_into(other, bytearray(1))) == (42, 43)


def test_large_data_is_sent_as_far_as_the_socket_takes_it(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    sent = send(ours, bytes(LARGE_BYTES))
    assert 0 < sent < LARGE_BYTES
    received = 0
    while received < sent:
        received += len(theirs.recv(sent))
