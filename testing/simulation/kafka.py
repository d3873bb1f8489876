"""Kafka, as a region sees it: logs with gaps, one EAGER group, and a consumer whose hooks run inside poll."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from random import Random
from typing import Any, Protocol, SupportsIndex, overload
from uuid import UUID

from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.errors import RegionError
from kohort.consistent_region.offsets import NO_EPOCH, RegionPosition
from kohort.consistent_region.settings import RegionSettings
from kohort.coordinator_client.errors import TopicRecreated, Truncation
from kohort.coordinator_client.hooks import Assigned, Lost, RebalanceCause, RebalanceHooks, RebalanceReason, Revoked
from kohort.coordinator_client.offset_reset import OffsetReset
from kohort.network.errors import OperationTimeout
from kohort.network.group_types import OffsetAndMetadata
from kohort.protocol.errors import BrokerError, ErrorCode
from kohort.testing.simulation.faults import Faults

TOPIC = "t"
CAUSE = RebalanceCause(RebalanceReason.REBALANCE_IN_PROGRESS)
FIRST_TOPIC_ID = 7
OFFSET_BITS, EPOCHS_OF_A_TOPIC = 32, 1_000
ALL = 1 << OFFSET_BITS
SESSION_S, REBALANCE_S = 3.0, 4.0


class Violation(BaseException):
    """An invariant does not hold. No Exception, so that nothing takes it for a handler's."""


class SimRecord(NamedTuple):
    """A record of the simulated log. Key and value follow from its position.

    `log`: the number of the log it is in. After a truncation, and in a topic that was created again, it is another one.
    """

    topic: str
    partition: int
    offset: int
    log: int = 0

    @property
    def identity(self) -> int:
        """The number of this record among all that its partition ever had."""
        return self.log << OFFSET_BITS | self.offset

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
    """Partitions with offsets that have gaps, as compaction and transactions leave them.

    `epochs`: the leaders of each partition, as (first offset, epoch). `topics`: the number of topics of this name.
    `former`: the identities in each log of a partition before it was truncated or deleted.
    """

    def __init__(self, partitions: int) -> None:
        self.offsets: dict[TopicPartition, list[int]] = {TopicPartition(TOPIC, n): [] for n in range(partitions)}
        self.ends: dict[TopicPartition, int] = dict.fromkeys(self.offsets, 0)
        self.epochs: dict[TopicPartition, list[tuple[int, int]]] = {one: [(0, 0)] for one in self.offsets}
        self.topics = 1
        self.former: dict[TopicPartition, list[list[int]]] = {}

    @property
    def topic_id(self) -> UUID:
        return UUID(int=FIRST_TOPIC_ID + self.topics)

    def append(self, partition: TopicPartition, gap: int) -> None:
        offset = self.ends[partition] + gap
        self.offsets[partition].append(offset)
        self.ends[partition] = offset + 1

    def add(self) -> TopicPartition:
        partition = TopicPartition(TOPIC, len(self.offsets))
        self.offsets[partition], self.ends[partition], self.epochs[partition] = [], 0, [(0, 0)]
        if self.topics > 1:
            self.former[partition] = []  # its records are of this topic, and not of the first
        return partition

    def truncate(self, partition: TopicPartition, end: int) -> None:
        """An unclean election: the records from `end` on are lost, and the next ones are of a new leader."""
        self.former.setdefault(partition, []).append(self.identities(partition, 0, ALL))
        offsets, epochs = self.offsets[partition], self.epochs[partition]
        del offsets[bisect_left(offsets, end) :]
        self.ends[partition] = end
        self.epochs[partition] = [*(one for one in epochs if one[0] < end), (end, epochs[-1][1] + 1)]

    def recreate(self) -> None:
        """The topic is deleted, and created again with as many partitions."""
        for partition in self.offsets:
            self.former.setdefault(partition, []).append(self.identities(partition, 0, ALL))
            self.offsets[partition], self.ends[partition], self.epochs[partition] = [], 0, [(0, 0)]
        self.topics += 1

    def epoch_of(self, partition: TopicPartition, offset: int) -> int:
        """The leader epoch of the record at an offset."""
        epochs = self.epochs[partition]
        return epochs[max(bisect_right(epochs, (offset, ALL)) - 1, 0)][1]

    def end_of(self, partition: TopicPartition, epoch: int) -> int:
        """The end of what this leader and those before it wrote (KIP-320); for no epoch the end of the log."""
        later = (start for start, one in self.epochs[partition] if one > epoch)
        return self.ends[partition] if epoch == NO_EPOCH else next(later, self.ends[partition])

    def between(self, partition: TopicPartition, start: int, stop: int) -> list[int]:
        offsets = self.offsets[partition]
        return offsets[bisect_left(offsets, start) : bisect_left(offsets, stop)]

    def records(self, partition: TopicPartition, start: int, stop: int) -> list[SimRecord]:
        offsets = self.between(partition, start, stop)
        if partition not in self.former:
            return [SimRecord(*partition, one) for one in offsets]
        first = (self.topics - 1) * EPOCHS_OF_A_TOPIC
        return [SimRecord(*partition, one, first + self.epoch_of(partition, one)) for one in offsets]

    def identities(self, partition: TopicPartition, start: int, stop: int) -> list[int]:
        """The identities of these records."""
        if partition not in self.former:
            return self.between(partition, start, stop)
        return [one.identity for one in self.records(partition, start, stop)]


