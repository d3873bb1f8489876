"""A log's record of idempotent producers: a repeated batch is appended once, a gap is refused (KIP-98)."""

from collections import deque
from typing import Final

from kohort.common.named_tuple import NamedTuple
from kohort.fastpath.batches import BatchInfo
from kohort.protocol.errors import ErrorCode

KEPT: Final = 5
"""Batches of a producer that are known again; as many as it may have in flight."""

_SEQUENCES: Final = 1 << 31


class _Taken(NamedTuple):
    epoch: int
    first: int
    last: int
    base_offset: int


class Producers:
    """Of one log."""

    def __init__(self) -> None:
        self._taken: dict[int, deque[_Taken]] = {}
        self._fenced: dict[int, int] = {}

    def judge(self, batch: BatchInfo) -> tuple[int, int]:
        """(error code, base offset) of a batch that has come; base offset -1: it is not in the log yet."""
        if batch.producer_epoch < self._fenced.get(batch.producer_id, batch.producer_epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        taken = self._taken.get(batch.producer_id)
        if not taken:
            return ErrorCode.NONE, -1  # a new or forgotten producer may begin with any number
        newest = taken[-1]
        if batch.producer_epoch < newest.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        for one in taken:
            if one[:3] == (batch.producer_epoch, batch.base_sequence, _last(batch)):
                return ErrorCode.NONE, one.base_offset
        due = (newest.last + 1) % _SEQUENCES if batch.producer_epoch == newest.epoch else 0
        return ErrorCode.NONE if batch.base_sequence == due else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1

    def took(self, batch: BatchInfo, base_offset: int) -> None:
        """Registers a batch that is in the log, from this offset on."""
        if batch.producer_id >= 0:
            taken = self._taken.setdefault(batch.producer_id, deque(maxlen=KEPT))
            taken.append(_Taken(batch.producer_epoch, batch.base_sequence, _last(batch), base_offset))

    def fence(self, producer_id: int, epoch: int) -> None:
        """The end of a transaction was written under this epoch: nothing older is taken any more."""
        self._fenced[producer_id] = epoch

    def truncate(self, end: int) -> None:
        """Forget what the log has lost."""
        for producer, taken in self._taken.items():
            kept = (one for one in taken if one.base_offset < end)
            self._taken[producer] = deque(kept, maxlen=KEPT)


def _last(batch: BatchInfo) -> int:
    return (batch.base_sequence + (batch.record_count or 1) - 1) % _SEQUENCES
