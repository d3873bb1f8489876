"""One connection's conversation, without the connection: requests to bytes, bytes to answers.

Kafka answers the requests of one connection in the order in which they were sent. So the next answer must carry the
oldest open correlation id; anything else means that the two sides no longer talk about the same thing, and no answer
may then be handed to anybody (B-03).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from kohort.common.errors import WireError
from kohort.protocol.catalogue import API
from kohort.protocol.codec import Message
from kohort.protocol.framing import (
    MAX_FRAME_BYTES,
    RequestHeader,
    ResponseHeader,
    Unframer,
    frame,
    request_header_version,
    response_header_version,
)
from kohort.protocol.schema import UNBOUNDED, Top

_API_VERSIONS = 18
_PRODUCE = 0
_UNSUPPORTED_VERSION = 35
_MAX_CORRELATION_ID = 2**31 - 1
_REQUEST_HEADER = Message.of(RequestHeader)
_RESPONSE_HEADER = Message.of(ResponseHeader)


class ReceivedResponse(NamedTuple):
    """A response and the request that it belongs to. `version` is the version that `value` was read in."""

    correlation_id: int
    api_key: int
    version: int
    value: Any


class _Open(NamedTuple):
    correlation_id: int
    api_key: int
    version: int


class WireConnection:
    """Sans-IO: one per connection, never reused for another.

    `send` gives the bytes to write; `receive` takes the bytes read and gives the answers complete with them. After a
    WireError from `receive` the conversation is dead: close the socket, for every open request is in doubt.
    """

    def __init__(self, client_id: str | None, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.client_id = client_id
        self._frames = Unframer(max_frame_bytes)
        self._open: deque[_Open] = deque()
        self._next_id = 0
        self._dead: WireError | None = None

    @property
    def open_requests(self) -> int:
        """The number of responses still to come."""
        return len(self._open)

    def send(self, api_key: int | str, version: int, value: Top | Mapping[str, object]) -> tuple[int, bytes]:
        """(correlation id, the bytes to write). Raises WireError where the value does not fit the version.

        A Produce request with acks=0 is never answered, and opens none.
        """
        if self._dead is not None:
            raise self._dead
        api = API[api_key]
        body = api.request.build(value, version)
        correlation_id = self._next_id
        header = _REQUEST_HEADER.build(
            RequestHeader(
                request_api_key=api.key,
                request_api_version=version,
                correlation_id=correlation_id,
                client_id=self.client_id,
            ),
            request_header_version(api.request, version),
        )
        self._next_id = 0 if correlation_id == _MAX_CORRELATION_ID else correlation_id + 1
        if not (api.key == _PRODUCE and _acks(value) == 0):
            self._open.append(_Open(correlation_id, api.key, version))
        return correlation_id, frame(header, body)

    def receive(self, data: bytes | bytearray | memoryview) -> list[ReceivedResponse]:
        """The answers that `data` completes, in order. Raises WireError, and then is dead."""
        if self._dead is not None:
            raise self._dead
        try:
            return [self._answer(body) for body in self._frames.push(data)]
        except WireError as error:
            self._dead = error
            raise

    def receive_frame(self, body: bytes | memoryview, budget: int = UNBOUNDED) -> ReceivedResponse:
        """The answer in one whole frame, without its length, cut out by the caller. Nothing is copied: `records` are
        views into `body`, which must not change while they live. Raises WireError, and then is dead.

        `budget`: the most memory (bytes) that the values may take.
        """
        if self._dead is not None:
            raise self._dead
        try:
            return self._answer(body, budget)
        except WireError as error:
            self._dead = error
            raise

    def _answer(self, data: bytes | memoryview, budget: int = UNBOUNDED) -> ReceivedResponse:
        if not self._open:
            raise WireError("an answer that nobody asked for", correlation_id=_correlation_id(data))
        expected = self._open[0]
        api = API[expected.api_key]
        got = _correlation_id(data)
        if got != expected.correlation_id:
            raise WireError(
                f"an answer with correlation id {got} where {expected.correlation_id} is due",
                api=api.name,
                version=expected.version,
                correlation_id=got,
            )
        header_version = response_header_version(api.response, expected.version)
        _, at = _RESPONSE_HEADER.parse_from(data, 0, header_version)
        version = expected.version
        if api.key == _API_VERSIONS and version > 0 and data[at : at + 2] == _UNSUPPORTED_VERSION.to_bytes(2, "big"):
            # The broker does not know the version asked in, and says so in version 0 (KIP-511).
            version = 0
        value, end = api.response.parse_from(data, at, version, budget)
        if end != len(data):
            raise WireError(f"{len(data) - end} bytes too many", api=api.response.name, version=version, offset=end)
        self._open.popleft()
        return ReceivedResponse(expected.correlation_id, api.key, version, value)


def _correlation_id(data: bytes | memoryview) -> int:
    return int.from_bytes(data[:4], "big", signed=True)


def _acks(value: Top | Mapping[str, object]) -> object:
    return value.get("acks") if isinstance(value, Mapping) else getattr(value, "acks", None)
