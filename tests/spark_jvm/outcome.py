"""The outcome of one read: rows or an error, as it crosses from a session's process as JSON."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """`rows` in the order of topic, partition and offset, None after an error; `error`: its chain of messages."""

    rows: list[Any] | None
    columns: list[list[str]]
    pieces: int
    error: str
    seconds: float
