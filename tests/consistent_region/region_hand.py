"""A conductor with its consumer played by hand, on a coordinator in memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, cast
from uuid import UUID

from kohort import TopicPartition
from kohort.consistent_region import DictState
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.effects import SinkPlace, TransactionalSink
from kohort.consistent_region.errors import CoordinatorUnavailable
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.region_driver import RegionDriver
from kohort.consistent_region.region_member import RegionMember
from kohort.consistent_region.settings import RegionSettings
from kohort.consistent_region.store import MemoryStore
from kohort.consistent_region.task_states import TaskStates
from kohort.consistent_region.triggers import Manual
from kohort.coordinator_client.hooks import Assigned, Lost, RebalanceCause, RebalanceReason, Revoked
from kohort.coordinator_client.offsets.describe_group import GroupMemberDescription
from kohort.network.errors import IllegalState, OperationTimeout
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.testing.simulation import SimRecord
from kohort.testing.simulation.kafka import SimColumns

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
CAUSE = RebalanceCause(RebalanceReason.REBALANCE_IN_PROGRESS)


class Where(NamedTuple):
    offset: int
    leader_epoch: int


class HandConsumer:
    """Gives what is put into `batches`; `ids` and `epochs` are what the cluster says now."""

    def __init__(self) -> None:
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.batches: list[Any] = []
        self.sought: dict[TopicPartition, tuple[int, int]] = {}
        self.lost_at_seek: set[TopicPartition] = set()
        self.committed_now: dict[TopicPartition, OffsetAndMetadata] = {}
        self.ids = {"t": UUID(int=1)}
        self.fresh_ids: dict[str, UUID] = {}
        self.end = 10_000
        self.epochs = {P0: 0, P1: 0}
        self.positions: dict[TopicPartition, int] = {}
        self.polls = 0
        self.waited_s = 0.0
        self.mates: list[GroupMemberDescription] | Exception = []
        self.paused: list[bool] = []
        self.held: set[TopicPartition] = set()

    def poll(self, timeout_s: float) -> list[SimColumns]:
        self.polls += 1
        self.waited_s += 0.0 if self.batches else timeout_s
        if not self.batches:
            return []
        batch = self.batches.pop(0)
        if isinstance(batch, Exception):
            raise batch
        for record in batch:
            self.positions[TopicPartition(record.topic, record.partition)] = record.offset + 1
        return [SimColumns(TopicPartition(*batch[0][:2]), batch, batch[-1].offset + 1)]

    def seek(self, partition: TopicPartition, offset: int, *, leader_epoch: int = -1) -> None:
        if partition in self.lost_at_seek:
            raise IllegalState("not assigned")
        self.sought[partition] = (offset, leader_epoch)
        self.positions[partition] = offset

    def pause(self) -> None:
        self.paused.append(True)

    def resume(self) -> None:
        self.paused.append(False)

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        self.held |= set(partitions)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        self.held -= set(partitions)

    def commit_async(self, offsets: Any, on_done: Any, *, allow_rewind: bool = False) -> None:
        self.committed_now |= offsets
        on_done(offsets, None)

    def group_members(self, timeout_s: float) -> list[GroupMemberDescription]:
        if isinstance(self.mates, Exception):
            raise self.mates
        return self.mates

    def topic_id(self, topic: str) -> UUID:
        return self.ids[topic]

    def position_of(self, partition: TopicPartition, timeout_s: float | None = None) -> Where:
        if partition not in self.positions:
            raise OperationTimeout("not known yet")
        return Where(self.positions[partition], self.epochs[partition])

    def committed(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> Mapping[TopicPartition, Any]:
        return {one: self.committed_now.get(one) for one in partitions}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, self.end)

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Any]:
        return dict.fromkeys(times_ms)

    def partitions_for(self, topic: str, *, fresh: bool = False) -> list[TopicPartition]:
        if fresh:
            self.ids |= self.fresh_ids
        return [P0, P1]


class HalfStore(MemoryStore):
    """Reads may fail while writes go through, and a write's response may be lost."""

    unreadable = False
    responses_lost = 0

    @contextmanager
    def transaction(self) -> Iterator[MemoryStore]:
        before = dict(self._values)
        with super().transaction() as books:
            yield books
        if self.responses_lost and self._values != before:
            self.responses_lost -= 1
            raise CoordinatorUnavailable("the response is lost")

    @contextmanager
    def read(self) -> Iterator[MemoryStore]:
        if self.unreadable:
            raise CoordinatorUnavailable("unreadable")
        with super().read() as books:
            yield books


