"""One socket's bytes, read as the driver reads them: when the selector says so, and not without it."""

import gc
import ssl
import weakref
from selectors import EVENT_READ
from typing import Any

import pytest

from kohort.common import WireError
from kohort.network.broker_connection import BrokerConnection
from kohort.network.frame_reader import SCRATCH_BYTES, FrameReader
from kohort.network.requests import ConnectionPurpose, Endpoint, PendingRequest
from kohort.network.transport import READS_AT_ONCE, Channel, Ended
from kohort.protocol.apis.describe_groups import DescribeGroupsRequest
from kohort.protocol.catalogue import API
from kohort.protocol.framing import frame

RECORD_BYTES = 16 * 1024


class TlsSocket:
    """A socket that behaves as Python's: a read ends at a record's end at the latest. The rest of a record that it
    has read does not make a selector report it as readable."""

    def __init__(self, records: list[bytes]) -> None:
        self.records = records
        self.rest = b""

    do_handshake = None

    @property
    def readable(self) -> bool:
        return bool(self.records)

    def pending(self) -> int:
        return len(self.rest)

    def recv_into(self, target: memoryview) -> int:
        if not self.rest and not self.records:
            raise ssl.SSLWantReadError
        self.rest = self.rest or self.records.pop(0)
        count = min(len(target), len(self.rest))
        target[:count] = self.rest[:count]
        self.rest = self.rest[count:]
        return count

    def send(self, data: memoryview) -> int:
        return len(data)


def test_what_a_tls_record_still_holds_after_many_small_ones_is_read_with_it() -> None:
    """No more bytes will come: the broker has sent all its responses."""
    requests = [
        PendingRequest("DescribeGroups", DescribeGroupsRequest(groups=(name,)), lambda *_: None, 30.0) for name in "ab"
    ]
    connection = BrokerConnection(
        Endpoint("broker", 9092), "me", 1 << 20, setup_timeout_s=1.0, opened_at=0.0, ranges={15: (0, 0)}
    )
    channel = Channel(
        ConnectionPurpose.CONTROL, connection, FrameReader(1 << 20), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    connection.opened(0.0)
    for pending in requests:
        connection.send(pending, 0.0)

    def respond(number: int, padding: int) -> bytes:
        group: dict[str, Any] = {"group_id": "g" * padding}
        return frame(number.to_bytes(4, "big"), API["DescribeGroups"].response.build({"groups": [group]}, 0))

    first, second = respond(0, 2 * READS_AT_ONCE), respond(1, SCRATCH_BYTES)
    small = [first[at : at + 1] for at in range(READS_AT_ONCE - 1)]
    last = first[len(small) :] + second
    assert len(last) < RECORD_BYTES
    sock = TlsSocket([*small, last])
    channel.sock = sock  # type: ignore[assignment]
    channel.write()
    responded = []
    while sock.readable:
        responded += [pending for pending, _outcome in channel.on_event(EVENT_READ, 0.0)]
    assert responded == requests


def test_an_error_of_a_response_does_not_keep_its_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a caller, for as long as that takes, and a frame has up to `max_frame_bytes`."""
    frames = []
    received = BrokerConnection.received

    def watched(self: BrokerConnection, frame: memoryview, now: float) -> Any:
        frames.append(weakref.ref(frame))
        return received(self, frame, now)

    monkeypatch.setattr(BrokerConnection, "received", watched)
    connection = BrokerConnection(
        Endpoint("broker", 9092), "me", 1 << 20, setup_timeout_s=1.0, opened_at=0.0, ranges={15: (0, 0)}
    )
    channel = Channel(ConnectionPurpose.CONTROL, connection, FrameReader(1 << 20), None, responded=True)
    connection.opened(0.0)
    connection.send(PendingRequest("DescribeGroups", DescribeGroupsRequest(groups=("g",)), lambda *_: None, 30.0), 0.0)
    channel.sock = TlsSocket([frame(bytes(4), b"\xff" * 2 * SCRATCH_BYTES)])  # type: ignore[assignment]
    channel.write()
    gc.disable()  # no reference circle may keep it either
    try:
        with pytest.raises(Ended) as raised:
            channel.on_event(EVENT_READ, 0.0)
        error = raised.value.error
        del raised
        assert isinstance(error, WireError)
        assert error.__traceback__ is not None
        assert [one() for one in frames] == [None]
    finally:
        gc.enable()
