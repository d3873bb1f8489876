"""Transactions as their coordinator implements them (KIP-98, KIP-890): a machine without socket, thread or clock.

Calls bring `now` (seconds, any origin). A transaction ends at once, by EndTxn, by a new InitProducerId,
or by its timeout. `settle` is then called with it, writes the markers, and applies or drops the offsets.
Not done: two-phase commit, exhausted epochs, authorization.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from kohort.common.topic_partition import TopicPartition
from kohort.protocol.errors import ErrorCode

MAX_TIMEOUT_MS: Final = 900_000


@dataclass(eq=False, slots=True)
class Transactional:
    """One transactional id: its producer, and its open transaction, if any.

    `before`: the last epoch that was bumped, of a producer that has not learned of it (KIP-588). `committed`: the
    outcome of the last transaction, for a producer that lost that response.
    """

    producer_id: int
    epoch: int = -1
    before: int = -1
    timeout_s: float = 0.0
    committed: bool | None = None
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    deadline: float | None = None


Settle = Callable[[Transactional, bool], None]


class FakeTransactions:
    """All transactional ids of one cluster; producer ids are counted, so that a run repeats itself.

    `second`: true if the cluster has version 2 of transactions.
    """

    def __init__(self, settle: Settle, second: bool) -> None:
        self._settle = settle
        self._second = second
        self._ids: dict[str, Transactional] = {}
        self._producer_ids = count()

    def producer_id(self) -> int:
        """A new, unused producer id."""
        return next(self._producer_ids)

    def begin(self, name: str, timeout_ms: int, known: tuple[int, int]) -> tuple[int, int, int]:
        """InitProducerId: (error code, producer id, epoch).

        `known`: the id and the epoch that the producer has, (-1, -1) where it has none (KIP-360). A transaction that is
        open under the name is aborted. The retry after CONCURRENT_TRANSACTIONS gets an epoch, or is refused.
        """
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1
        one = self._ids.get(name)
        if one is None:
            one = self._ids[name] = Transactional(self.producer_id())
        elif known[0] >= 0 and known[0] != one.producer_id:
            return ErrorCode.PRODUCER_FENCED, -1, -1
        elif one.deadline is not None:
            self._fence(one)
            return ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1
        elif known[0] >= 0 and known[1] == one.before:
            return ErrorCode.NONE, one.producer_id, one.epoch
        elif known[0] >= 0 and known[1] != one.epoch:
            return ErrorCode.PRODUCER_FENCED, -1, -1
        one.before, one.epoch, one.timeout_s = known[1], one.epoch + 1, timeout_ms / 1000
        one.committed = None
        return ErrorCode.NONE, one.producer_id, one.epoch

    def error(self, name: str, producer_id: int, epoch: int) -> int:
        """The error code with which this producer is refused under the name, or 0."""
        one = self._ids.get(name)
        if one is None or one.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if one.epoch == epoch else ErrorCode.PRODUCER_FENCED

    def add(self, name: str, now: float, *, partitions: set[TopicPartition] | None = None, group: str = "") -> None:
        """Adds partitions to the transaction, which begins with the first of them."""
        one = self._ids[name]
        one.partitions |= partitions or set()
        one.groups |= {group} - {""}
        one.committed = None
        one.deadline = now + one.timeout_s if one.deadline is None else one.deadline

    def has_group(self, name: str, group: str) -> bool:
        return group in self._ids[name].groups

    def has_partition(self, producer_id: int, partition: TopicPartition) -> bool:
        """True if a batch of this producer's transaction may be written there."""
        return any(one.producer_id == producer_id and partition in one.partitions for one in self._ids.values())

    def end(self, name: str, *, committed: bool) -> int:
        """EndTxn; returns its error code. What has ended may be ended again, the same way."""
        one = self._ids[name]
        if one.deadline is None:
            return ErrorCode.NONE if one.committed is committed else ErrorCode.INVALID_TXN_STATE
        self._end(one, committed=committed)
        return ErrorCode.NONE

    def end_epoch(self, name: str, producer_id: int, epoch: int, *, committed: bool) -> tuple[int, int, int]:
        """EndTxn of version 5: (error code, producer id, epoch of the next transaction).

        An epoch is one transaction's. With the epoch before, the request is a retry, and its transaction has ended. An
        abort also ends a transaction of which no request has come yet, so that none comes later.
        """
        one = self._ids.get(name)
        if one is None or one.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1, -1
        is_retry = one.committed is not None and one.epoch == epoch + 1
        if not is_retry and one.epoch != epoch:
            return ErrorCode.PRODUCER_FENCED, -1, -1
        if (one.committed is not committed) if is_retry else (one.deadline is None and committed):
            return ErrorCode.INVALID_TXN_STATE, -1, -1
        if not is_retry:
            one.before, one.epoch = one.epoch, one.epoch + 1
            self._end(one, committed=committed)
        return ErrorCode.NONE, one.producer_id, one.epoch

    def expire(self, now: float) -> bool:
        """Abort transactions that were open for too long, by a new epoch. True if there was one."""
        late = [one for one in self._ids.values() if one.deadline is not None and one.deadline <= now]
        for one in late:
            self._fence(one)
        return bool(late)

    def next_deadline(self) -> float | None:
        """The time at which `expire` is next due, or None."""
        return min((one.deadline for one in self._ids.values() if one.deadline is not None), default=None)

    def _fence(self, one: Transactional) -> None:
        """Abort an open transaction under the next epoch. In version 1 its own producer is fenced, too."""
        one.before, one.epoch = one.epoch if self._second else -1, one.epoch + 1
        self._end(one, committed=False)

    def _end(self, one: Transactional, *, committed: bool) -> None:
        self._settle(one, committed)
        one.partitions, one.groups, one.deadline, one.committed = set(), set(), None, committed
