"""Decodes both directions of one connection: byte streams in, explained frames out.

It serves captures and proxies, which are neither client nor broker. A response does not name its API, so requests are
kept by correlation id until their responses arrive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kohort.common.errors import WireError
from kohort.protocol.catalogue import API
from kohort.protocol.explain import ExplainedPart, explain_request, explain_response
from kohort.protocol.framing import Unframer

Direction = Literal["request", "response"]


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
    _requests: Unframer | None = field(default_factory=Unframer)
    _responses: Unframer | None = field(default_factory=Unframer)

    def request_bytes(self, data: bytes) -> list[DecodedMessage]:
        """Feed bytes of the client. Returns the requests that they complete."""
        if self._requests is None:
            return []
        try:
            return [self._request(body) for body in self._requests.push(data)]
        except WireError as error:
            self._requests = None
            return [_broken("request", data, error)]

    def response_bytes(self, data: bytes) -> list[DecodedMessage]:
        """Feed bytes of the broker. Returns the responses that they complete."""
        if self._responses is None:
            return []
        try:
            return [self._response(body) for body in self._responses.push(data)]
        except WireError as error:
            self._responses = None
            return [_broken("response", data, error)]

    def unanswered(self) -> list[str]:
        """Return the requests without a response, oldest first."""
        return [f"{API[key].name} v{version}, correlation id {number}" for number, (key, version) in self._open.items()]

    def _request(self, body: bytes) -> DecodedMessage:
        frame = len(body).to_bytes(4, "big") + body
        part = explain_request(frame)
        key, version, number = _head(body)
        if key in API and API[key].versions[0] <= version <= API[key].versions[1]:
            self._open[number] = (key, version)
        return DecodedMessage("request", frame, part)

    def _response(self, body: bytes) -> DecodedMessage:
        frame = len(body).to_bytes(4, "big") + body
        number = int.from_bytes(body[:4], "big", signed=True)
        requested = self._open.pop(number, None)
        if requested is None:
            fault = f"correlation id {number} matches no captured request"
            return DecodedMessage(
                "response", frame, ExplainedPart("response", "frame", 0, len(frame), body, fault=fault)
            )
        return DecodedMessage("response", frame, explain_response(frame, *requested))


def _head(body: bytes) -> tuple[int, int, int]:
    return (
        int.from_bytes(body[:2], "big", signed=True),
        int.from_bytes(body[2:4], "big", signed=True),
        int.from_bytes(body[4:8], "big", signed=True),
    )


def _broken(direction: Direction, data: bytes, error: WireError) -> DecodedMessage:
    return DecodedMessage(direction, data, ExplainedPart(direction, "stream", 0, len(data), fault=str(error)))
