"""A scripted member of a group of Kafka Streams, for the checks of `streams_groups.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self
from uuid import uuid4

from kohort.conformance.broker_under_test import Topic
from kohort.conformance.check_context import CheckContext
from kohort.conformance.errors import Blocked
from kohort.conformance.group_steps import ScriptedMember

ASSIGNED_S = 20.0
"""The longest wait for tasks: a broker waits 3 s for more members of a new group."""
Tasks = frozenset[tuple[str, int]]
"""(subtopology id, partition) pairs."""
NOTHING: Mapping[str, object] = {"active_tasks": (), "standby_tasks": (), "warmup_tasks": ()}


class ScriptedStreamsMember(ScriptedMember):
    """A scripted member with a process of its own. `active` are the tasks of the last response that had tasks."""

    heartbeat = "StreamsGroupHeartbeat"

    def __init__(self, scene: CheckContext, topology: Mapping[str, object]) -> None:
        super().__init__(scene)
        self.topology = topology
        self.process = str(uuid4())
        self.active: Tasks = frozenset()
        self.standby: Tasks = frozenset()
        self.status: frozenset[int] = frozenset()

    async def beat(self, **changes: object) -> Any:
        """Send one heartbeat of the current epoch. A successful response is kept."""
        response = await super().beat(**{"endpoint_information_epoch": 0} | changes)
        if response.error_code == 0:
            self.status = frozenset(one.status_code for one in response.status or ())
            if response.active_tasks is not None:
                self.active, self.standby = tasks_of(response.active_tasks), tasks_of(response.standby_tasks or ())
        return response

    async def join(self, **changes: object) -> Any:
        """Send the first heartbeat."""
        first = {"rebalance_timeout_ms": 60_000, "topology": self.topology, "process_id": self.process}
        return await super().join(**{**first, **NOTHING, **changes})

    async def report(self, active: Iterable[tuple[str, int]] | None = None) -> Any:
        """Send a heartbeat with the active tasks that the member has."""
        named = as_tasks(self.active if active is None else active)
        return await self.beat(**{**NOTHING, "active_tasks": named, "standby_tasks": as_tasks(self.standby)})

    async def joined(self, tasks: int) -> Self:
        """Join, and report until the member has so many active tasks. Raises Blocked."""
        await self.enter()
        if not await self.gets(tasks):
            raise Blocked(f"{len(self.active)} of {tasks} tasks after {ASSIGNED_S:g} s, status {set(self.status)}")
        return self

    async def gets(self, tasks: int) -> bool:
        """Report until the member has so many active tasks. Returns False if it does not get them in time."""

        async def has_them() -> bool:
            await self.report()
            return len(self.active) == tasks

        return len(self.active) == tasks or await self.scene.until(has_them, ASSIGNED_S)


def tasks_of(given: Iterable[Any]) -> Tasks:
    """The tasks of a field of a response."""
    return frozenset((one.subtopology_id, number) for one in given for number in one.partitions)


def as_tasks(tasks: Iterable[tuple[str, int]]) -> tuple[dict[str, object], ...]:
    """The tasks as a request has them."""
    names = sorted({name for name, _number in tasks})
    return tuple(
        {"subtopology_id": name, "partitions": tuple(sorted(number for each, number in tasks if each == name))}
        for name in names
    )


def subtopology(sources: Sequence[str], **changes: object) -> dict[str, object]:
    """Subtopology "0", which reads these topics."""
    empty: dict[str, object] = {
        "subtopology_id": "0",
        "source_topics": tuple(sources),
        "source_topic_regex": (),
        "state_changelog_topics": (),
        "repartition_sink_topics": (),
        "repartition_source_topics": (),
        "copartition_groups": (),
    }
    return empty | changes


def topology(*sources: str, epoch: int = 0, **changes: object) -> dict[str, object]:
    """A topology of one subtopology; see `subtopology` for the changes."""
    return {"epoch": epoch, "subtopologies": (subtopology(sources, **changes),)}


def internal_topic(name: str, partitions: int = 0) -> dict[str, object]:
    """A changelog; 0 partitions let the broker choose."""
    return {"name": name, "partitions": partitions, "replication_factor": 1, "topic_configs": ()}


def member_of(scene: CheckContext, topic: Topic | None = None) -> ScriptedStreamsMember:
    """A member that has not joined, which reads one topic."""
    return ScriptedStreamsMember(scene, topology((topic or scene.topic).name))
