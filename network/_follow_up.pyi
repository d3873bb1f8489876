import socket
from collections import deque
from typing import Any

from kohort.network._guard import Guard
from kohort.network.requests import PendingRequest, Stage
from kohort.protocol.wire import WireConnection

class ConnectionFields:
    """Of a `BrokerConnection`."""

    stage: Stage
    wire: WireConnection
    tape: Any
    guard: Guard | None
    max_frame_bytes: int
    _waiting: deque[tuple[PendingRequest, float]]
    _held: deque[PendingRequest]
    _in_flight: dict[int, Any]

class ReaderFields:
    """Of a `FrameReader`."""

    scratch: bytearray
    fill: int
    large: memoryview | None

class ChannelFields:
    """Of a `Channel`."""

    sock: socket.socket | None
    to_write: deque[memoryview]
    failure: OSError | None
    defect: BaseException | None

class FollowUp:
    """A `PendingRequest.follow_up` of compiled code."""

    def __call__(self, frame: memoryview, version: int, now: float) -> bytes | None: ...

def follow_up(connection: ConnectionFields, frame: memoryview, now: float) -> bytes | None: ...
