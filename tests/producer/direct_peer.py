"""A connection on which records are sent alone, and the broker's end of it."""

import contextlib
import socket
from collections import deque
from selectors import EVENT_READ
from typing import Any

from kohort.network._poller import IdleConnection, Lease, Poller
from kohort.network.broker_connection import BrokerConnection
from kohort.network.frame_reader import LENGTH_BYTES, FrameReader
from kohort.network.requests import ConnectionPurpose, Endpoint, PendingRequest
from kohort.network.transport import Channel
from kohort.protocol.catalogue import API
from kohort.protocol.codec import Message
from kohort.protocol.framing import RequestHeader, request_header_version
from tests.network.steady_peer import PeerDriver

PRODUCE = API["Produce"]


class DirectPeer:
    """A ready connection without a request in flight, in a version of Produce. `rung`: the drivers that get a turn."""

    def __init__(self, endpoint: Endpoint, core: Any, version: int) -> None:
        self.version = version
        self.ours, self.theirs = socket.socketpair()
        self.bell_in, self.bell_out = socket.socketpair()
        for one in (self.ours, self.theirs):
            one.setblocking(False)
        self.rung: deque[object] = deque()
        self.poller = Poller(self.rung, self.bell_in)
        self.driver = PeerDriver(core, lambda: None)
        self.lease = self.driver.lease = Lease(self.driver, self.poller, RuntimeError)
        self.connection = BrokerConnection(
            endpoint, "me", 1 << 20, setup_timeout_s=9.0, opened_at=0.0, ranges={PRODUCE.key: (version, version)}
        )
        self.channel = Channel(ConnectionPurpose.DATA, self.connection, FrameReader(1 << 20), None)
        self.channel.sock = self.ours
        self.channel.due_at = 0.0  # the driver looks after it at once
        self.connection.opened(0.0)
        self.connection.served = True
        self.connection.wire.add_header(PRODUCE.key, version)
        self.poller.register(self.ours, EVENT_READ, (self.driver, self.channel))

    def idle_connection(self) -> IdleConnection | None:
        return self.poller.idle_connection(self.ours, PRODUCE.key, self.version)

    def received(self) -> bytes:
        """The bytes that have come at the broker's end."""
        with contextlib.suppress(BlockingIOError):
            return self.theirs.recv(1 << 20)
        return b""

    def request(self) -> PendingRequest | None:
        """The request that was sent since the last call, with what the broker reads of it."""
        data = self.received()
        if not data:
            return None
        version = request_header_version(PRODUCE.request, self.version)
        header, at = Message.of(RequestHeader).parse_from(data, LENGTH_BYTES, version)
        value, end = PRODUCE.request.parse_from(data, at, self.version)
        assert end == len(data) == LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "big")
        ((correlation_id, sent),) = self.connection._in_flight.items()
        assert [one.correlation_id for one in self.connection.wire.open] == [header.correlation_id] == [correlation_id]
        assert (header.request_api_key, header.request_api_version) == (PRODUCE.key, sent.version)
        request: PendingRequest = sent.request
        return request._replace(request=lambda _version: value)

    def responded(self) -> None:
        """The request in flight has its response."""
        self.connection._in_flight.clear()
        self.connection.wire.open.clear()

    def close(self) -> None:
        self.channel.sock = None
        self.poller.close()
        for one in (self.ours, self.theirs, self.bell_in, self.bell_out):
            one.close()
