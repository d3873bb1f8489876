"""A coordinator's record of a region: one frozen value, and its form in a store.

Every coordinator stores exactly this value. It is small (names, offsets, numbers), so each transaction replaces it as a
whole. States and manifests are large, and are stored beside it under names of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from kohort.common.foreign_text import parsed_json
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.checkpoint_barrier import NO_PAST, Barrier, StorePast
from kohort.consistent_region.errors import CorruptManifest
from kohort.consistent_region.manifest import (
    INT64_MAX,
    Contribution,
    StateReference,
    canonical,
    digest_of,
    plain_positions,
    read_positions,
    text_of,
    whole,
)
from kohort.consistent_region.offsets import Positions

CLOCKS_APART_S: Final = 5.0


class MemberRecord(NamedTuple):
    """One member of the region.

    `incarnation`: the number of launches. `epoch`: the region's epoch that it has joined, -1 for none. `generation`:
    the group's, as last reported, -1 for none. `owned`: its number of partitions. `since`: the first checkpoint that
    must include it. `lease_deadline`: the time at which it becomes absent unless renewed, by the store's clock, or 0
    after a clean stop. `lease_s`: the duration of its own lease, 0 if unknown. Durations differ while members are
    reconfigured one by one.
    """

    incarnation: int
    epoch: int
    generation: int
    owned: int
    since: int
    lease_deadline: float = 0.0
    lease_s: float = 0.0

    def here(self, now: float, lease_s: float) -> bool:
        """True if a checkpoint waits for it. A lease that ends impossibly late is of a clock that was reset."""
        return now < self.lease_deadline <= now + (self.lease_s or lease_s) + CLOCKS_APART_S


@dataclass(frozen=True, slots=True)
class RegionRecord:
    """A region. `members`: the registered ones.

    `initial`: the start of each partition ever seen. It is written once, so it also lists all partitions ever owned.
    `complete`: sequences of available checkpoints, ascending. `last_identity`: the member that has read a partition in
    this epoch. `handed`: its position between two holders. `moved`: the members whose states include moves since the
    last checkpoint (see `hand_over.py`). `failures`: the number of consecutive resets that were not forced.
    `reset_generation`: the group generation of the last reset for a rebalance. `past`: see `witness.py`.
    """

    region: str
    group: str
    epoch: int = 0
    next_sequence: int = 1
    complete: tuple[int, ...] = ()
    retired_up_to: int = 0
    members: Mapping[str, MemberRecord] = field(default_factory=dict)
    initial: Positions = field(default_factory=dict)
    barrier: Barrier | None = None
    deadline: float = 0.0
    contributions: tuple[Contribution, ...] = ()
    last_at: float = 0.0
    reset_generation: int = -1
    failures: int = 0
    stopped: str | None = None
    held: Mapping[TopicPartition, str] = field(default_factory=dict)
    handed: Positions = field(default_factory=dict)
    moved: tuple[str, ...] = ()
    past: StorePast = NO_PAST

    @property
    def newest(self) -> int | None:
        """The newest complete checkpoint."""
        return self.complete[-1] if self.complete else None


def encode_record(record: RegionRecord) -> bytes:
    """The record as canonical JSON."""
    barrier = record.barrier
    return canonical(
        {
            "barrier": barrier and [barrier.sequence, barrier.epoch, barrier.generation, list(barrier.members)],
            "last_at": record.last_at,
            "complete": list(record.complete),
            "contributions": [
                [one.member, plain_positions(one.offsets), one.state.digest, one.state.length_bytes]
                for one in record.contributions
            ],
            "deadline": record.deadline,
            "epoch": record.epoch,
            "failures": record.failures,
            "group": record.group,
            "handed": plain_positions(record.handed),
            "held": plain_holders(record.held),
            "initial": plain_positions(record.initial),
            "moved": list(record.moved),
            "members": {name: list(one) for name, one in record.members.items()},
            "next_sequence": record.next_sequence,
            "past": [record.past.lineage, record.past.voided_up_to, record.past.accepted],
            "region": record.region,
            "reset_generation": record.reset_generation,
            "retired_up_to": record.retired_up_to,
            "stopped": record.stopped,
        }
    )


@lru_cache(maxsize=4)  # members that are threads of one process read the same bytes, one after another
def decode_record(data: bytes) -> RegionRecord:
    """Decode a record. Raises CorruptManifest if it is invalid."""
    try:
        return _read(parsed_json(data))
    except (ValueError, TypeError, LookupError, AttributeError) as problem:
        raise CorruptManifest(f"the region's record cannot be read: {problem}") from problem


def _barrier(sequence: Any, epoch: Any, generation: Any, members: Any) -> Barrier:
    return Barrier(whole(sequence), whole(epoch), whole(generation), _texts(members))


def _read(value: dict[str, Any]) -> RegionRecord:
    barrier, stopped = value.pop("barrier"), value.pop("stopped")
    return RegionRecord(
        region=text_of(value.pop("region")),
        group=text_of(value.pop("group")),
        barrier=None if barrier is None else _barrier(*barrier),
        complete=tuple(map(whole, value.pop("complete"))),
        contributions=tuple(
            Contribution(
                text_of(member),
                MappingProxyType(read_positions(offsets)),
                StateReference(digest_of(hex_), whole(length)),
            )
            for member, offsets, hex_, length in value.pop("contributions")
        ),
        deadline=_seconds(value.pop("deadline")),
        handed=MappingProxyType(read_positions(value.pop("handed", {}))),
        held=MappingProxyType(read_holders(value.pop("held", {}))),
        initial=MappingProxyType(read_positions(value.pop("initial"))),
        last_at=_seconds(value.pop("last_at")),
        moved=_texts(value.pop("moved", ())),
        members=MappingProxyType({text_of(name): _member(*one) for name, one in value.pop("members").items()}),
        past=_past(*value.pop("past")),
        stopped=None if stopped is None else text_of(stopped),
        **{name: whole(number) for name, number in value.items()},
    )


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


def plain_holders(held: Mapping[TopicPartition, str]) -> dict[str, dict[str, str]]:
    """topic -> partition -> member, as JSON takes it."""
    topics: dict[str, dict[str, str]] = {}
    for partition, name in sorted(held.items()):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = name
    return topics


def read_holders(topics: Mapping[str, Mapping[str, str]]) -> dict[TopicPartition, str]:
    """The other way."""
    return {
        TopicPartition(text_of(topic), int(number)): text_of(name)
        for topic, numbers in topics.items()
        for number, name in numbers.items()
    }
