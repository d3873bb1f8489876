"""Acquired records of one partition, and the acknowledgement of each offset.

An acknowledgement is one byte an offset. 0 to 4 are the types of the protocol. The other values are states of this
client. Runs of bytes become the ranges of a request without a loop over offsets.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kohort.common import KohortError, TopicPartition
from kohort.fastpath import Record, RecordColumns
from kohort.network.errors import IllegalState

if TYPE_CHECKING:
    import pyarrow as pa


class AcknowledgeType(IntEnum):
    """The types of acknowledgement that a caller may choose (KIP-932, KIP-1222)."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


GAP, UNREADABLE = 0, 5
"""Acquired offsets without a record: there is none, or its batch is corrupt and is released. The caller has no say."""

HELD, RENEWED, SETTLED, PENDING = 252, 253, 254, 255
"""States of an offset: held over polls; renewed, or its renewal is under way; acknowledged; not acknowledged."""

_TYPED = re.compile(rb"[\x00-\x05]+")
_HELD = re.compile(rb"\xfc+")
_EXPECTED, _EXPECTED_IMPLICIT = re.compile(rb"[\x01-\x04\xfc]+"), re.compile(rb"[\x01-\x04\xfc\xff]+")
_OPEN_RUNS = re.compile(rb"[\x01-\x04\xfc\xfd\xff]+")
_NAMES: Final = {one.name.lower(): one for one in AcknowledgeType}
_OPEN: Final = frozenset({PENDING, HELD, RENEWED, *AcknowledgeType})
_TYPES: Final = bytes.maketrans(
    bytes([UNREADABLE, HELD, PENDING]), bytes([AcknowledgeType.RELEASE, AcknowledgeType.RENEW, AcknowledgeType.ACCEPT])
)  # the type that a request has for each state
_TAKEN: Final = bytes(RENEWED if state == AcknowledgeType.RENEW else SETTLED for state in range(256))
_NOTED: Final = {
    how: bytes(how if state in _OPEN else state for state in range(256)) for how in AcknowledgeType
}  # for bytes.translate


def acknowledge_type(how: "str | AcknowledgeType") -> AcknowledgeType:
    """Return the type of a name. Raises ValueError for an unknown one."""
    if isinstance(how, AcknowledgeType):
        return how
    found = _NAMES.get(how) if isinstance(how, str) else None
    if found is None:
        raise ValueError(f"an acknowledgement is one of {', '.join(_NAMES)}, not {how!r}")
    return found


class SharePartition(NamedTuple):
    """A partition by topic id, as share sessions name it."""

    topic_id: UUID
    partition: int


class SessionLife:
    """One life of the session with a broker. Acknowledgements are valid in it only, while it is `alive`."""

    __slots__ = ("alive", "node")

    def __init__(self, node: int) -> None:
        self.node = node
        self.alive = True


