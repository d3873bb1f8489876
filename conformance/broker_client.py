"""One connection to the broker under test.

It has no retry, no reconnect and no metadata, so a check sees exactly what the broker does. One request is in flight at
a time, because Kafka serves one at a time on a connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.common.errors import WireError
from kohort.conformance.errors import Blocked, MissingResponse, PeerClosed
from kohort.protocol.catalogue import API
from kohort.protocol.framing import frame
from kohort.protocol.wire import WireConnection

CLIENT_ID = "kohort-conformance"
CONNECT_TIMEOUT_S = 10.0
_READ_BYTES = 1 << 16

Record = Callable[[bool, str, int, object], None]


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials of a connection: a TLS context, a SASL PLAIN user, both or neither."""

    tls: ssl.SSLContext | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)


ANYONE = Access()


class BrokerClient:
    """A connection that calls `record(sent, api, version, body)` for every frame."""

    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], record: Record) -> None:
        self._reader, self._writer = streams
        self._record = record
        self.place: tuple[int | None, Access | None] = (None, None)
        self._wire = WireConnection(CLIENT_ID)
        self.usable = True

    @classmethod
    async def open(cls, host: str, port: int, access: Access, record: Record) -> BrokerClient:
        """Connect, with TLS and SASL of `access`.

        Raises OSError, PeerClosed, MissingResponse, WireError or Blocked (credentials refused).
        """
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            try:
                streams = await asyncio.open_connection(host, port, ssl=access.tls)
            except (OverflowError, ValueError) as error:
                raise OSError(f"no such address: {error}") from None
            peer = cls(streams, record)
            if access.user is not None:
                try:
                    await peer._authenticate(access.user, access.password or "")
                except BaseException:
                    await peer.close()
                    raise
        return peer

    async def send(self, api: str, version: int, values: Mapping[str, object], timeout_s: float) -> Any:
        """Return the decoded response. Raises PeerClosed, MissingResponse, or WireError if it cannot be decoded."""
        self._record(True, api, version, values)
        try:
            _, data = self._wire.send(api, version, values)
        except WireError as error:
            raise AssertionError(f"the check sends values that {api} v{version} cannot have: {error}") from error
        self.usable = False
        await self._write(data)
        try:
            async with asyncio.timeout(timeout_s):
                while not (responses := self._wire.receive(await self._read())):
                    pass
        except TimeoutError:
            self._record(False, api, version, f"no response within {timeout_s:g} s")
            raise MissingResponse(f"{api} v{version}: no response within {timeout_s:g} s") from None
        except PeerClosed:
            self._record(False, api, version, "connection closed")
            raise
        except WireError as error:
            self._record(False, api, version, f"unreadable: {error}")
            raise
        self.usable = True
        self._record(False, api, responses[0].version, responses[0].value)
        return responses[0].value

    async def raw(self, data: bytes, label: str, timeout_s: float, responses: int = 1) -> list[bytes]:
        """Send bytes unchanged and return the frames of the responses, without their lengths. Raises PeerClosed."""
        self._record(True, label, -1, data)
        self.usable = False
        await self._write(data)
        found: list[bytes] = []
        buffer = bytearray()
        try:
            async with asyncio.timeout(timeout_s):
                while len(found) < responses:
                    while len(buffer) < 4 or len(buffer) < 4 + int.from_bytes(buffer[:4], "big"):
                        buffer += await self._read()
                    end = 4 + int.from_bytes(buffer[:4], "big")
                    found.append(bytes(buffer[4:end]))
                    del buffer[:end]
                    self._record(False, label, -1, found[-1])
        except TimeoutError:
            self._record(False, label, -1, f"no response within {timeout_s:g} s")
            raise MissingResponse(f"{label}: no response within {timeout_s:g} s") from None
        except PeerClosed:
            self._record(False, label, -1, "connection closed")
            raise
        return found

    async def dribble(self, data: bytes) -> None:
        """Write the bytes one per segment. The rest of the frame is sent by `raw`."""
        self.usable = False
        for index in range(len(data)):
            await self._write(data[index : index + 1])
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        self.usable = False
        self._writer.close()
        try:
            async with asyncio.timeout(1):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            self._writer.transport.abort()

    async def _authenticate(self, user: str, password: str) -> None:
        """Authenticate with SASL PLAIN (RFC 4616).

        Uses SaslHandshake v1 and SaslAuthenticate v0, which every broker since 1.0 has.
        """
        quiet, self._record = self._record, lambda *_: None  # no password ever gets into a report
        try:
            shake = await self.send("SaslHandshake", 1, {"mechanism": "PLAIN"}, CONNECT_TIMEOUT_S)
            if shake.error_code:
                raise Blocked(f"the broker does not support SASL PLAIN, only {', '.join(shake.mechanisms)}")
            token = f"\0{user}\0{password}".encode()
            response = await self.send("SaslAuthenticate", 0, {"auth_bytes": token}, CONNECT_TIMEOUT_S)
            if response.error_code:
                raise Blocked(f"the broker refuses user {user}: {response.error_message}")
        finally:
            self._record = quiet

    async def _write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError:
            # The broker's response may still be in the receive buffer, and the next read returns it, or the error.
            pass

    async def _read(self) -> bytes:
        try:
            data = await self._reader.read(_READ_BYTES)
        except ConnectionError:
            data = b""
        except ssl.SSLError as error:  # a broker may alert after the handshake
            raise PeerClosed(f"TLS failed: {error.reason or error}") from None
        if not data:
            raise PeerClosed("the broker closed the connection")
        return data


def request_bytes(
    api_key: int,
    version: int,
    body: bytes,
    *,
    correlation_id: int = 7,
    client_id: str | None = CLIENT_ID,
    tags: bytes = b"",
) -> bytes:
    """Build a framed request with any key and version, also one that no codec would build.

    `tags`: the tagged fields of a flexible header (b"\\0" for none). Without them the header is version 1.
    """
    name = b"\xff\xff" if client_id is None else len(client_id).to_bytes(2, "big") + client_id.encode()
    head = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    return frame(head, correlation_id.to_bytes(4, "big", signed=True), name, tags, body)


def request_for(api: str, version: int, values: Mapping[str, object], **header: Any) -> bytes:
    """Build the framed request of a declared API, so that a check can alter it."""
    message = API[api].request
    tags = header.pop("tags", b"\0") if message.is_flexible(version) else b""
    return request_bytes(API[api].key, version, message.build(values, version), tags=tags, **header)
