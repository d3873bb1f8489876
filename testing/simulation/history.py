"""States of simulated members: every record they were ever given, and beside it the state under test, if any."""

import json
import struct
from typing import Any

from kohort.consistent_region.offsets import Positions
from kohort.consistent_region.state import StateHandle

_LENGTH = struct.Struct(">Q")


class SimHistory:
    """A state that remembers every record it was ever given, in order: the strictest there is."""

    def __init__(self) -> None:
        self.applied: dict[str, list[int]] = {}

    def snapshot(self, offsets: Positions) -> bytes:
        return json.dumps(self.applied, sort_keys=True).encode()

    def restore(self, snapshot: bytes, offsets: Positions) -> None:
        self.applied = json.loads(snapshot)

    def reset_initial(self) -> None:
        self.applied = {}


class Twin:
    """A history and a state of the user's in one snapshot, so that the one can be held against the other."""

    def __init__(self, history: SimHistory, state: StateHandle) -> None:
        self.history = history
        self.state = state

    def snapshot(self, offsets: Positions) -> bytes:
        known = self.history.snapshot(offsets)
        return _LENGTH.pack(len(known)) + known + self.state.snapshot(offsets)

    def restore(self, snapshot: bytes, offsets: Positions) -> None:
        known, own = split(snapshot)
        self.history.restore(known, offsets)
        self.state.restore(own, offsets)

    def reset_initial(self) -> None:
        self.history.reset_initial()
        self.state.reset_initial()


def split(snapshot: bytes) -> tuple[bytes, bytes]:
    """The history's part of a twin's snapshot, and the user's."""
    end = _LENGTH.size + _LENGTH.unpack_from(snapshot)[0]
    return snapshot[_LENGTH.size : end], snapshot[end:]


def applied(history: bytes) -> dict[str, list[int]]:
    """partition -> offsets of the records that a history holds, in the order in which they took effect."""
    found: dict[str, Any] = json.loads(history)
    return found
