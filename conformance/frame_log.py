"""The frames of a check, kept as evidence for its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kohort.common.foreign_text import cut
from kohort.protocol.errors import error_name
from kohort.protocol.schema import MISSING, Struct

MAX_BYTES_SHOWN = 48
MAX_ITEMS_SHOWN = 40
MAX_TEXT_SHOWN = 600


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, or the end of a connection.

    `at_ms` counts from the start of the check. `connection` numbers its connections. `sent` is True for frames of the
    check. `body` is the decoded message, or a line of text if there is none.
    """

    at_ms: int
    connection: int
    sent: bool
    api: str
    version: int
    body: Any

    def as_json(self) -> list[Any]:
        return [self.at_ms, self.connection, int(self.sent), self.api, self.version, readable(self.body)]

    @classmethod
    def from_json(cls, entry: list[Any]) -> Frame:
        at_ms, connection, sent, api, version, body = entry
        return cls(at_ms, connection, bool(sent), api, version, body)

    def __str__(self) -> str:
        arrow = "->" if self.sent else "<-"
        body = readable(self.body)
        text = body if isinstance(body, str) else compact(body)
        return f"{self.at_ms:6} ms  #{self.connection} {arrow} {self.api} v{self.version}  {text}"


def readable(value: Any, name: str = "") -> Any:
    """Return a decoded value for JSON: only fields that differ from the defaults, error codes with names."""
    if isinstance(value, Struct):
        return {
            key: readable(item, key)
            for (key, item), zero in zip(value._asdict().items(), value._zeros, strict=True)
            if item is not MISSING and (key.endswith("error_code") or item != zero)
        }
    if isinstance(value, Mapping):
        return {key: readable(item, key) for key, item in value.items()}
    if name.endswith("error_code") and isinstance(value, int):
        return f"{value} {error_name(value)}"
    if isinstance(value, bytes | bytearray | memoryview):
        return blob(bytes(value))
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, tuple | list):
        shown = [readable(item) for item in value[:MAX_ITEMS_SHOWN]]
        return shown if len(value) <= MAX_ITEMS_SHOWN else [*shown, f"... and {len(value) - MAX_ITEMS_SHOWN} more"]
    return cut(value, MAX_TEXT_SHOWN) if isinstance(value, str) else value


def blob(data: bytes) -> str:
    """Return bytes as text if they are text, else as hex, cut if long."""
    shown = data[:MAX_BYTES_SHOWN]
    text = f"'{shown.decode()}'" if shown.isascii() and shown.decode().isprintable() else f"0x{shown.hex()}"
    return text if len(data) <= MAX_BYTES_SHOWN else f"{text}... ({len(data)} bytes)"


def compact(value: Any) -> str:
    """Return a readable value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {compact(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(compact, value)) + "]"
    return str(value)