class ShareRecords:
    """Records that were acquired together, with one delivery count.

    `columns`: the records as RecordColumns. Iteration gives Record views. `delivery_count`: the number of times that
    the broker has handed out these records, with this one. `lock_until`: the time (monotonic s) until which they are
    surely acquired.
    """

    __slots__ = (
        "_types",
        "columns",
        "delivery_count",
        "first_offset",
        "held_until",
        "lock_until",
        "place",
        "renew_at",
        "returned",
        "session",
    )

    def __init__(
        self,
        columns: RecordColumns,
        first_offset: int,
        last_offset: int,
        delivery_count: int,
        place: SharePartition,
        session: SessionLife,
        lock_until: float,
        missing: int = GAP,
    ) -> None:
        self.columns = columns
        self.first_offset = first_offset
        self.delivery_count = delivery_count
        self.lock_until = lock_until
        self.held_until = lock_until  # the lock of the held records, which are renewed together
        self.renew_at = 0.0
        self.place = place
        self.session = session
        self.returned = False
        size = last_offset - first_offset + 1
        if len(columns) == size:
            self._types = bytearray(b"\xff") * size
        else:
            self._types = bytearray([missing]) * size
            for offset in columns.offsets:
                self._types[offset - first_offset] = PENDING

    @property
    def topic(self) -> str:
        """The topic of the batch."""
        return self.columns.topic

    @property
    def partition(self) -> int:
        """The number of the batch's partition."""
        return self.columns.partition

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the batch."""
        return TopicPartition(self.columns.topic, self.columns.partition)

    @property
    def last_offset(self) -> int:
        """The last offset of the batch."""
        return self.first_offset + len(self._types) - 1

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.columns)

    def __repr__(self) -> str:
        return (
            f"ShareRecords({self.columns.topic!r}, {self.columns.partition}, offsets {self.first_offset} to "
            f"{self.last_offset}, {len(self)} records, delivery_count={self.delivery_count})"
        )

    def to_arrow(self) -> "pa.RecordBatch":
        """A pyarrow.RecordBatch with the columns of `RecordColumns.to_arrow`, and `delivery_count` (int16).

        Raises KohortError if pyarrow is not installed.
        """
        batch = self.columns.to_arrow()
        import pyarrow as pa

        counts = pa.array([self.delivery_count] * len(self), pa.int16())
        return pa.RecordBatch.from_arrays([*batch.columns, counts], names=[*batch.schema.names, "delivery_count"])

    # --- acknowledgements

    def acknowledge(self, how: AcknowledgeType, offset: int | None = None) -> bool:
        """Note the type for one offset, or for all that are not settled. Returns False if nothing can be noted.

        It raises no error for a foreign offset: nothing is noted then.
        """
        if offset is None:
            is_open = not _OPEN.isdisjoint(self._types)
            self._types = self._types.translate(_NOTED[how])  # whole: a signal handler cannot cut it in two
            return is_open
        place = offset - self.first_offset
        if not 0 <= place < len(self._types) or self._types[place] not in _OPEN:
            return False
        self._types[place] = how
        return True

    def has(self, offset: int, timestamp_ms: int) -> bool:
        """True for a record of this batch. A topic that was made again may have other ones at its offsets.

        It raises no error.
        """
        place = bisect_left(self.columns.offsets, offset)
        return place < len(self) and self.columns.timestamps_ms[place] == timestamp_ms

    @property
    def pending(self) -> int:
        """The number of records that have no acknowledgement."""
        return self._types.count(PENDING)

    @property
    def settled(self) -> bool:
        """True if no offset can be acknowledged any more."""
        return self._types.count(SETTLED) == len(self._types)

    def accept_pending(self) -> None:
        """Accept the records that have no acknowledgement."""
        self._types = self._types.replace(b"\xff", bytes([AcknowledgeType.ACCEPT]))

    def hold(self) -> bool:
        """Hold the records that have no acknowledgement. Returns False if there are none. It raises no error."""
        before = self._types
        self._types = before.replace(b"\xff", bytes([HELD]))
        return before != self._types

    def held(self) -> list["AckRange"]:
        """A renewal for each range that is held. It raises no error."""
        return self._acks(_HELD.finditer(self._types), quiet=True)

    def open_runs(self) -> list[tuple[int, int]]:
        """The first and the last offset of each range that can be acknowledged. It raises no error."""
        runs = _OPEN_RUNS.finditer(self._types)
        return [(self.first_offset + run.start(), self.first_offset + run.end() - 1) for run in runs]

    def expected(self, first_offset: int, last_offset: int, *, implicit: bool) -> list["AckRange"]:
        """The ranges inside of these offsets whose acknowledgement the caller expects, since it noted or holds them.

        `implicit`: the others are expected to be accepted. Raises nothing.
        """
        start, end = first_offset - self.first_offset, last_offset - self.first_offset + 1
        return self._acks((_EXPECTED_IMPLICIT if implicit else _EXPECTED).finditer(self._types, start, end))

    def take_typed(self) -> list["AckRange"]:
        """The ranges with a type. Renewed offsets may be acknowledged again, and all others are settled from now on."""
        found = self._acks(_TYPED.finditer(self._types))
        for one in found:
            start = one.first_offset - self.first_offset
            self._types[start : start + len(one.types)] = one.types.translate(_TAKEN)
        return found

    def _acks(self, runs: Iterable[re.Match[bytes]], *, quiet: bool = False) -> list["AckRange"]:
        return [
            AckRange(
                self.first_offset + run.start(),
                self.first_offset + run.end() - 1,
                run.group().translate(_TYPES),
                self,
                quiet=quiet,
            )
            for run in runs
        ]

    def mark(self, acks: "AckRange", state: int) -> None:
        """Set the state of a range of this batch. It raises no error."""
        start = acks.first_offset - self.first_offset
        self._types[start : start + len(acks.types)] = bytes([state]) * len(acks.types)

    def not_renewed(self, renewal: "AckRange") -> None:
        """Settle the offsets whose renewal has failed, unless the caller has noted more. It raises no error."""
        for i, kind in enumerate(renewal.types, renewal.first_offset - self.first_offset):
            if kind == AcknowledgeType.RENEW and self._types[i] == RENEWED:
                self._types[i] = SETTLED

    def renewed(self, renewals: Iterable["AckRange"], lock_until: float) -> None:
        """The locks of offsets with type RENEW in these ranges have started again. It raises no error.

        `self.lock_until` only changes if no other record is open, whose lock would be shorter.
        """
        others = bytearray(self._types)
        for acks in renewals:
            start = acks.first_offset - self.first_offset
            if acks.quiet:
                self.held_until = lock_until
            for i, kind in enumerate(acks.types, start):
                if kind == AcknowledgeType.RENEW:
                    others[i] = SETTLED
        if _OPEN.isdisjoint(others):
            self.lock_until = lock_until


class AckRange(NamedTuple):
    """Acknowledgements of consecutive offsets of one batch: one byte an offset. `give_up_at`: no retry later.

    `quiet`: made by the client itself, as a renewal of held records. It is not reported, and leaves the states of the
    offsets. `batch` is None for records that no poll has returned.
    """

    first_offset: int
    last_offset: int
    types: bytes
    batch: ShareRecords | None
    give_up_at: float = 0.0
    quiet: bool = False

    @property
    def renews(self) -> bool:
        """True if one of the types is RENEW."""
        return AcknowledgeType.RENEW in self.types

    @property
    def wire_types(self) -> tuple[int, ...]:
        """The types as the request has them: one if all are equal."""
        first = self.types[0]
        return (first,) if self.types.count(first) == len(self.types) else tuple(self.types)


class AcknowledgeOutcome(NamedTuple):
    """The outcome of acknowledgements of consecutive offsets; `error` is None if they had their effect.

    `types`: one byte an offset, an `AcknowledgeType`, or 0 for an offset without a record.
    """

    partition: TopicPartition
    first_offset: int
    last_offset: int
    error: KohortError | None
    types: bytes


class AcquiredRange(NamedTuple):
    """Consecutive acquired offsets with one delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int


