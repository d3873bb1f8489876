"""A share partition as its leader keeps it: a machine without socket, thread or clock (KIP-932).

Each offset from `start` to `end` is in one state. Offsets from `end` on are available and were never delivered.

    AVAILABLE     may be acquired; `count` deliveries so far
    ACQUIRED      `member` has it until `deadline`
    ACKNOWLEDGED  accepted
    ARCHIVED      rejected, a gap, at the delivery limit, or below the log start

ACKNOWLEDGED and ARCHIVED are terminal. `start` moves over the terminal offsets at the front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from kohort.protocol.errors import ErrorCode

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class OffsetState(Enum):
    """See the head of this file."""

    AVAILABLE = "available"
    ACQUIRED = "acquired"
    ACKNOWLEDGED = "acknowledged"
    ARCHIVED = "archived"


TERMINAL = (OffsetState.ACKNOWLEDGED, OffsetState.ARCHIVED)
SETTLES = {GAP: OffsetState.ARCHIVED, ACCEPT: OffsetState.ACKNOWLEDGED, REJECT: OffsetState.ARCHIVED}


@dataclass(slots=True)
class InFlight:
    """The state of one offset."""

    state: OffsetState
    count: int = 0
    member: str | None = None
    deadline: float = 0.0


class Acquired(NamedTuple):
    """A range of acquired offsets with one delivery count."""

    first: int
    last: int
    deliveries: int


class Acks(NamedTuple):
    """One range of a request: one type, or one for each offset."""

    first: int
    last: int
    types: tuple[int, ...]

    def typed(self) -> Iterable[tuple[int, int]]:
        """(offset, type) for each offset."""
        for at in range(self.last - self.first + 1):
            yield self.first + at, self.types[0] if len(self.types) == 1 else self.types[at]


class ShareLimits(NamedTuple):
    """The settings of a group that its share partitions use."""

    lock_s: float = 30.0
    delivery_count: int = 5
    record_locks: int = 2000
    renews: bool = True


@dataclass(eq=False, slots=True)
class FakeSharePartition:
    """See the head of this file. `write_error`: an error code with which the next acknowledgement is rolled back."""

    start: int
    end: int = -1
    offsets: dict[int, InFlight] = field(default_factory=dict)
    write_error: int = ErrorCode.NONE

    def __post_init__(self) -> None:
        self.end = max(self.end, self.start)

    @property
    def settled(self) -> int:
        """The number of terminal offsets from `start` on."""
        return sum(one.state in TERMINAL for one in self.offsets.values())

    def acquire(
        self,
        member: str,
        *,
        visible: int,
        most: int,
        strict: bool,
        batch_end: Callable[[int], int],
        limits: ShareLimits,
        now: float,
    ) -> list[Acquired]:
        """Acquire available offsets below `visible` for a member. `strict`: never more than `most` (KIP-1206).

        Otherwise it goes on to the end of a record batch, which `batch_end` returns.
        """
        chosen: list[int] = []
        goes_on_to = -1
        for offset in range(self.start, visible):
            one = self.offsets.get(offset)
            if one is None and offset - self.start >= limits.record_locks:
                break
            if one is not None and one.state is not OffsetState.AVAILABLE:
                continue
            least = _isolated(one.count if one is not None else 0, most, limits)
            if least < most and chosen:
                break  # a record near its limit is delivered with fewer others
            if chosen and len(chosen) >= least and (strict or least < most or offset > goes_on_to):
                break
            if most <= 0:
                break
            chosen.append(offset)
            goes_on_to = batch_end(offset)
            if least < most and len(chosen) >= least:
                break
        ranges: list[Acquired] = []
        for offset in chosen:
            one = self.offsets.setdefault(offset, InFlight(OffsetState.AVAILABLE))
            one.state, one.count, one.member = OffsetState.ACQUIRED, one.count + 1, member
            one.deadline = now + limits.lock_s
            self.end = max(self.end, offset + 1)
            if ranges and ranges[-1].last == offset - 1 and ranges[-1].deliveries == one.count:
                ranges[-1] = ranges[-1]._replace(last=offset)
            else:
                ranges.append(Acquired(offset, offset, one.count))
        return ranges

    def acknowledge(self, member: str, batches: Iterable[Acks], limits: ShareLimits, now: float) -> int:
        """Apply acknowledgements, all or none of them. Returns the error code. Renewals are not undone."""
        settling: list[tuple[int, int]] = []
        for batch in batches:
            if batch.last < self.start:
                continue
            if batch.last >= self.end:
                return ErrorCode.INVALID_REQUEST
            for offset, kind in batch.typed():
                one = self.offsets.get(offset)
                if one is None or one.state is not OffsetState.ACQUIRED or one.member != member:
                    return ErrorCode.INVALID_RECORD_STATE
                if kind == RENEW:
                    if not limits.renews:
                        return ErrorCode.INVALID_RECORD_STATE
                    one.deadline = now + limits.lock_s
                else:
                    settling.append((offset, kind))
        if len({offset for offset, _kind in settling}) < len(settling):
            return ErrorCode.INVALID_RECORD_STATE
        if self.write_error:
            error, self.write_error = self.write_error, ErrorCode.NONE
            return error
        for offset, kind in settling:
            if kind == RELEASE:
                self._return(self.offsets[offset], limits)
            else:
                self.offsets[offset] = InFlight(SETTLES[kind], self.offsets[offset].count)
        self.advance()
        return ErrorCode.NONE

    def release(self, member: str, limits: ShareLimits) -> bool:
        """Return all offsets of a member. True if there were any."""
        return self._return_if(lambda one: one.member == member, limits)

    def expire(self, now: float, limits: ShareLimits) -> bool:
        """Return the offsets whose locks have expired. True if there were any."""
        return self._return_if(lambda one: one.deadline <= now, limits)

    def next_deadline(self) -> float | None:
        """The time at which the next lock expires, or None."""
        return min((one.deadline for one in self.offsets.values() if one.state is OffsetState.ACQUIRED), default=None)

    def forget_locks(self, limits: ShareLimits) -> None:
        """A new leader loads the state, which has no locks."""
        self._return_if(lambda _one: True, limits)

    def trim(self, log_start: int) -> None:
        """The log starts later. Offsets below are archived, but for acquired ones."""
        for offset in range(self.start, min(log_start, self.end)):
            one = self.offsets.setdefault(offset, InFlight(OffsetState.AVAILABLE))
            if one.state is OffsetState.AVAILABLE:
                one.state = OffsetState.ARCHIVED
        if log_start > self.end:
            self.end = log_start
        self.advance()
        if not self.offsets:
            self.start = max(self.start, log_start)
            self.end = max(self.end, self.start)

    def advance(self) -> None:
        """Move `start` over the terminal offsets at the front."""
        while (one := self.offsets.get(self.start)) is not None and one.state in TERMINAL:
            del self.offsets[self.start]
            self.start += 1

    def _return_if(self, chosen: Callable[[InFlight], bool], limits: ShareLimits) -> bool:
        found = [one for one in self.offsets.values() if one.state is OffsetState.ACQUIRED and chosen(one)]
        for one in found:
            self._return(one, limits)
        self.advance()
        return bool(found)

    def _return(self, one: InFlight, limits: ShareLimits) -> None:
        at_limit = one.count >= limits.delivery_count
        one.state, one.member = OffsetState.ARCHIVED if at_limit else OffsetState.AVAILABLE, None


def _isolated(count: int, most: int, limits: ShareLimits) -> int:
    """The most records that are delivered together with one of `count` deliveries: fewer near the limit."""
    threshold = max(2, -(-limits.delivery_count // 2))
    if count < threshold:
        return most
    if count + 1 >= limits.delivery_count > 2:
        return min(most, 1)
    return min(most, max(1, most >> (count - threshold + 1)))


def batches_error(batches: Iterable[Acks], *, renews: bool, version: int) -> int:
    """INVALID_REQUEST for ranges that contradict themselves, else 0. Two that share one offset pass."""
    before = -1
    highest = RENEW if version >= 2 else REJECT
    for one in batches:
        size = one.last - one.first + 1
        wrong = (
            one.first > one.last
            or one.first < before
            or not one.types
            or (len(one.types) > 1 and len(one.types) != size)
            or any(not GAP <= kind <= highest for kind in one.types)
            or (not renews and RENEW in one.types)
        )
        if wrong:
            return ErrorCode.INVALID_REQUEST
        before = one.last
    return ErrorCode.NONE
