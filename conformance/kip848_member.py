"""A scripted member of a KIP-848 group, and groups of them, for the checks of `kip848.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from kohort.conformance.broker_under_test import Topic
from kohort.conformance.check_context import CheckContext
from kohort.conformance.errors import Blocked
from kohort.conformance.group_steps import describe_group
from kohort.protocol.errors import error_name

SETTLED_S = 15.0
describe = partial(describe_group, api="ConsumerGroupDescribe")
Owned = dict[UUID, tuple[int, ...]]


@dataclass
class Kip848Consumer:
    """A scripted member, by default of the run's topic. `owned` is its last assignment, which `acknowledge` sends."""

    scene: CheckContext = field(repr=False)
    topics: tuple[Topic, ...] = ()
    instance: str | None = None
    id: str = ""
    epoch: int = 0
    owned: Owned = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topics = self.topics or (self.scene.topic,)

    @property
    def identity(self) -> dict[str, Any]:
        """The arguments of `commit` for a commit of this member."""
        return {"generation": self.epoch, "member": self.id}

    async def join(self, **changes: object) -> Any:
        """Send the first heartbeat, with every field that it requires."""
        if not self.id and self.scene.version_of("ConsumerGroupHeartbeat") >= 1:
            self.id = str(uuid4())
        values: dict[str, object] = {
            "member_epoch": 0,
            "rebalance_timeout_ms": 30_000,
            "topic_partitions": (),
            "subscribed_topic_names": tuple(topic.name for topic in self.topics),
        }
        return await self.beat(**values | changes)

    async def beat(self, **changes: object) -> Any:
        """Send one heartbeat of the current epoch. A successful response is kept."""
        values: dict[str, object] = {
            "group_id": self.scene.group,
            "member_id": self.id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
        }
        response = await self.scene.send("ConsumerGroupHeartbeat", values | changes)
        if response.error_code == 0:
            self.id, self.epoch = response.member_id or self.id, response.member_epoch
            if response.member_epoch > 0:
                self.scene.target.members_with_epochs.add(("ConsumerGroupHeartbeat", self.scene.group, self.id))
            if response.assignment is not None:
                self.owned = {
                    entry.topic_id: tuple(sorted(entry.partitions)) for entry in response.assignment.topic_partitions
                }
        return response

    async def acknowledge(self) -> Any:
        """Send a heartbeat with the partitions that the member owns now."""
        return await self.beat(topic_partitions=as_request(self.owned))

    async def gets(self, wanted: list[tuple[UUID, int]]) -> bool:
        """Acknowledge until the member owns these partitions. Returns False if it does not get them in time."""

        async def has_them() -> bool:
            await self.acknowledge()
            return self.partitions == wanted

        return await self.scene.until(has_them, SETTLED_S)

    @property
    def partitions(self) -> list[tuple[UUID, int]]:
        return sorted((topic, index) for topic, indexes in self.owned.items() for index in indexes)


def as_request(owned: Owned) -> tuple[dict[str, object], ...]:
    """Return the owned partitions in the form of a heartbeat request."""
    return tuple({"topic_id": topic, "partitions": partitions} for topic, partitions in owned.items())


async def assigned_group(scene: CheckContext, count: int = 1, **how: Any) -> list[Kip848Consumer]:
    """Return a group in which every partition of the topics has exactly one owner. Raises Blocked."""
    members = [Kip848Consumer(scene, **how) for _ in range(count)]
    for member in members:
        response = await member.join()
        if response.error_code:
            raise Blocked(f"the first heartbeat failed: {error_name(response.error_code)}: {response.error_message}")
    await settle(scene, members)
    return members


async def settle(scene: CheckContext, members: Sequence[Kip848Consumer]) -> None:
    """Send heartbeats of all members until all partitions are assigned and acknowledged. Raises Blocked.

    A ConsumerGroupDescribe that still disagrees at the end is ignored here. M12 judges it.
    """
    wanted = sorted((topic.id, index) for topic in members[0].topics for index in range(topic.partitions))

    async def shared_out() -> bool:
        for member in members:
            response = await member.acknowledge()
            if response.error_code:
                raise Blocked(f"a heartbeat failed: {error_name(response.error_code)}: {response.error_message}")
        return sorted(place for member in members for place in member.partitions) == wanted

    async def described_so() -> bool:
        # A coordinator may delay its next assignment (KIP-1263), so a member cannot know if this is the last.
        if not await shared_out():
            return False
        response = await describe(scene)
        return response.group_state == "Stable" and {member.epoch for member in members} == {response.group_epoch}

    if not await scene.until(shared_out, SETTLED_S):
        raise Blocked(f"not everything assigned once after {SETTLED_S:g} s: {[one.partitions for one in members]}")
    await scene.until(described_so, SETTLED_S, signal="ConsumerGroupDescribe")
    if not await shared_out() or len({member.epoch for member in members}) > 1:
        raise Blocked(f"members of one group stay in epochs {[member.epoch for member in members]}")
