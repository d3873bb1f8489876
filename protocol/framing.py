"""Frames and headers: a four-byte length, a header, and a body.

Pure: bytes in, frames out. A length is checked when its four bytes are read, before memory is allocated for the frame.
"""

from functools import cache

from kohort.common.errors import WireError
from kohort.protocol.codec import Message
from kohort.protocol.primitives import int16, int32, string
from kohort.protocol.schema import Data, Top, field

MAX_FRAME_BYTES = 128 * 1024 * 1024  # a Fetch response may exceed max_bytes by one batch, and this leaves room for it
LEAST_HEADER_BYTES = 4  # a correlation id
_API_VERSIONS = 18


class RequestHeader(Data, versions="0-2", flexible="2+"):
    """The header of every request. Version 0 was only for ControlledShutdown, and version 2 has tagged fields."""

    request_api_key: int = field(int16, "0+")
    """The API key."""
    request_api_version: int = field(int16, "0+")
    """The version of the body."""
    correlation_id: int = field(int32, "0+")
    """The id that the response repeats."""
    client_id: str | None = field(string, "1+", null="1+", ignorable=True, flexible=False)
    """The client id in the broker's logs and quotas. It is never compact, because a broker reads it before it knows
    whether it supports the version."""


class ResponseHeader(Data, versions="0-1", flexible="1+"):
    """The header of every response."""

    correlation_id: int = field(int32, "0+")
    """The correlation id of the request."""


def request_header_version(request: Message[Top], version: int) -> int:
    """Return 2 for a flexible request, 1 for others."""
    return 2 if request.is_flexible(version) else 1


@cache
def response_header_version(response: Message[Top], version: int) -> int:
    """Return 1 for a flexible response, 0 for others. ApiVersions is always 0, because a client must be able to read
    its response before it knows the broker's versions (KIP-511)."""
    return 1 if response.is_flexible(version) and response.key != _API_VERSIONS else 0


def frame(*parts: bytes) -> bytes:
    """Return the parts as one frame, with its length first."""
    return b"".join((sum(map(len, parts)).to_bytes(4, "big"), *parts))


class Unframer:
    """Cuts a byte stream into frames. It holds at most one incomplete frame.

    `push(data)` returns the frames that `data` completes, without their lengths. Raises WireError for a length below
    that of a header, or above `max_frame_bytes`. The stream cannot be used afterwards.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.offset = 0  # offset of the next unread byte, counted from the start of the stream
        self._pending = bytearray()
        self._needed: int | None = None  # the current frame's size, once known

    def push(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Return the frames that `data` completes, in order. They are copies, so the caller may overwrite `data`."""
        frames: list[bytes] = []
        rest = memoryview(data).cast("B")
        while len(rest):
            target = 4 if self._needed is None else self._needed
            piece = rest[: target - len(self._pending)]
            self._pending += piece
            rest = rest[len(piece) :]
            if len(self._pending) < target:
                break
            full, self._pending = self._pending, bytearray()
            if self._needed is None:
                self._needed = self._judge(int.from_bytes(full, "big", signed=True))
            else:
                frames.append(bytes(full))
                self.offset += 4 + target
                self._needed = None
        return frames

    def _judge(self, size: int) -> int:
        if size < LEAST_HEADER_BYTES:
            raise WireError(f"a frame of {size} bytes; {LEAST_HEADER_BYTES} is the minimum", offset=self.offset)
        if size > self.max_frame_bytes:
            is_other_protocol = size > 1 << 30 or size >> 24 in (0x15, 0x16, 0x48)  # TLS or HTTP
            raise WireError(
                f"a frame of {size} bytes; the limit is {self.max_frame_bytes}",
                offset=self.offset,
                hint="use TLS (security_protocol), or the port of a Kafka listener"
                if is_other_protocol
                else "raise max_frame_bytes if such responses are expected",
            )
        return size
