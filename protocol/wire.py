"""The sans-IO state of one connection: requests to bytes, bytes to responses.

Kafka responds to the requests of one connection in the order in which they were sent. The next response must therefore
have the oldest open correlation id. Any other id means that the stream is out of step, and no response is returned
(B-03).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from kohort.common.errors import WireError
from kohort.common.named_tuple import NamedTuple
from kohort.protocol.catalogue import API, Api
from kohort.protocol.codec import Message
from kohort.protocol.errors import ErrorCode
from kohort.protocol.framing import (
    MAX_FRAME_BYTES,
    RequestHeader,
    ResponseHeader,
    Unframer,
    request_header_version,
    response_header_version,
)
from kohort.protocol.schema import UNBOUNDED, Top

_API_VERSIONS = 18
_PRODUCE = 0
_MAX_CORRELATION_ID = 2**31 - 1
_CORRELATION_ID_AT = 4
_ERROR_AT = 4  # in a response to ApiVersions, the header of which is a correlation id in all versions
_REQUEST_HEADER = Message.of(RequestHeader)
_RESPONSE_HEADER = Message.of(ResponseHeader)


class ReceivedResponse(NamedTuple):
    """A response and the request that it belongs to. `version` is the version that `value` was read in."""

    correlation_id: int
    api_key: int
    version: int
    value: Any


class OpenRequest(NamedTuple):
    """A request without a response yet."""

    correlation_id: int
    api_key: int
    version: int


class WireConnection:
    """Sans-IO protocol of one connection, never reused for another.

    `send` returns the bytes to write. `receive` takes the bytes read and returns the responses that they complete.
    After a WireError from `receive` the connection cannot be used: close the socket. The outcome of open requests is
    unknown.

    `headers` has what `add_header` returns, by API key and version. `open`, `next_id` and `headers` are for
    `network/_follow_up.pyx`. It reads the response to the only open request, and replaces that request.
    """

    def __init__(self, client_id: str | None, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.client_id = client_id
        self._frames = Unframer(max_frame_bytes)
        self.open: deque[OpenRequest] = deque()
        self.next_id = 0
        self.headers: dict[tuple[int, int], tuple[bytes, bytes]] = {}
        self._dead: WireError | None = None

    def send(self, api_key: int | str, version: int, value: Top | Mapping[str, object]) -> tuple[int, bytes]:
        """Return (correlation id, bytes to write). Raises WireError if the value does not fit the version.

        A Produce request with acks=0 has no response and is not counted as open.
        """
        if self._dead is not None:
            raise self._dead
        api = API[api_key]
        correlation_id = self.next_id
        before, after = self.headers.get((api.key, version)) or self.add_header(api.key, version)
        framed = api.request.build_frame(before + correlation_id.to_bytes(4, "big") + after, value, version)
        self.next_id = 0 if correlation_id == _MAX_CORRELATION_ID else correlation_id + 1
        if not (api.key == _PRODUCE and _acks(value) == 0):
            self.open.append(OpenRequest(correlation_id, api.key, version))
        return correlation_id, framed

    def add_header(self, api_key: int, version: int) -> tuple[bytes, bytes]:
        """Return the bytes of a request's header before and after the correlation id, and keep them in `headers`."""
        header = RequestHeader(
            request_api_key=api_key, request_api_version=version, correlation_id=0, client_id=self.client_id
        )
        encoded = _REQUEST_HEADER.build(header, request_header_version(API[api_key].request, version))
        around = (encoded[:_CORRELATION_ID_AT], encoded[_CORRELATION_ID_AT + 4 :])
        self.headers[api_key, version] = around
        return around

    def receive(self, data: bytes | bytearray | memoryview) -> list[ReceivedResponse]:
        """Return the responses that `data` completes, in order. A WireError ends the connection."""
        if self._dead is not None:
            raise self._dead
        try:
            return [self._respond(body) for body in self._frames.push(data)]
        except WireError as error:
            self._dead = error
            raise

    def receive_frame(self, body: bytes | memoryview, budget: int = UNBOUNDED) -> ReceivedResponse:
        """Return the response in one complete frame, which the caller has cut out without its length.

        Nothing is copied: `records` are views into `body`, which must not change while they are in use. `budget` is the
        maximum memory of the values, in bytes. A WireError ends the connection.
        """
        if self._dead is not None:
            raise self._dead
        try:
            return self._respond(body, budget)
        except WireError as error:
            self._dead = error
            raise

    def _respond(self, data: bytes | memoryview, budget: int = UNBOUNDED) -> ReceivedResponse:
        if not self.open:
            raise WireError("a response without an open request", correlation_id=_correlation_id(data))
        expected = self.open[0]
        api = API[expected.api_key]
        got = _correlation_id(data)
        if got != expected.correlation_id:
            raise WireError(
                f"a response with correlation id {got}, expected {expected.correlation_id}",
                api=api.name,
                version=expected.version,
                correlation_id=got,
            )
        version = expected.version
        if (
            api.key == _API_VERSIONS
            and version > 0
            and data[_ERROR_AT : _ERROR_AT + 2] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
        ):
            # The broker does not support the request's version, and responds in version 0 (KIP-511).
            version = 0
        value = read_response(api, data, version, budget)
        self.open.popleft()
        return ReceivedResponse(expected.correlation_id, api.key, version, value)


def read_response(api: Api, data: bytes | memoryview, version: int, budget: int = UNBOUNDED) -> Any:
    """The value of a response with its header, of which no byte may be left. Raises WireError."""
    _, at = _RESPONSE_HEADER.parse_from(data, 0, response_header_version(api.response, version))
    value, end = api.response.parse_from(data, at, version, budget)
    if end != len(data):
        raise WireError(
            f"{len(data) - end} unread bytes at the end", api=api.response.name, version=version, offset=end
        )
    return value


def _correlation_id(data: bytes | memoryview) -> int:
    return int.from_bytes(data[:4], "big", signed=True)


def _acks(value: Top | Mapping[str, object]) -> object:
    acks = getattr(value, "acks", None)  # first, since a look for `Mapping` takes longer
    return value.get("acks") if acks is None and isinstance(value, Mapping) else acks
