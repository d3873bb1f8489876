"""A coordinator's state of one share group: epochs, members, assignments (rules: share_coordinator.py).

There is no revocation. A member gets its newest assignment with its next heartbeat, and several members may have one
partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, NamedTuple

from kohort.common.topic_partition import TopicPartition
from kohort.testing.fake_broker.classic_group import Committed
from kohort.testing.fake_broker.consumer_group import NOWHERE, GroupTopic, Place, Places

FIRST_EPOCH = 1
"""The epoch of a group without members. The first member gets the next one."""


class ShareGroupState(Enum):
    """The two states of a share group."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(eq=False, slots=True)
class FakeShareMember:
    """A member as its coordinator sees it. `assigned`: the partitions of its last assignment."""

    member_id: str
    deadline: float
    client_id: str = ""
    rack_id: str | None = None
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Places = NOWHERE


@dataclass(eq=False, slots=True)
class ShareGroup:
    """One group. `seen`: the topics that were planned for. `offsets` stays empty: share groups commit none."""

    kind: ClassVar = "share"
    protocol_type: ClassVar = "share"

    group_id: str
    epoch: int = FIRST_EPOCH
    target_epoch: int = FIRST_EPOCH
    members: dict[str, FakeShareMember] = field(default_factory=dict)
    target: dict[str, Places] = field(default_factory=dict)
    seen: dict[str, GroupTopic] = field(default_factory=dict)
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def plan(self) -> None:
        """Assign each partition to a member that subscribes to it, and no member stays without one. Sizes are even."""
        self.target = dict.fromkeys(self.members, NOWHERE)
        self.target_epoch = self.epoch
        for name, topic in sorted(self.seen.items()):
            takers = sorted(one.member_id for one in self.members.values() if name in one.topics)
            places = [Place(topic.topic_id, number) for number in range(topic.partitions)]
            for at in range(max(len(takers), len(places)) if takers and places else 0):
                self.target[takers[at % len(takers)]] |= {places[at % len(places)]}


class ShareGroupSnapshot(NamedTuple):
    """A share group at one moment, for tests to look at. `assigned`: member id -> (topic id, partition) pairs."""

    state: ShareGroupState
    epoch: int
    members: dict[str, int]
    assigned: Mapping[str, Places]


def share_snapshot(group: ShareGroup) -> ShareGroupSnapshot:
    """A copy that stays as it is."""
    return ShareGroupSnapshot(
        group.state,
        group.epoch,
        {one.member_id: one.epoch for one in group.members.values()},
        {one.member_id: one.assigned for one in group.members.values()},
    )
