"""A log's record of transactions: the start of open ones, and the aborted ones (KIP-98)."""

import struct
import time
from typing import Final

from kohort.common.named_tuple import NamedTuple
from kohort.fastpath import encode
from kohort.fastpath.batches import BatchInfo

_MARKER: Final = struct.Struct(">hh")  # version 0, and 0 for an abort, 1 for a commit
_MARKED: Final = struct.pack(">hi", 0, 0)  # version 0, the coordinator's epoch


class Aborted(NamedTuple):
    """One transaction that came to nothing: its first offset, and that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class LogTransactions:
    """Of one log. `open`: producer ids and the offsets at which their transactions begin."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.aborted: list[Aborted] = []

    def stable(self, end: int) -> int:
        """The last stable offset of a log that ends here: nothing below it is undecided."""
        return min(self.open.values(), default=end)

    def took(self, batch: BatchInfo, base_offset: int) -> None:
        """Registers a batch of a transaction that is in the log, from this offset on."""
        if batch.transactional:
            self.open.setdefault(batch.producer_id, base_offset)

    def ended(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """Registers a marker that is in the log."""
        first_offset = self.open.pop(producer_id, None)
        if first_offset is not None and not committed:
            self.aborted.append(Aborted(producer_id, first_offset, marker_offset))

    def aborted_within(self, start: int, stop: int) -> list[Aborted]:
        """The aborted transactions that a reader of `start` to `stop` has to leave out."""
        return [one for one in self.aborted if one.last_offset >= start and one.first_offset < stop]

    def truncate(self, end: int) -> None:
        """Forget what the log has lost; what lost its marker is open again."""
        self.open.update({one.producer_id: one.first_offset for one in self.aborted if one.last_offset >= end})
        self.open = {producer_id: first for producer_id, first in self.open.items() if first < end}
        self.aborted = [one for one in self.aborted if one.last_offset < end]


def marker(producer_id: int, producer_epoch: int, *, committed: bool) -> bytes:
    """The control batch that ends a transaction, with the time of the machine."""
    return encode(
        [(_MARKER.pack(0, int(committed)), _MARKED)],
        timestamp_ms=time.time_ns() // 1_000_000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
