"""The target of the simulated members' effects: rows that a transaction writes with its note."""

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Protocol

from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.effects import DueEffects, SinkPlace, TaskTerm
from kohort.consistent_region.errors import RegionError
from kohort.consistent_region.tasks import TaskId
from kohort.consistent_region.witness import NO_COMMIT, Witness
from kohort.testing.simulation.faults import Faults, Killed
from kohort.testing.simulation.kafka import ALL, TOPIC, holds


class SinkRefused(RegionError):
    """The target refuses a commit, as the world has it."""


class SinkWorld(Protocol):
    """The parts of a world that its sinks use."""

    faults: Faults
    chance: Random

    @property
    def target(self) -> "SimTarget": ...
    def count_fault(self, event: str) -> None: ...


class SimTarget:
    """Rows of effects, one for the identity of each record, and the owner and note of each task."""

    def __init__(self) -> None:
        self.rows: dict[TopicPartition, dict[int, int]] = {}
        self.owners: dict[TaskId, TaskTerm] = {}
        self.notes: dict[TaskId, Witness] = {}
        self.gone_behind: list[Mapping[TopicPartition, int]] = []  # where an operator went back to

    def write(self, partition: TopicPartition, identity: int) -> None:
        rows = self.rows.setdefault(partition, {})
        rows[identity] = rows.get(identity, 0) + 1
        most = 1 + sum(identity % ALL >= at.get(partition, 0) for at in self.gone_behind)
        text = f"the effect of {partition.partition}@{identity} came {rows[identity]} times"
        holds(rows[identity] <= most, "I16", text)


class SimSink:
    """A `TransactionalSink` into the world's target."""

    refused_total = latest_term = 0

    def __init__(self, world: SinkWorld) -> None:
        self._world = world
        self._terms: dict[TaskId, TaskTerm] = {}
        self._collected: dict[TaskId, list[str]] = {}
        self._selected: list[str] = []

    def add(self, partition: int, identity: int) -> None:
        self._selected.append(f"{partition}@{identity}")

    def open(self, place: SinkPlace) -> None:
        """Nothing to do."""

    def take(self, tasks: Collection[TaskId], term: TaskTerm) -> Mapping[TaskId, Witness]:
        target = self._world.target
        for task in tasks:
            target.owners[task] = max(term, target.owners.get(task, term), key=lambda one: one.number)
        self._terms |= dict.fromkeys(tasks, term)
        return {task: target.notes[task] for task in tasks if task in target.notes}

    def select(self, task: TaskId) -> None:
        self._selected = self._collected.setdefault(task, [])

    def pre_commit(self, task: TaskId) -> bytes:
        return " ".join(self._collected.get(task, ())).encode()

    def commit(self, due: Sequence[DueEffects], at: Witness) -> None:
        self._break()
        target = self._world.target
        for task, prepared, _offsets in due:
            if target.owners.get(task) != self._terms.get(task) or target.notes.get(task, NO_COMMIT).covers(at):
                continue
            for effect in b" ".join(prepared).decode().split():
                partition, _, identity = effect.partition("@")
                target.write(TopicPartition(TOPIC, int(partition)), int(identity))
            target.notes[task] = at
        self._break()

    def abort(self, task: TaskId) -> None:
        self._collected.setdefault(task, []).clear()

    def close(self) -> None:
        """Nothing to do."""

    def _break(self) -> None:
        world = self._world
        if world.chance.random() < world.faults.sink_kill:
            world.count_fault("killed at the sink")
            raise Killed
        if world.chance.random() < world.faults.sink_refused:
            world.count_fault("sink refused")
            raise SinkRefused("the target refuses the commit")
