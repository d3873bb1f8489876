"""Asks a broker, in the oldest bytes it still understands, whether it serves and how many brokers it sees."""

import socket
import struct

_METADATA, _VERSION, _CORRELATION_ID = 3, 1, 7
_CLIENT = b"kohort-ready"


def brokers_seen(port: int, *, timeout_s: float = 2.0) -> int:
    """How many brokers the one on 127.0.0.1:`port` lists in Metadata v1; 0 when it does not answer yet.

    Written out here and not through kohort.protocol, so that a broker can be judged ready before any of ours runs.
    """
    header = struct.pack(f">hhih{len(_CLIENT)}s", _METADATA, _VERSION, _CORRELATION_ID, len(_CLIENT), _CLIENT)
    request = header + struct.pack(">i", 0)  # no topics
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _exactly(connection, 4))
            correlation_id, brokers = struct.unpack(">ii", _exactly(connection, size)[:8])
    except OSError:
        return 0
    return int(brokers) if correlation_id == _CORRELATION_ID else 0


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("closed before the answer was whole")
        parts += part
    return bytes(parts)
