"""Kafka, as a region sees it: logs with gaps, one EAGER group, and a consumer whose hooks run inside poll."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from random import Random
from typing import Any, Protocol, SupportsIndex, overload
from uuid import UUID

from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.errors import RegionError
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.settings import RegionSettings
from kohort.coordinator_client.hooks import Assigned, Lost, RebalanceCause, RebalanceHooks, RebalanceReason, Revoked
from kohort.network.group_types import OffsetAndMetadata

TOPIC = "t"
CAUSE = RebalanceCause(RebalanceReason.REBALANCE_IN_PROGRESS)
TOPIC_ID = UUID(int=7)
SESSION_S, REBALANCE_S = 3.0, 4.0


class Violation(BaseException):
    """An invariant does not hold. No Exception, so that nothing takes it for a handler's."""


class SimRecord(NamedTuple):
    """A record of the simulated log. Key and value follow from its position."""

    topic: str
    partition: int
    offset: int

    @property
    def key(self) -> bytes:
        return b"k%d" % ((self.partition + self.offset) % 7)

    @property
    def value(self) -> bytes:
        return b"%d-%d" % (self.partition, self.offset)

    @property
    def timestamp_ms(self) -> int:
        return self.offset

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return ()


class SimColumns:
    """Records of one partition, with the parts of `kohort.RecordColumns` that a handler of batches reads."""

    def __init__(self, of: TopicPartition, records: Sequence[SimRecord], next_offset: int) -> None:
        self.topic, self.partition = self._of = of
        self._records = records
        self.next_offset = next_offset

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[SimRecord]:
        return iter(self._records)

    @overload
    def __getitem__(self, place: SupportsIndex) -> SimRecord: ...
    @overload
    def __getitem__(self, place: slice) -> "SimColumns": ...
    def __getitem__(self, place: SupportsIndex | slice) -> "SimRecord | SimColumns":
        if not isinstance(place, slice):
            return self._records[index(place)]
        stop = place.indices(len(self))[1]
        next_offset = self._records[stop].offset if stop < len(self) else self.next_offset
        return SimColumns(self._of, self._records[place], next_offset)

    @property
    def offsets(self) -> list[int]:
        return [one.offset for one in self._records]

    @property
    def keys(self) -> list[bytes]:
        return [one.key for one in self._records]

    @property
    def values(self) -> list[bytes]:
        return [one.value for one in self._records]

    @property
    def timestamps_ms(self) -> list[int]:
        return [one.timestamp_ms for one in self._records]


def holds(condition: bool, invariant: str, text: str) -> None:
    """Raises Violation where `condition` is false; `invariant` is its id."""
    if not condition:
        raise Violation(f"{invariant}: {text}")


class SimLog:
    """Partitions with offsets that have gaps, as compaction and transactions leave them."""

    def __init__(self, partitions: int) -> None:
        self.offsets: dict[TopicPartition, list[int]] = {TopicPartition(TOPIC, n): [] for n in range(partitions)}
        self.ends: dict[TopicPartition, int] = dict.fromkeys(self.offsets, 0)

    def append(self, partition: TopicPartition, gap: int) -> None:
        offset = self.ends[partition] + gap
        self.offsets[partition].append(offset)
        self.ends[partition] = offset + 1

    def add(self) -> TopicPartition:
        partition = TopicPartition(TOPIC, len(self.offsets))
        self.offsets[partition], self.ends[partition] = [], 0
        return partition

    def between(self, partition: TopicPartition, start: int, stop: int) -> list[int]:
        offsets = self.offsets[partition]
        return offsets[bisect_left(offsets, start) : bisect_left(offsets, stop)]


class KafkaWorld(Protocol):
    """The parts of a world that its group and its consumers use."""

    now: float
    chance: Random
    settings: RegionSettings
    cut_until: dict[str, float]
    log: SimLog

    @property
    def group(self) -> "SimGroup": ...
    def serial(self) -> int: ...


@dataclass(slots=True)
class SimGroup:
    """The group's coordinator: EAGER, or COOPERATIVE where partitions are handed over; sessions by virtual time."""

    world: KafkaWorld
    generation: int = 0
    seen: dict[str, float] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    joining_since: float | None = None
    plan: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    owned: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    target: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    handed: int = 0

    def beat(self, member: str) -> None:
        if member in self.seen:
            self.seen[member] = self.world.now

    def rebalance(self) -> None:
        if self.joining_since is None:
            self.joining_since, self.joined = self.world.now, set()

    def join(self, member: str, owned: frozenset[TopicPartition] = frozenset()) -> None:
        if member not in self.seen:
            self.seen[member] = self.world.now
            self.rebalance()
        self.joined.add(member)
        self.owned[member] = owned

    def leave(self, member: str) -> None:
        if self.seen.pop(member, None) is not None:
            self.rebalance()

    def tick(self) -> None:
        now = self.world.now
        for member in [one for one, at in self.seen.items() if now - at > SESSION_S]:
            self.leave(member)
        if self.joining_since is None:
            return
        if now - self.joining_since > REBALANCE_S:
            for member in sorted(self.seen.keys() - self.joined):
                del self.seen[member]
        if self.seen and self.seen.keys() <= self.joined:
            self._assign()

    def _assign(self) -> None:
        members = sorted(self.seen)
        partitions = sorted(self.world.log.offsets)
        cooperative = self.world.settings.hand_over
        same = self.target.keys() == set(members) and sum(map(len, self.target.values())) == len(partitions)
        if not (cooperative and same and self.world.chance.random() < 0.9):
            self.world.chance.shuffle(members)  # any leader may return any assignment
            self.target = {member: frozenset(partitions[place :: len(members)]) for place, member in enumerate(members)}
        self.plan = self.target
        if cooperative:  # what another has still is not given yet (KIP-429)
            had = {one: member for member in members for one in self.owned.get(member, ())}
            self.plan = {
                member: frozenset(one for one in wanted if had.get(one, member) == member)
                for member, wanted in self.target.items()
            }
        self.generation += 1
        self.joining_since = None