class Listed:
    """A sink of texts, whose commits fail while `closed`."""

    refused_total = 3

    def __init__(self) -> None:
        self.collected: list[str] = []
        self.rows: list[bytes] = []

    def open(self, place: SinkPlace) -> None:
        assert place.group_metadata() == ConsumerGroupMetadata("g")

    def take(self, tasks: Any, term: Any) -> dict[Any, Any]:
        return {}

    def select(self, task: Any) -> None: ...

    def pre_commit(self, task: Any) -> bytes:
        return ",".join(self.collected).encode()

    def commit(self, due: Any, at: Any) -> None:
        self.rows += [part for one in due for part in one.prepared]

    def abort(self, task: Any) -> None:
        self.collected.clear()

    def close(self) -> None: ...


class Hand:
    """One member, `name`, of the region on `store`; the clock is `now`."""

    def __init__(
        self,
        store: MemoryStore,
        name: str = "a",
        sinks: Mapping[str, TransactionalSink] | None = None,
        batch_records: int | None = None,
        **settings: Any,
    ) -> None:
        self.now = 100.0
        self.consumer = HandConsumer()
        self.states = TaskStates(lambda _task: DictState(), sinks)
        self.states.open(SinkPlace("r", "g", lambda: ConsumerGroupMetadata("g")))
        self.member = RegionMember(name, RegionSettings(trigger=Manual(), **{"look_interval_s": 0.01, **settings}))
        self.coordinator = RegionCoordinator(store, "r", "g", lambda: self.now, lease_s=30.0)
        self.low = False
        self.conductor = RegionDriver(
            self.member,
            self.coordinator,
            self.consumer,
            self.states,
            self.handle,
            lambda: self.now,
            batch_records=batch_records,
            memory_low=lambda: self.low,
        )
        self.conductor.register()
        self.conductor.subscribed()

    @property
    def state(self) -> dict[str, Any]:
        """All tasks' states as one."""
        return {key: value for one in self.states.states.values() for key, value in cast(DictState, one).items()}

    def handle(self, record: Any, state: DictState) -> None:
        state[f"{record.partition}"] = [*state.get(f"{record.partition}", []), record.offset]

    def assigned(self, *partitions: TopicPartition, generation: int = 5) -> None:
        mine = frozenset(partitions)
        starts = self.conductor.on_assigned(Assigned(mine, mine, generation, CAUSE))
        self.consumer.assignment = mine
        self.starts = dict(starts or {})
        self.consumer.positions = dict.fromkeys(mine, 0) | {one: at.offset for one, at in self.starts.items()}

    def revoked(self, generation: int = 5) -> None:
        mine = self.consumer.assignment
        self.conductor.on_revoked(Revoked(mine, mine, generation, CAUSE))
        self.consumer.assignment = frozenset()

    def lost(self, generation: int = 5) -> None:
        self.consumer.assignment = frozenset()
        self.conductor.on_lost(Lost(frozenset(), generation, CAUSE))

    def reads(self, partition: TopicPartition, *offsets: int) -> None:
        self.consumer.batches.append([SimRecord(*partition, one) for one in offsets])
        self.turn()

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            self.now += 0.02
            self.conductor.turn(0.0)

    def until(self, reached: Callable[[], bool], *others: "Hand") -> None:
        for _ in range(500):
            if reached():
                return
            for one in (self, *others):
                one.now = self.now
                one.turn()
                self.now = one.now
        raise AssertionError("never")

    def checkpoint(self, *others: "Hand") -> int:
        before = self.member.base
        self.member.make_consistent(self.now)
        self.until(lambda: all(one.member.base != before for one in (self, *others)), *others)
        assert self.member.base is not None
        return self.member.base

    def manifest_positions(self) -> dict[TopicPartition, RegionPosition]:
        return dict(self.coordinator.manifest(self.coordinator.checkpoints()[-1]).offsets)
