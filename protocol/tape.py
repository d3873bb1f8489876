"""A wire tape: every frame of a client as JSON lines, without its secrets, for reading and replay.

Each line has the time, node, connection, direction, API, and the frame in base64. The bytes of SASL exchanges are
removed before a line is written. Such a frame can still be parsed, and its line has `scrubbed`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args

from kohort.common.errors import KohortError, WireError
from kohort.common.foreign_text import parsed_json
from kohort.common.named_tuple import NamedTuple
from kohort.protocol.catalogue import API
from kohort.protocol.codec import Message
from kohort.protocol.framing import (
    RequestHeader,
    ResponseHeader,
    frame,
    request_header_version,
    response_header_version,
)

Direction = Literal["request", "response"]
SECRET_FIELD = {"SaslAuthenticate": "auth_bytes"}
_SIZE_BYTES = 4
_LEAST_BYTES = 8  # the size, and a response's correlation id


class Taped(NamedTuple):
    """One frame on a tape.

    `time_s`: seconds since the start of the tape. `node`: the broker's address. `connection`: the number of the
    client's connection. `version`: the body's version, also for a response, which does not carry it. `frame`: with its
    length in front.
    """

    time_s: float
    node: str
    connection: int
    direction: Direction
    api: str
    version: int
    correlation_id: int
    frame: bytes
    scrubbed: bool = False


class TapeError(KohortError):
    """A line that is not a valid line of a wire tape, with its number."""


def line(taped: Taped) -> str:
    """Return the JSON line of a frame, with its newline. Secrets are removed first."""
    clean = scrub(taped)
    document = clean._asdict() | {"frame": base64.b64encode(clean.frame).decode(), "time_s": round(clean.time_s, 6)}
    if not clean.scrubbed:
        del document["scrubbed"]
    return json.dumps(document, separators=(",", ":")) + "\n"


def read(lines: Iterable[str]) -> Iterator[Taped]:
    """Yield the frames of a tape. Raises TapeError for an invalid line.

    The incomplete line of a killed process is invalid at the end of the tape, and left out before frames of another.
    """
    incomplete: TapeError | None = None
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        incomplete = None
        try:
            document = parsed_json(text)
            taped = Taped(**document | {"frame": base64.b64decode(document["frame"], validate=True)})
            _check(taped)
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            invalid = TapeError(f"invalid line of a wire tape: {error}", line=number)
            if not text.startswith("{") or text.rstrip().endswith("}"):
                raise invalid from None
            incomplete = invalid
            continue
        yield taped
    if incomplete is not None:
        raise incomplete


def _check(taped: Taped) -> None:
    """Raise ValueError or TypeError for fields that no recorded frame can have, so that readers can rely on them."""
    if not isinstance(taped.api, str) or taped.api not in API:
        raise ValueError(f"unknown API {taped.api!r}")
    if taped.direction not in get_args(Direction):
        raise ValueError(f"{taped.direction!r} is not a direction")
    whole = (taped.connection, taped.version, taped.correlation_id)
    if not all(isinstance(one, int) for one in whole) or not isinstance(taped.time_s, int | float):
        raise TypeError("connection, version, correlation_id and time_s must be numbers")
    if len(taped.frame) < _LEAST_BYTES:
        raise ValueError(f"a frame of {len(taped.frame)} bytes")


def codecs(taped: Taped) -> tuple[Message[Any], int, Message[Any]]:
    """Return the codec of the frame's header, that header's version, and the codec of its body."""
    api = API[taped.api]
    if taped.direction == "request":
        return Message.of(RequestHeader), request_header_version(api.request, taped.version), api.request
    return Message.of(ResponseHeader), response_header_version(api.response, taped.version), api.response


def body_version(taped: Taped) -> int:
    """Return the version of the body: the request's, or 0 for an ApiVersions response with UNSUPPORTED_VERSION
    (KIP-511)."""
    refusal = taped.direction == "response" and taped.api == "ApiVersions" and taped.frame[8:10] == b"\0\x23"
    return 0 if refusal else taped.version


def scrub(taped: Taped) -> Taped:
    """Return the frame with the bytes of a SASL exchange removed. Other frames are returned unchanged."""
    secret = SECRET_FIELD.get(taped.api)
    if secret is None:
        return taped
    header, header_version, body = codecs(taped)
    try:
        head, at = header.parse_from(taped.frame, _SIZE_BYTES, header_version)
        value = body.parse_from(taped.frame, at, taped.version)[0]
    except WireError:
        return taped._replace(frame=frame(b""), scrubbed=True)
    clean = value._replace(**{secret: b""})
    return taped._replace(
        frame=frame(header.build(head, header_version), body.build(clean, taped.version)), scrubbed=True
    )


def value(taped: Taped) -> Any:
    """Return the typed value of the frame's body. Raises WireError."""
    header, header_version, body = codecs(taped)
    _, at = header.parse_from(taped.frame, _SIZE_BYTES, header_version)
    return body.parse(memoryview(taped.frame)[at:], body_version(taped))


def difference(taped: Taped) -> str | None:
    """Describe the difference between a frame and its re-encoded value; None if the bytes are equal."""
    header, header_version, body = codecs(taped)
    try:
        head, at = header.parse_from(taped.frame, _SIZE_BYTES, header_version)
        value = body.parse(memoryview(taped.frame)[at:], body_version(taped))
        again = frame(header.build(head, header_version), body.build(value, body_version(taped)))
    except WireError as error:
        return str(error)
    return None if again == taped.frame else "re-encoded to other bytes"
