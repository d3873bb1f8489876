"""A few requests written out by hand, so that a broker can be tested and set up without the code under test."""

import socket
import struct

_CORRELATION_ID = 7
_CLIENT = b"kohort-testing"


def send(address: str, api_key: int, version: int, body: bytes, *, timeout_s: float) -> bytes:
    """Send one request with a classic header to `host:port`; returns the response's body. Raises OSError."""
    host, _, port = address.rpartition(":")
    header = struct.pack(f">hhih{len(_CLIENT)}s", api_key, version, _CORRELATION_ID, len(_CLIENT), _CLIENT)
    with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        response = _exactly(connection, size)
    (correlation_id,) = struct.unpack_from(">i", response)
    if correlation_id != _CORRELATION_ID:
        raise ConnectionError(f"response to request {correlation_id}, which was never sent")
    return response[4:]


def string(text: str) -> bytes:
    """Kafka's STRING: a 16-bit length and UTF-8."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("closed before the response was complete")
        parts += part
    return bytes(parts)
