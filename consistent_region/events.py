"""Events of a region member, as frozen values: the only input of `RegionMember.step`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, SupportsIndex, overload

from kohort.common.errors import KohortError
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.checkpoint_barrier import MembershipView
from kohort.consistent_region.offsets import Positions


class RecordLike(Protocol):
    """The fields of a record that the machine reads."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...


class RecordSlice(Protocol):
    """Records of one partition, in log order: the parts of `kohort.RecordColumns` that a region needs.

    `next_offset` is behind all that the slice covers.
    """

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[RecordLike]: ...
    @overload
    def __getitem__(self, place: SupportsIndex) -> RecordLike: ...
    @overload
    def __getitem__(self, place: slice) -> "RecordSlice": ...


class Event:
    """The base of all events."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Registered(Event):
    """The coordinator registered the member. `relaunched`: it had registered this name before, or has a checkpoint."""

    view: MembershipView
    relaunched: bool


@dataclass(frozen=True, slots=True)
class RegionSubscribed(Event):
    """The consumer has its subscription."""


@dataclass(frozen=True, slots=True)
class PartitionsRevoked(Event):
    """The group revokes partitions. The member owns them until this event is handled."""

    generation: int


@dataclass(frozen=True, slots=True)
class PartitionsAssigned(Event):
    """The group assigned `partitions` to the member (all of them, because assignment is EAGER).

    `view` is the coordinator's response to the report, None if the call failed. `starts` are the offsets of the newest
    checkpoint, or else the initial ones.
    """

    partitions: frozenset[TopicPartition]
    generation: int
    starts: Positions
    view: MembershipView | None


@dataclass(frozen=True, slots=True)
class HandedOver(Event):
    """The group took `partitions`, and others stay (assignment is COOPERATIVE). `view` is the coordinator's response to
    the positions that were read up to, None if the call failed or was refused."""

    partitions: frozenset[TopicPartition]
    generation: int
    view: MembershipView | None


@dataclass(frozen=True, slots=True)
class StateTaken(PartitionsAssigned):
    """As `PartitionsAssigned`, where assignment is COOPERATIVE: `partitions` include those that stayed.

    `starts`: the start offsets of new partitions. `arriving`: new partitions whose tasks start later (`TasksStarted`).
    Any other new partition is held by a member that did not hand it over.
    """

    arriving: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class TasksStarted(Event):
    """The states of arriving tasks are read. `starts`: where their partitions were sought to."""

    starts: Positions


@dataclass(frozen=True, slots=True)
class PartitionsLost(Event):
    """The partitions are lost. Another member may own them already."""

    generation: int


@dataclass(frozen=True, slots=True)
class RecordsPolled(Event):
    """A poll ended, with these records, in log order for each partition. No slice is empty."""

    slices: Sequence[RecordSlice]


class PollTrouble(Enum):
    """The kind of error that a poll raised."""

    RETRIABLE = "it passes by itself"
    FATAL = "it cannot pass"
    OTHER = "unknown"


@dataclass(frozen=True, slots=True)
class PollFailed(Event):
    """A poll raised `error`."""

    trouble: PollTrouble
    error: KohortError


@dataclass(frozen=True, slots=True)
class Looked(Event):
    """The coordinator's response to Look or BeginCheckpoint."""

    view: MembershipView


@dataclass(frozen=True, slots=True)
class ResetGranted(Event):
    """The response to RequestReset. `view.epoch` has grown, unless another member requested the reset of this
    generation."""

    view: MembershipView


@dataclass(frozen=True, slots=True)
class WentBack(Event):
    """GoBack is done: state restored, partitions sought. `starts`: where those that are assigned were sought to."""

    view: MembershipView
    starts: Positions


@dataclass(frozen=True, slots=True)
class PositionsRead(Event):
    """The consumer's positions before a cut. They may be behind records that no handler gets, such as the ends of
    transactions."""

    positions: Positions


@dataclass(frozen=True, slots=True)
class CutTaken(Event):
    """TakeCut is done."""


@dataclass(frozen=True, slots=True)
class SnapshotsWritten(Event):
    """All snapshots of the cut are written."""


@dataclass(frozen=True, slots=True)
class Contributed(Event):
    """Contribute is done."""

    view: MembershipView


@dataclass(frozen=True, slots=True)
class Dispossessed(Event):
    """Contribute was refused, for a `reason` that makes the member's states void."""

    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorFailed(Event):
    """The coordinator did not respond to the request. Nothing was written."""

    error: KohortError


@dataclass(frozen=True, slots=True)
class Reregistered(Event):
    """The coordinator's store was lost, and the member registered again. `view`: the coordinator's new view."""

    view: MembershipView


@dataclass(frozen=True, slots=True)
class RegionCommitSettled(Event):
    """The group's commit is complete. `error` is None if the offsets were stored."""

    error: KohortError | None


@dataclass(frozen=True, slots=True)
class MemoryLow(Event):
    """Reports if the process is short of memory."""

    low: bool


@dataclass(frozen=True, slots=True)
class Broke(Event):
    """Something that no reset cures (the handler raised, the checkpoint cannot be read, data is gone)."""

    error: KohortError


@dataclass(frozen=True, slots=True)
class StopRequested(Event):
    """The user requests a stop."""
