"""A connection whose requests follow from responses, with a poller and the other end of its socket."""

import socket
import time
from collections import deque
from selectors import EVENT_READ
from types import SimpleNamespace

from kohort.network._guard import Bell
from kohort.network._poller import Lease, Poller
from kohort.network.broker_connection import BrokerConnection
from kohort.network.frame_reader import FrameReader
from kohort.network.requests import ConnectionPurpose, Endpoint, PendingRequest, RequestResult
from kohort.network.transport import Channel
from kohort.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.protocol.catalogue import API
from kohort.protocol.framing import frame

VERSION = 3


class Peer:
    """A channel whose request follows up with each of `bodies`, and the other end of its socket."""

    def __init__(self, *bodies: bytes | None) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.bodies = list(bodies)
        self.offered = self.next_id = self.notices = 0
        self.outcomes: list[RequestResult] = []
        self.core = SimpleNamespace(has_updates=False, endpoints=SimpleNamespace(last_error=None))
        self.driver = SimpleNamespace(core=self.core, stopping=False, bell=Bell(), on_update=self.notice)
        self.rung: deque[object] = deque()
        self.bell_in, self.bell_out = socket.socketpair()
        self.poller = Poller(self.rung, self.bell_in)
        self.driver.lease = self.lease = Lease(self.driver, self.poller, RuntimeError)
        connection = BrokerConnection(
            Endpoint("b", 1), "me", 1 << 20, setup_timeout_s=9.0, opened_at=0.0, ranges={12: (VERSION, VERSION)}
        )
        self.channel = Channel(ConnectionPurpose.DATA, connection, FrameReader(1 << 20), None)
        self.channel.sock = self.ours
        connection.opened(0.0)
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        connection.send(
            PendingRequest(
                "Heartbeat", request, lambda outcome, _now: self.outcomes.append(outcome), 5.0, follow_up=self.follow_up
            ),
            0.0,
        )
        self.channel.write()
        self.theirs.recv(4096)
        self.owner = (self.driver, self.channel)
        self.poller.register(self.ours, EVENT_READ, self.owner)

    def notice(self) -> None:
        self.notices += 1

    def follow_up(self, _frame: memoryview, _version: int, _now: float) -> bytes | None:
        self.offered += 1
        return self.bodies.pop(0)

    def respond(self) -> bytes:
        """The response to the request in flight."""
        body = API["Heartbeat"].response.build(HeartbeatResponse(error_code=0), VERSION)
        self.next_id += 1
        return frame((self.next_id - 1).to_bytes(4, "big"), body)

    def wait(self, timeout_s: float = 0.0) -> list[object]:
        return [owner for owner, _mask in self.poller.wait(time.monotonic() + timeout_s)]

    def turn(self) -> list[RequestResult]:
        return [outcome for _request, outcome in self.channel.on_event(EVENT_READ, 0.0)]

    def close(self) -> None:
        self.poller.close()
        for one in (self.ours, self.theirs, self.bell_in, self.bell_out):
            one.close()