def merged(ranges: tuple[AcquiredRange, ...]) -> list[AcquiredRange]:
    """Join adjacent ranges with the same delivery count."""
    found: list[AcquiredRange] = []
    for one in ranges:
        if found and one.first_offset == found[-1].last_offset + 1 and one.delivery_count == found[-1].delivery_count:
            found[-1] = found[-1]._replace(last_offset=one.last_offset)
        else:
            found.append(one)
    return found


def split(ranges: Iterable[AcquiredRange], offset: int) -> tuple[list[AcquiredRange], list[AcquiredRange]]:
    """The parts of the ranges below an offset, and those from it on."""
    below, behind = [], []
    for one in ranges:
        if one.first_offset < offset:
            below.append(one._replace(last_offset=min(one.last_offset, offset - 1)))
        if one.last_offset >= offset:
            behind.append(one._replace(first_offset=max(one.first_offset, offset)))
    return below, behind


def acquired_part(columns: RecordColumns, acquired: AcquiredRange) -> RecordColumns:
    """The records of the columns inside an acquired range."""
    offsets = columns.offsets
    start = bisect_left(offsets, acquired.first_offset)
    return columns[start : bisect_left(offsets, acquired.last_offset + 1, start)]


def not_acquired(record: object) -> IllegalState:
    """The error of an acknowledgement of a record that this consumer does not have."""
    return IllegalState(
        "the record is not acquired by this consumer, or is acknowledged already",
        hint="acknowledge a record of the last poll, once, or a renewed one",
        record=repr(record)[:200],
    )
