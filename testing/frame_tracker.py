"""Assigns passing bytes to the request or response that they belong to, without holding a frame back.

Requests have their API key in their first bytes. Responses have only the correlation id, so a connection's two trackers
share one table. A stream of another protocol (for example TLS) is recognised by its first impossible frame size. It is
passed on as pieces without an API.
"""

import struct
from collections.abc import Iterator, MutableMapping

from kohort.common.named_tuple import NamedTuple
from kohort.testing.faults import Direction

_LARGEST_FRAME = 256 << 20
_REQUEST_HEAD = struct.Struct(">ihhi")  # size, api key, version, correlation id
_RESPONSE_HEAD = struct.Struct(">ii")  # size, correlation id


class Piece(NamedTuple):
    """Some bytes of one frame; `first` marks the ones it begins with. `api_key` is None where nothing is known."""

    api_key: int | None
    first: bool
    data: bytes


class FrameTracker:
    """One direction of one connection; `pending` (correlation id to API key) is shared by the two."""

    def __init__(self, direction: Direction, pending: MutableMapping[int, int]) -> None:
        self._requests = direction is Direction.TO_BROKER
        self._pending = pending
        self._head = bytearray()
        self._left = 0
        self._api_key: int | None = None
        self._opaque = False

    def feed(self, data: bytes) -> Iterator[Piece]:
        """The pieces that `data` completes or continues; at most a frame's first 12 bytes are held back."""
        if self._opaque:
            yield Piece(None, True, data)
            return
        needed = _REQUEST_HEAD.size if self._requests else _RESPONSE_HEAD.size
        at = 0
        while at < len(data):
            if self._left:
                part = data[at : at + self._left]
                at += len(part)
                self._left -= len(part)
                yield Piece(self._api_key, False, part)
                continue
            part = data[at : at + needed - len(self._head)]
            at += len(part)
            self._head += part
            if len(self._head) < needed:
                return
            head = bytes(self._head)
            self._head.clear()
            if not self._begin(head):
                self._opaque = True
                yield Piece(None, True, head + data[at:])
                return
            yield Piece(self._api_key, True, head)

    def rest(self) -> bytes:
        """The bytes that were held back when the stream ended."""
        return bytes(self._head)

    def _begin(self, head: bytes) -> bool:
        if self._requests:
            size, api_key, _, correlation_id = _REQUEST_HEAD.unpack(head)
        else:
            size, correlation_id = _RESPONSE_HEAD.unpack(head)
        self._left = size + 4 - len(head)
        if self._left < 0 or size > _LARGEST_FRAME:
            return False
        if self._requests:
            self._api_key = api_key
            self._pending[correlation_id] = api_key
        else:
            self._api_key = self._pending.pop(correlation_id, None)
        return True
