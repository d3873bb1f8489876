"""Decodes both directions of one connection: byte streams in, explained frames out.

It serves captures and proxies, which are neither client nor broker. A response does not name its API, so requests are
kept by correlation id until their responses arrive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kohort.common.errors import WireError
from kohort.protocol.catalogue import API
from kohort.protocol.explain import ExplainedPart, explain_request, explain_response
from kohort.protocol.framing import Unframer, frame
from kohort.protocol.tape import Direction


@dataclass(frozen=True, slots=True)
class DecodedMessage:
    """One frame, explained. `bytes_` has its length in front."""

    direction: Direction
    bytes_: bytes
    part: ExplainedPart


@dataclass(slots=True)
class Conversation:
    """One connection. After a stream that cannot be cut into frames, its direction decodes nothing more."""

    _open: dict[int, tuple[int, int]] = field(default_factory=dict)  # correlation id -> API key, version
    _streams: dict[Direction, Unframer] = field(default_factory=lambda: {"request": Unframer(), "response": Unframer()})

    def request_bytes(self, data: bytes) -> list[DecodedMessage]:
        """Feed bytes of the client. Returns the requests that they complete."""
        return self._decoded("request", data, self._request)

    def response_bytes(self, data: bytes) -> list[DecodedMessage]:
        """Feed bytes of the broker. Returns the responses that they complete."""
        return self._decoded("response", data, self._response)

    def _decoded(
        self, direction: Direction, data: bytes, decode: Callable[[bytes], DecodedMessage]
    ) -> list[DecodedMessage]:
        stream = self._streams.get(direction)
        if stream is None:
            return []
        try:
            return [decode(body) for body in stream.push(data)]
        except WireError as error:
            del self._streams[direction]
            fault = ExplainedPart(direction, "stream", 0, len(data), fault=str(error))
            return [DecodedMessage(direction, data, fault)]

    def unanswered(self) -> list[str]:
        """Return the requests without a response, oldest first."""
        return [f"{API[key].name} v{version}, correlation id {number}" for number, (key, version) in self._open.items()]

    def _request(self, body: bytes) -> DecodedMessage:
        key, version = (int.from_bytes(body[at : at + 2], "big", signed=True) for at in (0, 2))
        number = int.from_bytes(body[4:8], "big", signed=True)
        if key in API and API[key].versions[0] <= version <= API[key].versions[1]:
            self._open[number] = (key, version)
        framed = frame(body)
        return DecodedMessage("request", framed, explain_request(framed))

    def _response(self, body: bytes) -> DecodedMessage:
        framed, number = frame(body), int.from_bytes(body[:4], "big", signed=True)
        requested = self._open.pop(number, None)
        if requested is None:
            fault = f"correlation id {number} matches no captured request"
            part = ExplainedPart("response", "frame", 0, len(framed), body, fault=fault)
        else:
            part = explain_response(framed, *requested)
        return DecodedMessage("response", framed, part)
