"""The world itself: a log, a group, a flaky store, nodes that are killed, stopped and cut off, and the checks of it.

The members are conducted by `kohort.consistent_region.region_driver`, the code that also runs on a real broker; the
world only plays Kafka and the store. One seed decides everything, the kinds and rates of faults among it, so that a
seed that fails is run again by its number. `run(seed)` returns what happened, or raises `Violation`.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any

from kohort.common.errors import KohortError
from kohort.common.state_table import IllegalTransition
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region import events as ev
from kohort.consistent_region.checkpoint_barrier import Barrier, CheckpointTicket, MembershipView
from kohort.consistent_region.coordinator import RegionCoordinator, TaskStarts
from kohort.consistent_region.coordinator_rules import in_use
from kohort.consistent_region.effects import SinkPlace, unpacked
from kohort.consistent_region.errors import (
    ConfigurationError,
    CoordinatorUnavailable,
    FencedError,
    RegionError,
    StoreLost,
    StoreWentBack,
    TopicRecreatedError,
    TruncationError,
)
from kohort.consistent_region.manifest import TaskSnapshot, TaskState, decode
from kohort.consistent_region.offsets import Positions
from kohort.consistent_region.region_driver import RegionDriver
from kohort.consistent_region.region_member import RegionMember
from kohort.consistent_region.region_record import RegionRecord, decode_record
from kohort.consistent_region.settings import RegionSettings
from kohort.consistent_region.start_positions import StartPosition
from kohort.consistent_region.state import StateHandle
from kohort.consistent_region.states import SUBMITTING, RegionState
from kohort.consistent_region.store import Key, StoreTransaction
from kohort.consistent_region.task_states import TaskStates
from kohort.consistent_region.tasks import TaskId
from kohort.consistent_region.triggers import OperatorDriven, Periodic, Trigger
from kohort.consistent_region.witness import witness_of
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.testing.simulation.faults import Faults, FlakyStore, Killed
from kohort.testing.simulation.history import SimBlocks, SimHistory, Twin, applied, joined, split
from kohort.testing.simulation.kafka import (
    ALL,
    OFFSET_BITS,
    TOPIC,
    SimConsumer,
    SimGroup,
    SimLog,
    SimRecord,
    Violation,
    holds,
)
from kohort.testing.simulation.target import SimSink, SimTarget, SinkRefused

GROUP, REGION = "g", "r"
LEAST_FAULTS, LEAST_CHECKPOINTS = 5, 3
# The errors that this world gives its members reasons for; any other end of a member is a violation.
REASONS = (CoordinatorUnavailable, FencedError, SinkRefused)
SETTLED_WITHIN_S = 120.0
QUIET_REQUESTS_S = 5.0
FAILED_TURNS_LEAST = 5  # before a member may give up its coordinator
# A second of short histories catches the deliberate faults about as often as a second of long ones.
LENGTHS_STEPS = (60, 60, 150, 400)


@dataclass(frozen=True, slots=True)
class UnderTest:
    """A state of the user's: how it is made, fed, and judged. `verify(states, records)` gets each task's snapshot in a
    complete checkpoint, and the records that all of them together must hold, each once."""

    state: Callable[[], StateHandle]
    handler: Callable[[Any, Any], object]
    verify: Callable[[Mapping[str, bytes], Sequence[SimRecord]], object]
    batch_records: int | None = None


_STEPS_S = (0.001, 0.01, 0.02, 0.08)
_QUIET_STEPS_S = (0.005, 0.01, 0.04, 0.1)
MOST_IN_TURN = 6
"""More processes than this share the time of a step, since they run beside each other."""


@lru_cache(maxsize=16)
def _decoded(data: bytes) -> RegionRecord:
    return decode_record(data)


class WatchedCoordinator(RegionCoordinator):
    """Checks the members whose contributions are accepted. All of them parse each record of the region once."""

    __slots__ = ()

    def _record(self, books: StoreTransaction) -> RegionRecord | None:
        data = books.get(Key("region", self.group))
        if data is None:
            return None
        if data != self._read[0]:
            self._read = (data, _decoded(data))
        return self._read[1]

    def take(self, *args: Any, **settings: Any) -> TaskStarts:
        response = RegionCoordinator.take(self, *args, **settings)
        events = self.store.world.events  # type: ignore[attr-defined]
        events["task handed over"] += sum(
            one.cut is not None and one.sequence is None for one in response.starts.values()
        )
        events["task waited for"] += len(response.waiting)
        events["task read in blocks"] += len(response.arriving)
        return response

    def contribute(
        self, ticket: CheckpointTicket, barrier: Barrier, cuts: Mapping[TaskId, TaskState]
    ) -> MembershipView:
        try:
            return RegionCoordinator.contribute(self, ticket, barrier, cuts)
        finally:
            self.store.world.check_writer(ticket, barrier)  # type: ignore[attr-defined]


class Node:
    """One process of a member, at a `place` where processes follow each other, each with a `name` of its own."""

    def __init__(self, world: "World", place: str, name: str = "") -> None:
        self.world = world
        self.place = place
        self.name = name or f"{place}-{world.serial()}"
        self.consumer = SimConsumer(world, place if world.faults.static else f"{place}#{world.serial()}")
        self.sink = SimSink(world)
        self.member = RegionMember(self.name, world.settings)
        coordinator = WatchedCoordinator(
            world.store,
            REGION,
            GROUP,
            world.store_clock,
            checkpoint_timeout_s=world.settings.checkpoint_timeout_s,
            lease_s=world.lease_s,
        )
        self.ahead_s = world.chance.choice([0.0, 7_000.0, 1e6])  # monotonic clocks begin anywhere
        self.states = TaskStates(self.made, {"out": self.sink})
        self.conductor = RegionDriver(
            self.member,
            coordinator,
            self.consumer,
            self.states,
            self.handle_record if world.batch_records is None else self.handle_batch,
            lambda: world.now + self.ahead_s,
            start=world.start,
            batch_records=world.batch_records,
            records_a_turn=world.records_a_turn,
        )
        self.consumer.hooks, self.consumer.on_gap = self.conductor, self.conductor.on_gap
        self.stopped_until = 0.0
        self.started = False
        self.requests = self.failures = self.failed_turns = 0  # calls of the store and of brokers; turns in a row
        self._before: tuple[int, ev.RecordLike] | None = None  # the last record, and how many were submitted before it

    def turn(self) -> None:
        if not self.started:
            self.states.open(SinkPlace(REGION, GROUP, lambda: ConsumerGroupMetadata(GROUP)))
            self.conductor.register()
            self.started = True
            self.conductor.subscribed()
            if self.world.faults.static and self.consumer.member in self.world.group.plan:
                # A static member gets its former assignment back, without a rebalance of the others.
                self.world.note(f"{self.name} is back")
        self.conductor.turn(0.0)

    def made(self, task: TaskId) -> StateHandle:
        history = SimBlocks() if self.world.writes_blocks else SimHistory()
        return history if self.world.under_test is None else Twin(history, self.world.under_test.state())

    def handle_record(self, record: ev.RecordLike, state: Any) -> None:
        self._handle(record, self._own(record, state))

    def handle_batch(self, records: ev.RecordSlice, state: Any) -> None:
        history = self._own(records, state)
        for record in records:
            self._handle(record, history)

    def _own(self, given: ev.RecordLike | ev.RecordSlice, state: Any) -> Any:
        """Have the handler under test handle a record, or a batch. Returns the history beside its state."""
        if self.world.under_test is None:
            return state
        self.world.under_test.handler(given, state.state)
        return state.history

    def _handle(self, record: ev.RecordLike, history: Any) -> None:
        world, member = self.world, self.member
        if world.chance.random() < world.faults.kill_in_handler:
            world.count_fault("killed in the handler")
            raise Killed
        assert isinstance(record, SimRecord)
        partition = TopicPartition(record.topic, record.partition)
        at = f"{self.name} {partition.partition}@{record.offset}"
        holds(member.state is RegionState.RECORDS_FETCHED, "I4", f"{at} in {member.state.name}")
        holds(member.phase in SUBMITTING, "I4", f"{at} in {member.phase.name}")
        position = member.offsets.next_of(partition)
        holds(position is not None, "I11", f"{at} is of a partition that is not counted for")
        assert position is not None
        begin, submitted = position.offset, member.metrics["records_submitted_total"]
        if self._before is not None and self._before[0] == submitted:  # both are under one permit
            before = self._before[1]
            holds(before.partition == record.partition, "I12", f"{at} is under the permit of {before}")
            begin = before.offset + 1
        self._before = submitted, record
        expected = world.log.identities(partition, begin, record.offset + 1)
        # What was read before its log was lost is in no log now.
        holds(expected == [record.identity] or world.lost(record), "I12", f"{at} after {begin}")
        key = (member.epoch, member.generation, partition)
        if member.generation >= 0:  # between two, what is kept is read on under neither
            holds(world.owners.setdefault(key, self.name) == self.name, "I3", f"{at}: {world.owners[key]} has it too")
        history.applied.setdefault(str(partition.partition), []).append(record.identity)
        self.sink.add(record.partition, record.identity)
        world.note(at)


class World:
    """Everything, and the checks of it."""

    def __init__(self, seed: int, under_test: UnderTest | None = None, *, hand_over: bool | None = None) -> None:
        self.seed = seed
        self.under_test = under_test
        self.chance = random.Random(seed)
        self.began_at = self.now = 1000.0
        self.drawn_faults = Faults.drawn(self.chance)
        self.faults = self.drawn_faults.without_faults()
        self.log = SimLog(self.chance.randint(1, 6))
        self.group = SimGroup(self)
        self.first_partitions = len(self.log.offsets)
        self.store: FlakyStore = FlakyStore(self)
        self.target = SimTarget()
        self.events: Counter[str] = Counter()
        self.highest: dict[TopicPartition, int] = {}  # the offsets that any complete checkpoint had
        self.outage_until = 0.0
        self.store_ahead_s = 0.0
        self.copies: list[tuple[int, dict[Key, bytes]]] = [(0, {})]  # of the store at some checkpoints, by the newest
        self.current: dict[Key, bytes] | None = None  # the store's values, while an older copy is in their place
        self.copy_until = 0.0
        self.cut_until: dict[str, float] = {}
        self.owners: dict[tuple[int, int, TopicPartition], str] = {}
        self.manifests: dict[int, dict[TopicPartition, int]] = {}
        self.positions: dict[int, Positions] = {}  # of the same checkpoints, with leader epochs
        self.forgotten: dict[TopicPartition, list[int]] = {}  # records of deleted topics that the states keep
        self.forgotten_up_to = 0  # older checkpoints are of a deleted topic
        self.barriers: set[int] = set()  # the sequences of those that began
        self.truncated_at = self.recreated_at = inf  # when an operator sees to it
        self.initial: dict[TopicPartition, int] = {}
        self.checkpoints = self.faults_done = self.deaths = self.epochs = 0
        self.requested_at = 0.0  # a checkpoint, by an operator
        self._serials = 0
        self._checked = b""
        self._retired_up_to = 0
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self._trace = hashlib.sha256()
        self.records_a_turn: int = self.chance.choice([1, 3, 100])
        self.writes_blocks = under_test is None and self.chance.random() < 0.5
        drawn = self.chance.choice([None, None, 2, 100])
        self.batch_records: int | None = drawn if under_test is None else under_test.batch_records
        trigger: Trigger = (Periodic(0.5), Periodic(3.0), OperatorDriven(5))[self.chance.randrange(3)]
        self.commit_point = self.chance.choice(["checkpoint_complete", "checkpoint_complete", "drain"])
        self.settings: RegionSettings = RegionSettings(
            trigger=trigger,
            commit_point=self.commit_point,  # type: ignore[arg-type]
            max_poll_records=self.chance.choice([3, 10]),
            drain_timeout_s=8.0,
            checkpoint_timeout_s=3.0,
            look_interval_s=self.chance.choice([0.05, 0.5]),
            hand_over=seed % 2 == 1 if hand_over is None else hand_over,
        )
        self.lease_s: float = self.chance.choice([2.0, 6.0])
        kind = self.chance.choice(["beginning", "end", "default"])
        self.start: StartPosition = StartPosition(kind)  # type: ignore[arg-type]
        for partition in self.log.offsets:
            for _ in range(self.chance.randint(0, 8)):
                self.log.append(partition, self.chance.choice([0, 0, 0, 1, 3]))
        names = [f"m{number}" for number in range(self.chance.randint(3, 4))]
        self.nodes: dict[str, Node | None] = {name: Node(self, name) for name in names}
        self.restart_at: dict[str, float] = {}
        self.gone: set[str] = set()  # for good
        self.ghosts: list[Node] = []  # processes that live on under a name which another has taken
        self.running: list[Node] = []
        self.writing = True
        self.copied = False  # an older store was in place at some time

    def store_clock(self) -> float:
        return self.now + self.store_ahead_s

    def serial(self) -> int:
        self._serials += 1
        return self._serials

    def note(self, text: str) -> None:
        self._trace.update(f"{self.now:.3f} {text}\n".encode())

    @property
    def trace(self) -> str:
        return self._trace.hexdigest()

    # --- life

    def run(self, steps: int) -> None:
        """So many steps with faults, then without; raises Violation.

        In most histories the faults begin behind the first complete checkpoint, since faults before it harm little.
        """
        if self.chance.random() < 0.7:
            deadline = self.now + SETTLED_WITHIN_S
            while not self.checkpoints:
                self._write()
                self._quiet_step()
                holds(self.now < deadline, "I14", f"no checkpoint in {SETTLED_WITHIN_S} s without a fault")
        self.faults = self.drawn_faults
        for _ in range(steps):
            self.step()
        while self.faults_done < LEAST_FAULTS:
            self._break_something()
            for _ in range(10):
                self.step()
        self.faults = self.faults.without_faults()
        self._bring_back()
        self.writing = False
        self.outage_until = 0.0
        self.cut_until.clear()
        self.calm_down()

    def calm_down(self) -> None:
        """Faults are over: everything written must be in a complete checkpoint soon (I14), and a few more come."""
        deadline = self.now + SETTLED_WITHIN_S
        steps = 0
        while not self.settled() or not self.followed() or self.checkpoints < LEAST_CHECKPOINTS:
            self._quiet_step()
            steps += 1
            late = f"{SETTLED_WITHIN_S} s after the last fault"
            holds(self.now < deadline or self.settled(), "I14", f"not settled {late}")
            holds(self.now < deadline, "I20", f"the group has not committed the newest checkpoint {late}")
        holds(steps < 20_000, "I14", f"{steps} steps")
        for partition, end in self.final_offsets().items():
            holds(not self.log.between(partition, end, 1 << 60), "I1", f"{partition} ends at {end}")
            wanted = set(self.log.identities(partition, self.initial[partition], end))
            rows = self.target.rows.get(partition, {}).keys()
            former = {one for log in self.log.former.get(partition, ()) for one in log}
            holds(rows >= wanted, "I16", f"the effects of {partition} lack {wanted - rows}")
            holds(rows <= wanted | former, "I16", f"the effects of {partition} have {rows - wanted - former} besides")
        self._check_kept()

    def _quiet_step(self) -> None:
        """A step without a fault. An operator requests checkpoints, with pauses in which records are read."""
        if isinstance(self.settings.trigger, OperatorDriven) and self.now >= self.requested_at:
            self.requested_at = self.now + QUIET_REQUESTS_S
            for node in self.nodes.values():
                if node is not None:
                    node.member.make_consistent(self.now + node.ahead_s)
        self.step(quiet=True)

    def _check_kept(self) -> None:
        """Every checkpoint that is kept can be gone back to."""
        coordinator = RegionCoordinator(self.store.calm(), REGION, GROUP, self.store_clock)
        for sequence in coordinator.checkpoints():
            for cut in coordinator.whole(sequence).tasks:
                self._state(cut)

    def lost(self, record: SimRecord) -> bool:
        """True if the record was in a log that was truncated or deleted, and is in none now."""
        partition = TopicPartition(record.topic, record.partition)
        if partition not in self.log.former:
            return False
        return record.identity not in self.log.identities(partition, record.offset, record.offset + 1)

    def final_offsets(self) -> dict[TopicPartition, int]:
        """The final offsets of the newest complete checkpoint."""
        return self.manifests[max(self.manifests)]

    def settled(self) -> bool:
        """True if every node that is not gone for good is back, and all records are in a complete checkpoint and have
        their effects."""
        if not self.manifests or any(node is None for name, node in self.nodes.items() if name not in self.gone):
            return False
        newest = self.final_offsets()
        if newest.keys() != self.log.offsets.keys() or not self._on_the_log(max(self.manifests)):
            return False
        return all(
            not self.log.between(one, offset, ALL)
            and self.target.rows.get(one, {}).keys() >= set(self.log.identities(one, self.initial[one], offset))
            for one, offset in newest.items()
        )

    def followed(self) -> bool:
        """True if the group's committed offsets are those of the newest checkpoint."""
        return {one: at.offset for one, at in self.group.committed.items()} == self.final_offsets()

    def _on_the_log(self, sequence: int) -> bool:
        """True if the positions of a checkpoint are on the logs that there are now."""
        return all(
            at.topic_id == self.log.topic_id and at.offset <= self.log.end_of(one, at.leader_epoch)
            for one, at in self.positions[sequence].items()
        )

    def step(self, *, quiet: bool = False) -> None:
        """A little time passes; one node has a turn; everything is checked."""
        processes = sum(node is not None for node in self.nodes.values()) + len(self.ghosts)
        passed_s = self.chance.choice(_QUIET_STEPS_S if quiet else _STEPS_S)
        self.now += passed_s * min(1.0, MOST_IN_TURN / max(processes, 1))
        if self.current is not None and self.now >= self.copy_until:
            self._bring_back()
        if not quiet:
            self._write()
            self._harm()
        if self.current is None and self.now >= self.truncated_at:
            self._go_behind_the_truncation()
        if self.current is None and self.now >= self.recreated_at:
            self._forget_the_topic()
        for name, at in list(self.restart_at.items()):
            if self.now >= at:
                del self.restart_at[name]
                self.nodes[name] = Node(self, name)
        for name, node in self.nodes.items():
            if node is not None and self.now >= node.stopped_until and self.now >= self.cut_until.get(name, 0.0):
                self.group.beat(node.consumer.member)
        for ghost in self.ghosts:
            if self.now >= ghost.stopped_until:
                self.group.beat(ghost.consumer.member)
        self.group.tick()
        if living := self._living():
            self._turn(self.chance.choice(living))
        self._check()

    def _living(self) -> list["Node"]:
        return [node for node in (*self.nodes.values(), *self.ghosts) if node is not None]

    def interleave(self) -> None:
        """Between any two calls of one node to the coordinator, another may have its turn, and records may be
        written."""
        if self.writing and self.faults.interleaved and len(self.running) == 1 and self.chance.random() < 0.1:
            others = [node for node in self._living() if node is not self.running[0]]
            if others:
                self._write()
                self._turn(self.chance.choice(others))

    def _turn(self, node: "Node") -> None:
        if self.now < node.stopped_until:
            return
        self.running.append(node)
        requests, failures = node.requests, node.failures
        try:
            node.turn()
        except Killed:
            self._end(node, "killed")
        except (RegionError, IllegalTransition) as error:
            node.failed_turns += node.failures > failures
            known = isinstance(error, REASONS) or (self.copied and isinstance(error, StoreLost | StoreWentBack))
            known = known or (bool(self.log.former) and self._lost_log(error))
            if isinstance(error, CoordinatorUnavailable) and node.started:
                known = node.failed_turns >= FAILED_TURNS_LEAST
            holds(known, "I17", f"{node.name} ends by {type(error).__name__}: {error}")
            self.events["ended by an older store"] += isinstance(error, StoreLost | StoreWentBack)
            self._end(node, f"failed: {error}")
        else:
            if node.failures > failures:
                node.failed_turns += 1
            elif node.requests > requests:
                node.failed_turns = 0
        finally:
            self.running.pop()

    def _end(self, node: "Node", why: str) -> None:
        self.note(f"{node.name} {why}")
        if node in self.ghosts:
            self.ghosts.remove(node)
        elif self.nodes[node.place] is node:
            self._die(node.place)

    def requested(self, *, failed: bool = False) -> None:
        """The node that runs has called the store or a broker."""
        if self.running:
            self.running[-1].requests += 1
            self.running[-1].failures += failed

    def _lost_log(self, error: KohortError) -> bool:
        """True if a member ended because records are not in the log any more. An operator comes soon."""
        soon = self.now + self.chance.choice([0.2, 2.0])
        if isinstance(error, TopicRecreatedError):
            self.events["ended by a new topic"] += 1
            self.recreated_at = min(self.recreated_at, soon)
            return self.log.topics > 1
        if isinstance(error, TruncationError):
            self.events["ended by a truncation"] += 1
            self.truncated_at = min(self.truncated_at, soon)
            return True
        return False

    def _die(self, name: str) -> None:
        self.nodes[name] = None
        self.deaths += 1
        self.events["process ended"] += 1
        self.restart_at[name] = self.now + self.chance.choice([0.1, 1.0, 5.0])

    def _break_something(self) -> None:
        """For seeds that drew a kind world: a fault all the same."""
        name = self.chance.choice(sorted(self.nodes))
        node = self.nodes[name]
        kind = self.chance.randrange(4)
        self.faults_done += 1
        if kind == 0 and node is not None:
            self._die(name)
        elif kind == 1 and node is not None:
            node.stopped_until = self.now + 4.0
        elif kind == 2:
            self.cut_until[name] = self.now + 4.0
        else:
            self.outage_until = self.now + 1.0

    def count_fault(self, event: str) -> None:
        """Count a fault that was done."""
        self.faults_done += 1
        self.events[event] += 1

    def _write(self) -> None:
        if self.chance.random() < 0.3:
            self.log.append(self.chance.choice(sorted(self.log.offsets)), self.chance.choice([0, 0, 0, 1, 5]))

    def _harm(self) -> None:
        chance, faults = self.chance, self.faults
        name = chance.choice(sorted(self.nodes))
        node = self.nodes[name]
        if node is not None and chance.random() < faults.kill:
            self.note(f"{name} kill -9")
            self._die(name)
            self.count_fault("killed")
        if node is not None and chance.random() < faults.gone and len(self.gone) + 1 < len(self.nodes):
            self.note(f"{name} is gone for good")
            self._die(name)
            self.restart_at[name] = inf
            self.gone.add(name)
            self.count_fault("gone for good")
        node = self.nodes[name]
        if node is not None and chance.random() < faults.stop:
            node.stopped_until = self.now + chance.choice([0.3, 4.0, 8.0])
            self.count_fault("process stopped")
        if node is not None and node.started and not faults.static and chance.random() < faults.ghost:
            self.note(f"{name} is started a second time")
            self.ghosts.append(node)
            self.nodes[name] = Node(self, name, node.name if chance.random() < 0.5 else "")
            self.count_fault("second process")
        if node is not None and node.started and chance.random() < faults.leave:
            self.note(f"{name} leaves")
            self._die(name)
            self._stop(node)
            self.events["graceful stop"] += 1
        if self.current is None and chance.random() < faults.operator:
            self._operate()
        if self.current is None and chance.random() < faults.store_back:
            self._put_copy()
        if chance.random() < faults.store_clock:
            self.store_ahead_s += chance.choice([-20.0, -2.0, 2.0])
            self.count_fault("store clock changed")
        if chance.random() < faults.cut:
            self.cut_until[name] = self.now + chance.choice([0.3, 4.0, 8.0])
            self.count_fault("cut off")
        if chance.random() < faults.outage:
            self.outage_until = self.now + chance.choice([0.2, 2.0])
            self.count_fault("store unreachable")
        if self.current is None and len(self.log.offsets) < 8 and chance.random() < faults.add_partition:
            self.log.append(self.log.add(), 0)
            self.group.rebalance()
            self.count_fault("partition added")
        if self.initial and chance.random() < faults.truncate:
            self._truncate()
        if self.current is None and self.initial and chance.random() < faults.recreate:
            self.note("the topic is created again")
            self.log.recreate()
            self.group.committed.clear()
            self.count_fault("topic recreated")

    def _truncate(self) -> None:
        """A log loses its end. What is in it from before the region's beginning stays."""
        partition = self.chance.choice(sorted(self.log.offsets))
        end = self.log.ends[partition]
        begin = self.initial.get(partition, end)
        if begin >= end or self.log.topics > 1:
            return  # a forgotten topic has first offsets of its own
        self.log.truncate(partition, self.chance.randint(begin, end - 1))
        self.note(f"{partition} is truncated")
        self.count_fault("log truncated")

    def _go_behind_the_truncation(self) -> None:
        """An operator goes back to the newest checkpoint that is on the log."""
        self.truncated_at = inf
        sound = [one for one in self._operator().checkpoints() if one in self.manifests and self._on_the_log(one)]
        self._go_behind(max(sound, default=0))
        self.events["went behind a truncation"] += 1

    def _forget_the_topic(self) -> None:
        """An operator stops all members, and has the region forget the deleted topic."""
        self.recreated_at = self.now + 1.0
        for name, node in self.nodes.items():
            if node is not None:
                self._die(name)
            if name not in self.gone:
                self.restart_at[name] = inf
        self.ghosts.clear()
        operator = self._operator()
        before = operator.checkpoints()
        try:
            operator.forget([TOPIC])
        except ConfigurationError:
            return  # leases run still
        self.recreated_at = inf
        self.restart_at |= dict.fromkeys(self.nodes.keys() - self.gone, self.now)
        if before:
            for cut in operator.manifest(before[-1]).tasks:
                self.forgotten |= {TopicPartition(TOPIC, int(one)): at for one, at in self._state(cut)[0].items()}
        self.initial, self.highest = {}, {}
        self.forgotten_up_to = operator.look().newest or 0
        self.manifests = {self.forgotten_up_to: {}} if before else {}
        self.positions = {self.forgotten_up_to: {}} if before else {}
        self.copies = [(0, {})]
        self.events["topic forgotten"] += 1
        self.note("the topic is forgotten")

    def _operator(self) -> RegionCoordinator:
        return RegionCoordinator(self.store.calm(), REGION, GROUP, self.store_clock, lease_s=self.lease_s)

    @property
    def commits_may_be_late(self) -> bool:
        """False while another store is in place: a late commit would replace the evidence of the right one."""
        return self.current is None

    def _put_copy(self) -> None:
        """An older copy of the store, or an empty one, takes its place, until an operator brings the current one back.

        Only where every partition has a commit that names a later checkpoint: without evidence nothing is noticed.
        """
        witnesses = [witness_of(at.metadata) for at in self.group.committed.values()]
        if self.group.late or not self.group.committed.keys() >= self.log.offsets.keys():
            return
        oldest = min(one.sequence if one is not None else 0 for one in witnesses)
        usable = [values for newest, values in self.copies if newest < oldest]
        if not usable:
            return
        values = self.chance.choice(usable)
        self.current = self.store.replaced(values)
        self.copy_until = self.now + self.chance.choice([0.3, 2.0, 6.0])
        self.copied = True
        self.count_fault("store went back" if values else "store lost")
        self.note("an older store")

    def _bring_back(self) -> None:
        if self.current is not None:
            self.store.replaced(self.current)
            self.current = None
            self.note("the store is back")

    def _stop(self, node: "Node") -> None:
        self.running.append(node)
        try:
            node.conductor.stop()
            self.group.leave(node.consumer.member)
        except Killed:
            self.note(f"{node.name} is killed while it stops")
        finally:
            self.running.pop()

    def _operate(self) -> None:
        """An operator goes back to a checkpoint, or deletes old ones."""
        coordinator = self._operator()
        there = [one for one in coordinator.checkpoints() if one >= self.forgotten_up_to]
        if not there:
            return
        sequence = self.chance.choice(there)
        if self.chance.random() < 0.5:
            coordinator.retire(sequence)
            self._retired_up_to = coordinator.record().retired_up_to
            self.events["retired"] += 1
            return
        self.events["went back"] += 1
        self._go_behind(sequence)

    def _go_behind(self, sequence: int) -> None:
        self.target.gone_behind.append(self.manifests.get(sequence, {}))
        self.manifests = {one: offsets for one, offsets in self.manifests.items() if one <= sequence}
        if sequence < self.forgotten_up_to:
            self.forgotten = {}
        self._operator().rewind(sequence)
        self.note(f"an operator went back to {sequence}")

    # --- checks

    def check_store(self) -> None:
        """After every transaction: what is written must make sense by itself."""
        data = self.store.get(Key("region", GROUP))
        if data is None or data == self._checked or self.current is not None:
            return
        self._checked = data
        record = _decoded(data)
        if record.initial and not self.initial:
            self.first_partitions = len(self.log.offsets)  # what comes later is discovered while running
        for partition, position in record.initial.items():
            before = self.initial.setdefault(partition, position.offset)
            holds(before == position.offset, "I7", f"{partition} began at {before}, now {position.offset}")
            added = partition.partition >= self.first_partitions
            holds(not added or position.offset == 0, "A10", f"{partition} was added, and begins at {position.offset}")
        holds(record.initial.keys() >= self.initial.keys(), "I7", "an initial offset is gone")
        holds(record.epoch >= self.epochs, "I8", "the epoch went back")
        self.epochs = record.epoch
        newest = record.newest
        if record.barrier is not None and record.barrier.sequence not in self.barriers:
            self.barriers.add(record.barrier.sequence)
            here = (record.epoch, record.barrier.generation)
            now = self.store_clock()
            left = [
                name
                for name, one in record.members.items()
                if one.owned and (one.epoch, one.generation) == here and one.here(now, self.lease_s)
                if name not in record.barrier.members
            ]
            holds(not left, "I21", f"checkpoint {record.barrier.sequence} began without {left}")
        holds(not self.manifests or (newest or 0) >= max(self.manifests), "I9", "the newest checkpoint is gone")
        if newest is not None and newest not in self.manifests:
            self._check_manifest(newest, record.initial)
            self._check_no_state_is_left(record)

    def _check_no_state_is_left(self, record: RegionRecord) -> None:
        """A checkpoint that retires another deletes the states that nothing needs any more."""
        if record.retired_up_to == self._retired_up_to:
            return
        self._retired_up_to = record.retired_up_to
        kept = (self.store.get(Key("manifest", GROUP, f"{one:020d}")) for one in record.complete)
        needed = in_use((decode(one) for one in kept if one is not None), record)
        left = set(self.store.names("state", GROUP)) - needed
        holds(not left, "I22", f"{len(left)} states are kept that nothing needs")

    def _check_manifest(self, sequence: int, initial: Positions) -> None:
        holds(not self.manifests or sequence > max(self.manifests), "I9", f"{sequence} is not the newest")
        data = self.store.get(Key("manifest", GROUP, f"{sequence:020d}"))
        assert data is not None
        manifest = decode(data, region=REGION, group=GROUP, sequence=sequence)
        offsets = {one: position.offset for one, position in manifest.offsets.items()}
        holds(offsets.keys() >= initial.keys(), "I6", f"checkpoint {sequence} lacks {initial.keys() - offsets.keys()}")
        states: dict[str, bytes] = {}
        records: list[SimRecord] = []
        for cut in manifest.tasks:
            found, states[str(cut.task)] = self._state(cut)
            numbers = {str(one.partition) for one in cut.offsets}
            holds(found.keys() <= numbers, "I15", f"task {cut.task} has records of partitions {found.keys() - numbers}")
            for partition, at in cut.offsets.items():
                applied = found.get(str(partition.partition), [])
                self._check_applied(sequence, partition, applied, initial[partition].offset, at.offset)
                records += [SimRecord(*partition, one % ALL, one >> OFFSET_BITS) for one in applied]
        if self.under_test is not None:
            self.under_test.verify(states, records)
        before = self.manifests[max(self.manifests)] if self.manifests else {}
        for partition, offset in before.items():
            holds(offsets[partition] >= offset, "I5", f"checkpoint {sequence} is behind the one before in {partition}")
        self.manifests[sequence], self.positions[sequence] = offsets, manifest.offsets
        self.highest = {one: max(at, self.highest.get(one, 0)) for one, at in offsets.items()}
        self.checkpoints += 1
        self.events["checkpoint"] += 1
        self.copies.append((sequence, self.store.copy()))
        self.note(f"checkpoint {sequence} {sorted(offsets.items())}")

    def _check_applied(
        self, sequence: int, partition: TopicPartition, applied: list[int], start: int, stop: int
    ) -> None:
        """A state has the records of one log, and before them those of a topic that was forgotten."""
        forgotten = self.forgotten.get(partition, [])
        wanted = forgotten + self.log.identities(partition, start, stop)
        # A checkpoint may be completed before anyone has noticed that its log was lost.
        former = self.log.former.get(partition, ())
        same = applied == wanted or any(
            applied == forgotten + [one for one in log if start <= one % ALL < stop] for log in former
        )
        holds(same, "I19" if former else "I1/I2", f"checkpoint {sequence}, {partition}: {applied} and not {wanted}")

    def _state(self, cut: TaskSnapshot) -> tuple[dict[str, list[int]], bytes]:
        """A stored state: the records that it has, and the state under test."""
        stored = []
        for one in cut.references:
            data = self.store.get(Key("state", GROUP, one.digest))
            holds(data is not None, "I18", f"the state {one.digest[:8]} is gone")
            assert data is not None
            stored.append(data)
        state, own = unpacked(stored[0])[0], b""
        if self.under_test is not None:
            state, own = split(state)
        self.events["checkpoint in blocks"] += bool(cut.blocks)
        return joined(stored[1:]) if cut.blocks else applied(state), own

    def check_writer(self, ticket: CheckpointTicket, barrier: Barrier) -> None:
        data = self.store.get(Key("region", GROUP))
        if data is None or self.current is not None:
            return  # another store is in place
        if f'"{ticket.member}"'.encode() not in data:
            return
        record = _decoded(data)
        if ticket.member in record.contributed and record.barrier == barrier:
            holds(record.members[ticket.member].incarnation == ticket.incarnation, "I8", f"{ticket} is a zombie")

    def _check(self) -> None:
        most = self.settings.queue_records + self.settings.max_poll_records
        for name, node in self.nodes.items():
            if node is not None and node.member.queued > most:
                raise Violation(f"I13: {name} queues {node.member.queued}")
        if self.commit_point == "checkpoint_complete" and self.group.committed != self._committed:
            self._committed = dict(self.group.committed)
            for partition, at in self._committed.items():
                holds(at.offset <= self.highest.get(partition, -1), "I10", f"{partition}: {at.offset} is committed")


def run(
    seed: int, steps: int | None = None, under_test: UnderTest | None = None, *, hand_over: bool | None = None
) -> World:
    """One history; odd seeds hand over by default. Raises Violation, with the seed to run it again."""
    world = World(seed, under_test, hand_over=hand_over)
    try:
        world.run(LENGTHS_STEPS[seed % len(LENGTHS_STEPS)] if steps is None else steps)
    except Violation as violation:
        raise Violation(f"seed {seed} at {world.now - world.began_at:.3f} s: {violation}") from violation
    return world
