"""Frames and headers: a four-byte length, a header that says what follows, a body.

Pure: bytes in, frames out. A length is judged as soon as its four bytes are there, before room is made for the frame.
"""

from kohort.common.errors import WireError
from kohort.protocol.codec import Message
from kohort.protocol.primitives import int16, int32, string
from kohort.protocol.schema import Data, Top, field

MAX_FRAME_BYTES = 128 * 1024 * 1024  # a Fetch answer may exceed max_bytes by one batch; this leaves room and no more
_API_VERSIONS = 18


class RequestHeader(Data, versions="0-2", flexible="2+"):
    """Stands before every request. Version 0 was ControlledShutdown's alone, version 2 has tagged fields."""

    request_api_key: int = field(int16, "0+")
    """Which API."""
    request_api_version: int = field(int16, "0+")
    """Which version of it the body has."""
    correlation_id: int = field(int32, "0+")
    """Comes back in the answer."""
    client_id: str | None = field(string, "1+", null="1+", ignorable=True, flexible=False)
    """Names the client in the broker's logs and quotas. Never compact: a broker must be able to read it before it knows
    whether it understands the version."""


class ResponseHeader(Data, versions="0-1", flexible="1+"):
    """Stands before every response."""

    correlation_id: int = field(int32, "0+")
    """That of the request which is answered."""


def request_header_version(request: Message[Top], version: int) -> int:
    """2 before a flexible request, 1 before the others."""
    return 2 if request.is_flexible(version) else 1


def response_header_version(response: Message[Top], version: int) -> int:
    """1 before a flexible response, 0 before the others, and 0 always for ApiVersions, whose answer must be readable
    for a client that does not know the broker yet (KIP-511)."""
    return 1 if response.is_flexible(version) and response.key != _API_VERSIONS else 0


def frame(*parts: bytes) -> bytes:
    """The parts as one frame, its length first."""
    return b"".join((sum(map(len, parts)).to_bytes(4, "big"), *parts))


class Unframer:
    """Cuts a byte stream into frames; holds at most one unfinished frame.

    `push(data)` gives the frames that are complete with it, without their lengths. Raises WireError for a length below
    `min_bytes` (a header's least) or above `max_frame_bytes`; the stream is of no use afterwards.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, min_bytes: int = 4) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.min_bytes = min_bytes
        self.offset = 0  # of the next unread byte, counted from the start of the stream
        self._pending = bytearray()
        self._needed: int | None = None  # the current frame's size, once known

    def push(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The frames that `data` completes, in order. They are copies: `data` may be written over."""
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

    @property
    def is_between_frames(self) -> bool:
        """True if no frame is half received, so that the peer may close without loss."""
        return self._needed is None and not self._pending

    def _judge(self, size: int) -> int:
        if size < self.min_bytes:
            raise WireError(f"a frame of {size} bytes; {self.min_bytes} is the least", offset=self.offset)
        if size > self.max_frame_bytes:
            hint = (
                "is this port TLS, or no Kafka at all?" if size > 1 << 30 or size >> 24 in (0x15, 0x16, 0x48) else None
            )
            raise WireError(
                f"a frame of {size} bytes; the limit is {self.max_frame_bytes}",
                offset=self.offset,
                hint=hint or "raise max_frame_bytes if such answers are expected",
            )
        return size
