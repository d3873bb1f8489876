"""States of simulated members: every record they were ever given, and beside it the state under test, if any."""

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kohort.consistent_region.manifest import Block
from kohort.consistent_region.offsets import Positions
from kohort.consistent_region.state import StateHandle

MOST_BLOCKS: Final = 6
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


class SimBlocks(SimHistory):
    """As `SimHistory`, in blocks: one for each partition with new records since the last checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.chain: tuple[Block, ...] = ()
        self.stored: dict[str, int] = {}  # the number of records in the chain

    def restore(self, snapshot: bytes, offsets: Positions) -> None:
        super().restore(snapshot or b"{}", offsets)
        self.chain, self.stored = (), {}

    def reset_initial(self) -> None:
        super().reset_initial()
        self.chain, self.stored = (), {}

    def cut(self) -> "SimCut | None":
        return SimCut(self) if self.applied else None

    def restore_blocks(self, blocks: Iterable[Block]) -> Iterator[None]:
        self.reset_initial()
        for one in blocks:
            for partition, offsets in applied(one.data or b"").items():
                self.applied.setdefault(partition, []).extend(offsets)
            self.chain += (one._replace(data=None),)
            yield
        self.stored = {partition: len(offsets) for partition, offsets in self.applied.items()}


class SimCut:
    """The records of a `SimBlocks` at one moment. It begins a new chain now and then."""

    def __init__(self, state: SimBlocks) -> None:
        self._state = state
        self.blocks = list(state.chain) if len(state.chain) < MOST_BLOCKS else []
        stored = state.stored if self.blocks else {}
        self._ends = {partition: len(offsets) for partition, offsets in state.applied.items()}
        self._left = {partition: state.applied[partition][stored.get(partition, 0) :] for partition in state.applied}

    def write(self, enough: Callable[[], bool]) -> bool:
        if self._left:
            partition, offsets = self._left.popitem()
            if offsets:
                self.blocks.append(Block.of(json.dumps({partition: offsets}).encode()))
        return not self._left

    def completed(self) -> None:
        self._state.chain = tuple(one._replace(data=None) for one in self.blocks)
        self._state.stored = self._ends


def joined(blocks: Iterable[bytes]) -> dict[str, list[int]]:
    """The records of a chain of blocks."""
    found: dict[str, list[int]] = {}
    for block in blocks:
        for partition, offsets in applied(block).items():
            found.setdefault(partition, []).extend(offsets)
    return found


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