class SimConsumer:
    """The part of `kohort.Consumer` that a region uses: hooks inside poll, positions, and no record of a past epoch."""

    def __init__(self, world: KafkaWorld, member: str) -> None:
        self.world = world
        self.member = member
        self.hooks: RebalanceHooks | None = None
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.positions: dict[TopicPartition, int] = {}
        self.generation = -1
        self.paused = False
        self.lives = 0

    @property
    def cut_off(self) -> bool:
        return self.world.now < self.world.cut_until.get(self.member.partition("#")[0], 0.0)

    def poll(self, timeout_s: float) -> list[SimColumns]:
        group, chance = self.world.group, self.world.chance
        assert self.hooks is not None
        if self.cut_off:
            return []  # neither the group nor the log can be reached
        if self.member not in group.seen:
            if self.generation >= 0:
                lost, generation = self.assignment, self.generation
                self.assignment, self.generation, self.positions = frozenset(), -1, {}
                self.hooks.on_lost(Lost(lost, generation, CAUSE))
            self.lives += 1
            self.member = f"{self.member.partition('#')[0]}#{self.world.serial()}"
            group.join(self.member)
        elif group.joining_since is not None and self.member not in group.joined:
            if self.assignment and not self.world.settings.hand_over:
                self.hooks.on_revoked(Revoked(self.assignment, self.assignment, self.generation, CAUSE))
                self.assignment, self.positions = frozenset(), {}
            group.join(self.member, self.assignment)
        group.tick()
        if chance.random() < 0.5:  # revoked and assigned come in one poll or in several (A4)
            self._take_assignment()
        return self._fetch()

    def _take_assignment(self) -> None:
        group = self.world.group
        if group.joining_since is not None or self.generation == group.generation or self.member not in group.plan:
            return
        assert self.hooks is not None
        mine, generation = group.plan[self.member], group.generation
        if gone := self.assignment - mine:
            self.hooks.on_revoked(Revoked(gone, self.assignment, self.generation, CAUSE))
            self.assignment &= mine
            group.handed += len(gone)
            group.rebalance()  # so that others may have it
            if self.world.chance.random() < 0.5:
                return  # what is kept is read on until the other hook comes
        new = mine - self.assignment
        response = self.hooks.on_assigned(Assigned(new, mine, generation, CAUSE)) or {}
        assert isinstance(response, Mapping)
        kept = {one: at for one, at in self.positions.items() if one in self.assignment}
        starts = {one: start if isinstance(start, int) else start.offset for one, start in response.items()}
        committed = {one: at.offset for one, at in group.committed.items()}
        self.positions = {one: starts.get(one, committed.get(one, 0)) for one in new} | kept
        self.assignment, self.generation = mine, generation

    def _fetch(self) -> list[SimColumns]:
        if self.paused:
            return []
        fetched: list[SimColumns] = []
        left = self.world.settings.max_poll_records
        for partition in sorted(self.assignment):
            if self.world.chance.random() < 0.3 or not left:
                continue
            start = self.positions[partition]
            stop = min(start + self.world.chance.randint(1, min(left, 6)), self.world.log.ends[partition])
            if offsets := self.world.log.between(partition, start, stop):
                left -= len(offsets)
                fetched.append(SimColumns(partition, [SimRecord(*partition, one) for one in offsets], stop))
            self.positions[partition] = max(start, stop)
        return fetched

    def seek(self, partition: TopicPartition, offset: int, *, leader_epoch: int = -1) -> None:
        holds(partition in self.assignment, "seek", f"{partition} is not assigned")
        self.positions[partition] = offset

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def commit_async(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], on_done: Any, *, allow_rewind: bool = False
    ) -> None:
        group = self.world.group
        if self.cut_off or self.generation != group.generation or group.joining_since is not None:
            on_done(offsets, RegionError("not committed"))
            return
        group.committed |= offsets
        on_done(offsets, None)

    def group_members(self, timeout_s: float) -> list[Any]:
        return []

    def topic_id(self, topic: str) -> UUID:
        return TOPIC_ID

    def position_of(self, partition: TopicPartition) -> RegionPosition:
        return RegionPosition(self.positions[partition], 0, TOPIC_ID)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Any]:
        return {one: self.world.group.committed.get(one) for one in partitions}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, int]:
        return {one: self.world.log.ends[one] for one in partitions}

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        raise NotImplementedError

    def partitions_for(self, topic: str) -> list[TopicPartition]:
        return sorted(self.world.log.offsets)
