"""A connection whose requests follow from responses, and records for consumers that serve such a one themselves."""

import contextlib
import gc
import os
import random
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from selectors import EVENT_READ
from types import FrameType, SimpleNamespace
from typing import Any

from kohort.fastpath import RecordColumns
from kohort.network._guard import Bell
from kohort.network._poller import DriverFields, Lease, Poller
from kohort.network.broker_connection import BrokerConnection
from kohort.network.frame_reader import FrameReader
from kohort.network.requests import ConnectionPurpose, Endpoint, PendingRequest, RequestResult
from kohort.network.transport import Channel
from kohort.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.protocol.catalogue import API
from kohort.protocol.framing import frame
from kohort.testing import FakeBroker

VERSION = 3
STEADY = 3
"""The number of steady responses after which a socket is lent."""


class PeerDriver(DriverFields):
    """A driver with the attributes that a poller reads, and no thread."""

    def __init__(self, core: SimpleNamespace, on_update: Callable[[], None]) -> None:
        self.core, self.bell = core, Bell()
        self.on_update: Callable[[], None] | None = on_update


class Peer:
    """A channel whose request follows up with each of `bodies`, and the other end of its socket."""

    def __init__(self, *bodies: bytes | None) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.bodies = list(bodies)
        self.offered = self.next_id = self.notices = 0
        self.outcomes: list[RequestResult] = []
        self.core = SimpleNamespace(has_updates=False, endpoints=SimpleNamespace(last_error=None))
        self.driver = PeerDriver(self.core, self.notice)
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
        connection.served = True  # by an earlier response
        self.request()
        self.owner = (self.driver, self.channel)
        self.poller.register(self.ours, EVENT_READ, self.owner)

    def request(self) -> None:
        """Send a request, as a turn does."""
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        self.channel.connection.send(
            PendingRequest(
                "Heartbeat", request, lambda outcome, _now: self.outcomes.append(outcome), 5.0, follow_up=self.follow_up
            ),
            0.0,
        )
        self.channel.write()
        self.theirs.recv(4096)

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

    def lend(self) -> None:
        """Send responses with records until the socket is lent."""
        self.core.has_updates = True
        for _ in range(STEADY):
            assert self.lease.size == 0
            self.theirs.send(self.respond())
            assert self.wait() == []
        assert self.lease.size == 1
        self.theirs.recv(4096)

    def turn(self) -> list[RequestResult]:
        return [outcome for _request, outcome in self.channel.on_event(EVENT_READ, 0.0)]

    def close(self) -> None:
        self.poller.close()
        for one in (self.ours, self.theirs, self.bell_in, self.bell_out):
            one.close()


class Feed(threading.Thread):
    """Writes large and small records to the two partitions of a topic `t`, at random times.

    `produced` and `read`: the number of records by partition.
    """

    def __init__(self, broker: FakeBroker, seed: int, records: int) -> None:
        super().__init__()
        self._broker, self._chance, self._records = broker, random.Random(seed), records
        self.produced, self.read = [0, 0], [0, 0]

    def run(self) -> None:
        while sum(self.produced) < self._records:
            number = self._chance.randrange(2)
            size = 9_000 if self._chance.random() < 0.02 else 10
            self._broker.produce("t", number, [(b"%d" % self.produced[number], bytes(size))])
            self.produced[number] += 1
            time.sleep(self._chance.choice([0.0, 0.001, 0.004]))  # so that polls find many records, one, or none

    def take(self, slices: Iterable[RecordColumns]) -> None:
        """Count records, each of which is the next of its partition."""
        for columns in slices:
            for record in columns:
                assert record.key == b"%d" % self.read[record.partition]
                self.read[record.partition] += 1

    @property
    def unread(self) -> bool:
        return sum(self.read) < self._records


def descriptors(kind: str) -> int:
    """The number of open descriptors of a kind, such as eventfd, after a collection of unclosed clients."""
    gc.collect()
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # another thread has closed it
            count += os.readlink(f"/proc/self/fd/{name}") == f"anon_inode:[{kind}]"
    return count


def python_calls(work: Callable[[], object]) -> list[str]:
    """The names of the Python functions that `work`, which is one, calls on this thread."""
    called: list[str] = []

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_qualname)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return called[1:]
