"""A coordinator's state of one streams group: epochs, topology, members, tasks (rules: streams_coordinator.py).

A task is given to a member only once no other member has it. A member that must give up tasks keeps its epoch until it
has reported that it let them go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NamedTuple

from kohort.common.topic_partition import TopicPartition
from kohort.protocol.apis.streams_group_heartbeat import Endpoint, Topology
from kohort.testing.fake_broker.classic_group import Committed

FIRST_EPOCH = 1
"""The epoch of a group without members. The first member gets the next one."""


class StreamsTask(NamedTuple):
    """One partition of one subtopology."""

    subtopology: str
    partition: int


Tasks = frozenset[StreamsTask]
NONE: Tasks = frozenset()


class StreamsGroupState(Enum):
    """The states of a streams group, in their order of precedence after Empty."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(eq=False, slots=True)
class FakeStreamsMember:
    """A member as its coordinator sees it. `revoking`: tasks that it must give up and may still have."""

    member_id: str
    deadline: float
    client_id: str = ""
    process_id: str = ""
    topology_epoch: int = 0
    endpoint: Endpoint | None = None
    epoch: int = 0
    previous_epoch: int = 0
    active: Tasks = NONE
    revoking: Tasks = NONE
    standby: Tasks = NONE


@dataclass(eq=False, slots=True)
class StreamsGroup:
    """One group. `counts`: the number of tasks of each subtopology; empty while the topics are not ready."""

    kind: ClassVar = "streams"
    protocol_type: ClassVar = "streams"

    group_id: str
    topology: Topology
    epoch: int = FIRST_EPOCH
    target_epoch: int = FIRST_EPOCH
    members: dict[str, FakeStreamsMember] = field(default_factory=dict)
    target: dict[str, Tasks] = field(default_factory=dict)
    standby: dict[str, Tasks] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    standbys: int = 0
    shuts_down: bool = False
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if not self.counts:
            return StreamsGroupState.NOT_READY
        settled = (
            one.epoch == self.target_epoch and not one.revoking and one.active == self.target[name]
            for name, one in self.members.items()
        )
        return StreamsGroupState.STABLE if all(settled) else StreamsGroupState.RECONCILING

    def subscribed(self) -> frozenset[str]:
        """The topics from which the tasks of members read."""
        read = self.topology.subtopologies if self.members and self.counts else ()
        internal = (each.name for one in read for each in one.repartition_source_topics)
        return frozenset(name for one in read for name in one.source_topics).union(internal)

    def plan(self) -> None:
        """Share the tasks out evenly. A task stays with its member where that is even."""
        self.target_epoch = self.epoch
        tasks = [StreamsTask(name, number) for name, count in sorted(self.counts.items()) for number in range(count)]
        names = sorted(self.members)
        quota = -(-len(tasks) // len(names)) if names else 0
        shares: dict[str, list[StreamsTask]] = {name: [] for name in names}
        homeless = []
        for task in tasks:
            owner = next((name for name in names if task in self.members[name].active), None)
            if owner is not None and len(shares[owner]) < quota:
                shares[owner].append(task)
            else:
                homeless.append(task)
        for task in homeless if names else ():
            shares[min(names, key=lambda name: len(shares[name]))].append(task)
        self.target = {name: frozenset(share) for name, share in shares.items()}
        self.standby = dict.fromkeys(names, NONE)
        stateful = {one.subtopology_id for one in self.topology.subtopologies if one.state_changelog_topics}
        for task in tasks:
            hosts = {self.members[name].process_id for name in names if task in self.target[name]}
            others = [name for name in names if self.members[name].process_id not in hosts]
            for name in others[: self.standbys] if task.subtopology in stateful else ():
                self.standby[name] |= {task}

    def reconcile(self, member: FakeStreamsMember, reported: Tasks | None) -> None:
        """Move a member towards its target, with the active tasks that it has reported."""
        if reported is not None:
            member.revoking &= reported
        target = self.target.get(member.member_id, NONE)
        member.revoking |= member.active - target
        member.active &= target
        if member.revoking:
            return
        if member.epoch != self.target_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.target_epoch
        taken = NONE.union(*(one.active | one.revoking for one in self.members.values() if one is not member))
        member.active |= target - taken
        member.standby = self.standby.get(member.member_id, NONE)
