"""A coordinator's record of a region: one frozen value, and its form in a store.

Every coordinator stores exactly this value. It is small (names, offsets, numbers), so each transaction replaces it as a
whole. States and manifests are large, and are stored beside it under names of their own.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from kohort.common.foreign_text import parsed_json
from kohort.common.named_tuple import NamedTuple
from kohort.consistent_region.checkpoint_barrier import NO_PAST, Barrier, CheckpointTicket, StorePast
from kohort.consistent_region.errors import AlienManifest, CorruptManifest, FencedError, NotRegisteredError
from kohort.consistent_region.manifest import (
    INT64_MAX,
    TaskSnapshot,
    canonical,
    plain_positions,
    plain_snapshots,
    read_positions,
    read_snapshots,
    text_of,
    whole,
)
from kohort.consistent_region.offsets import Positions
from kohort.consistent_region.tasks import TaskId

CLOCKS_APART_S: Final = 5.0
FORMAT: Final = 3
OF_MEMBERS: Final = 1


class MemberRecord(NamedTuple):
    """One process of the region.

    `incarnation`: a random number of its registration. `epoch`: the region's epoch that it has joined, -1 for none.
    `generation`: the group's, as last reported, -1 for none. `owned`: its number of partitions. `version`: of its
    states. `lease_deadline`: the time at which it becomes absent unless renewed, by the store's clock. `lease_s`: the
    duration of its own lease, 0 if unknown. Durations differ while members are reconfigured one by one.
    """

    incarnation: int
    epoch: int
    generation: int
    owned: int
    version: int = 1
    lease_deadline: float = 0.0
    lease_s: float = 0.0

    def here(self, now: float, lease_s: float) -> bool:
        """True if a checkpoint waits for it. A lease that ends impossibly late is of a clock that was reset."""
        return now < self.lease_deadline <= now + (self.lease_s or lease_s) + CLOCKS_APART_S


@dataclass(frozen=True, slots=True)
class RegionRecord:
    """A region. `members`: the processes that are registered, and those that ended a short time ago.

    `term`: the number of times that a member started tasks. `initial`: the start of each partition ever seen. It is
    written once, so it also lists all partitions ever owned. `complete`: sequences of available checkpoints, ascending.
    `covered`: the number of partitions in the newest. `contributed`: the members that contributed `tasks` to the
    barrier. `held`: the owner of each task in this epoch. `handed`: the cut of a task between two owners. `leaving`:
    the tasks whose owner still writes that cut (see `hand_over.py`). `failures`: the number of consecutive resets that
    were not forced. `reset_generation`: the group generation of the last reset for a rebalance. `past`: see
    `witness.py`.
    """

    region: str
    group: str
    epoch: int = 0
    next_sequence: int = 1
    complete: tuple[int, ...] = ()
    covered: int = 0
    retired_up_to: int = 0
    term: int = 0
    members: Mapping[str, MemberRecord] = field(default_factory=dict)
    initial: Positions = field(default_factory=dict)
    barrier: Barrier | None = None
    deadline: float = 0.0
    contributed: tuple[str, ...] = ()
    tasks: tuple[TaskSnapshot, ...] = ()
    last_at: float = 0.0
    reset_generation: int = -1
    failures: int = 0
    stopped: str | None = None
    held: Mapping[TaskId, str] = field(default_factory=dict)
    handed: Mapping[TaskId, TaskSnapshot] = field(default_factory=dict)
    leaving: Mapping[TaskId, str] = field(default_factory=dict)
    past: StorePast = NO_PAST

    @property
    def newest(self) -> int | None:
        """The newest complete checkpoint."""
        return self.complete[-1] if self.complete else None

    def member(self, ticket: CheckpointTicket) -> MemberRecord:
        """The member of a ticket. Raises NotRegisteredError, and FencedError for an earlier process of its name."""
        known = self.members.get(ticket.member)
        if known is None:
            raise NotRegisteredError(
                "the member is not registered at the coordinator", member=ticket.member, hint="register it"
            )
        if known.incarnation != ticket.incarnation:
            raise FencedError(
                "another process has started under this member's name",
                hint="a member's name belongs to one process at a time",
                member=ticket.member,
                incarnation=ticket.incarnation,
                newest=known.incarnation,
            )
        return known

    def with_member(self, ticket: CheckpointTicket, member: MemberRecord) -> "RegionRecord":
        return replace(self, members={**self.members, ticket.member: member})

    def without_barrier(self) -> "RegionRecord":
        if self.barrier is None:
            return self
        return replace(self, barrier=None, contributed=(), tasks=(), deadline=0.0)


def encode_record(record: RegionRecord) -> bytes:
    """The record as canonical JSON. Names, numbers and tuples of them are written as they are."""
    return canonical(
        {
            **{one.name: getattr(record, one.name) for one in fields(record)},
            "barrier": record.barrier and astuple(record.barrier),
            "format": FORMAT,
            "handed": plain_snapshots(record.handed.values()),
            "held": _plain_owners(record.held),
            "initial": plain_positions(record.initial),
            "leaving": _plain_owners(record.leaving),
            "members": dict(record.members),
            "past": astuple(record.past),
            "tasks": plain_snapshots(record.tasks),
        }
    )


@lru_cache(maxsize=4)  # members that are threads of one process read the same bytes, one after another
def decode_record(data: bytes) -> RegionRecord:
    """Decode a record. Raises CorruptManifest if it is invalid, AlienManifest if it is of another format."""
    try:
        value = parsed_json(data)
        if (found := value.pop("format", OF_MEMBERS)) == FORMAT:
            return _read(value)
    except (ValueError, TypeError, LookupError, AttributeError) as problem:
        raise CorruptManifest(f"the region's record cannot be read: {problem}") from problem
    raise AlienManifest(
        "the region's record has another format",
        hint="go on with the version of kohort that wrote it, or begin a region in another group",
        format=found,
    )


def _barrier(sequence: Any, epoch: Any, generation: Any, members: Any) -> Barrier:
    return Barrier(whole(sequence), whole(epoch), whole(generation), _texts(members))


def _read(value: dict[str, Any]) -> RegionRecord:
    barrier, stopped = value.pop("barrier"), value.pop("stopped")
    return RegionRecord(
        region=text_of(value.pop("region")),
        group=text_of(value.pop("group")),
        barrier=None if barrier is None else _barrier(*barrier),
        complete=tuple(map(whole, value.pop("complete"))),
        contributed=_texts(value.pop("contributed")),
        deadline=_seconds(value.pop("deadline")),
        handed=MappingProxyType({one.task: one for one in read_snapshots(value.pop("handed"))}),
        held=_owners(value.pop("held")),
        initial=MappingProxyType(read_positions(value.pop("initial"))),
        last_at=_seconds(value.pop("last_at")),
        leaving=_owners(value.pop("leaving", {})),
        members=MappingProxyType({text_of(name): _member(*one) for name, one in value.pop("members").items()}),
        past=_past(*value.pop("past")),
        stopped=None if stopped is None else text_of(stopped),
        tasks=read_snapshots(value.pop("tasks")),
        **{name: whole(number) for name, number in value.items()},
    )


def _plain_owners(owners: Mapping[TaskId, str]) -> dict[str, str]:
    return {str(task): name for task, name in owners.items()}


def _owners(value: Mapping[str, Any]) -> Mapping[TaskId, str]:
    return MappingProxyType({TaskId.parsed(text_of(task)): text_of(name) for task, name in value.items()})


def _member(*numbers: Any) -> MemberRecord:
    return MemberRecord(*map(whole, numbers[:5]), *map(_seconds, numbers[5:]))


def _past(lineage: Any, voided_up_to: Any, accepted: Any) -> StorePast:
    if not isinstance(accepted, bool):
        raise TypeError(f"not true or false: {accepted!r}")
    return StorePast(text_of(lineage), whole(voided_up_to), accepted)


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= INT64_MAX:
        raise ValueError("not a time in seconds")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(text_of, values))