class KafkaWorld(Protocol):
    """The parts of a world that its group and its consumers use."""

    now: float
    chance: Random
    settings: RegionSettings
    cut_until: dict[str, float]
    log: SimLog
    faults: Faults
    events: Counter[str]

    @property
    def group(self) -> "SimGroup": ...
    @property
    def commits_may_be_late(self) -> bool: ...
    def count_fault(self, event: str) -> None: ...
    def requested(self, *, failed: bool = False) -> None: ...
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
    late: list[tuple[float, "SimCommit"]] = field(default_factory=list)

    def commit(self, request: "SimCommit") -> bool:
        """Handle a commit that arrives now. False if the group, or the topic, has gone on without its sender."""
        if request.generation != self.generation or self.joining_since is not None:
            return False
        if request.topic_id != self.world.log.topic_id:
            return False
        self.committed |= request.offsets
        return True

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
        for due_at, request in [one for one in self.late if one[0] <= now]:
            self.late.remove((due_at, request))
            self.commit(request)
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


class SimCommit(NamedTuple):
    """A commit on its way to the group's coordinator."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    generation: int
    topic_id: UUID


class SimConsumer:
    """The part of `kohort.Consumer` that a region uses: hooks inside poll, positions, and no record of a past epoch."""

    def __init__(self, world: KafkaWorld, member: str) -> None:
        self.world = world
        self.member = member
        self.hooks: RebalanceHooks | None = None
        self.on_gap: Callable[[OffsetReset], None] | None = None
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.positions: dict[TopicPartition, RegionPosition] = {}
        self.generation = -1
        self.paused = False
        self.held: set[TopicPartition] = set()
        self.lives = 0

    @property
    def cut_off(self) -> bool:
        return self.world.now < self.world.cut_until.get(self.member.partition("#")[0], 0.0)

    def poll(self, timeout_s: float) -> list[SimColumns]:
        group, chance = self.world.group, self.world.chance
        assert self.hooks is not None
        if self.cut_off:
            return []  # neither the group nor the log can be reached
        if self._breaks():
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
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
        self._validate()
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
            self.world.events["partitions revoked alone"] += len(gone)
            group.rebalance()  # so that others may have it
            if self.world.chance.random() < 0.5:
                return  # what is kept is read on until the other hook comes
        new = mine - self.assignment
        response = self.hooks.on_assigned(Assigned(new, mine, generation, CAUSE)) or {}
        assert isinstance(response, Mapping)
        kept = {one: at for one, at in self.positions.items() if one in self.assignment}
        starts = {**dict.fromkeys(new, 0), **group.committed, **response}
        self.positions = {one: self._position(starts[one]) for one in new} | kept
        self.assignment, self.generation = mine, generation

    def _position(self, start: int | OffsetAndMetadata) -> RegionPosition:
        at = OffsetAndMetadata(start) if isinstance(start, int) else start
        return RegionPosition(at.offset, at.leader_epoch, self.world.log.topic_id)

    def _validate(self) -> None:
        """Compare the positions with the logs, as a consumer does that sees a new leader, or another topic id."""
        log = self.world.log
        for partition in sorted(self.assignment & log.former.keys()):
            at = self.positions[partition]
            if at.topic_id != log.topic_id:
                raise TopicRecreated("the topic was created again", **partition._asdict(), offset=at.offset)
            if at.offset <= log.end_of(partition, at.leader_epoch):
                continue
            if at.leader_epoch != NO_EPOCH:
                raise Truncation("the log was truncated", **partition._asdict(), offset=at.offset)
            assert self.on_gap is not None
            self.positions[partition] = at._replace(offset=0)
            self.on_gap(OffsetReset(partition, at.offset, 0, "the position is behind the end of the log"))

    def _fetch(self) -> list[SimColumns]:
        if self.paused:
            return []
        log, fetched = self.world.log, list[SimColumns]()
        left = self.world.settings.max_poll_records
        for partition in sorted(self.assignment - self.held):
            if self.world.chance.random() < 0.3 or not left:
                continue
            at = self.positions[partition]
            stop = min(at.offset + self.world.chance.randint(1, min(left, 6)), log.ends[partition])
            if stop <= at.offset:
                continue
            if records := log.records(partition, at.offset, stop):
                left -= len(records)
                fetched.append(SimColumns(partition, records, stop))
            self.positions[partition] = RegionPosition(stop, log.epoch_of(partition, stop - 1), at.topic_id)
        return fetched

    def seek(self, partition: TopicPartition, offset: int, *, leader_epoch: int = -1) -> None:
        holds(partition in self.assignment, "seek", f"{partition} is not assigned")
        self.positions[partition] = self._position(OffsetAndMetadata(offset, leader_epoch))

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        self.held.update(partitions)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        self.held.difference_update(partitions)

    def commit_async(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], on_done: Any, *, allow_rewind: bool = False
    ) -> None:
        world, group = self.world, self.world.group
        if self.cut_off:
            on_done(offsets, RegionError("not committed"))
            return
        ids = {at.topic_id for one, at in self.positions.items() if one in offsets} or {world.log.topic_id}
        request = SimCommit(dict(offsets), self.generation, min(ids))
        if world.chance.random() < world.faults.commit_late and world.commits_may_be_late:
            world.count_fault("late commit")
            group.late.append((world.now + world.chance.choice([0.1, 1.0, 3.0]), request))
            on_done(offsets, OperationTimeout("no response to the commit"))
            return
        on_done(offsets, None if group.commit(request) else RegionError("not committed"))

    def group_members(self, timeout_s: float) -> list[Any]:
        return []

    def topic_id(self, topic: str) -> UUID:
        return self.world.log.topic_id

    def position_of(self, partition: TopicPartition, timeout_s: float | None = None) -> RegionPosition:
        return self.positions[partition]

    def committed(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, Any]:
        self._request()
        return {one: self.world.group.committed.get(one) for one in partitions}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._request()
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> dict[TopicPartition, int]:
        self._request()
        return {one: self.world.log.ends[one] for one in partitions}

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        raise NotImplementedError

    def _request(self) -> None:
        if self._breaks():
            raise OperationTimeout("no response from a broker")

    def _breaks(self) -> bool:
        world = self.world
        if breaks := world.chance.random() < world.faults.broker:
            world.requested(failed=True)
            world.count_fault("broker error")
        return breaks

    def partitions_for(self, topic: str, *, fresh: bool = False) -> list[TopicPartition]:
        return sorted(self.world.log.offsets)
