"""A coordinator's state of one KIP-848 group: epochs, members, target assignment (rules: consumer_coordinator.py).

Three epochs measure the progress. The group's grows with every change of members, subscriptions or topics. The
target's is the group epoch that was planned for last. A member's is the target that it has reached. On its way there
a member first gives back what is not in its target (`revoking`). It then receives the partitions that no other
member holds any more:

    EMPTY        no members; offsets may remain
    ASSIGNING    the group's epoch is ahead of the target's: the next heartbeat plans
    RECONCILING  some member has something to give back, or waits for what another holds
    STABLE       every member owns its target
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import ClassVar
from uuid import UUID

from kohort.assignors import GroupView, Rebalance, get, make_plan
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.testing.fake_broker.classic_group import Committed

LEFT_FOR_A_WHILE = -2
#: Kafka's name of each coordinator assignor, the default first, with kohort's assignor for its plans.
ASSIGNORS: Mapping[str, str] = {"uniform": "sticky", "range": "range"}


class ConsumerGroupState(Enum):
    """See the head of this file."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class GroupTopic(NamedTuple):
    """The facts about a topic that a plan needs."""

    topic_id: UUID
    partitions: int


class Place(NamedTuple):
    """A partition by its topic's id: a topic that is created again has other partitions."""

    topic_id: UUID
    partition: int


Places = frozenset[Place]
NOWHERE: Places = frozenset()


@dataclass(eq=False, slots=True)
class FakeConsumerMember:
    """A member as its coordinator sees it. `topics`: those it `named`, and those that match its `pattern`.
    `assigned`: the partitions of its last assignment. `revoking`: those it has to give back before its epoch moves,
    by `revoke_by`. `waits`: True if other members hold partitions of its target."""

    member_id: str
    instance_id: str | None
    deadline: float
    client_id: str = ""
    rack_id: str | None = None
    rebalance_timeout_s: float = 0.0
    named: frozenset[str] = frozenset()
    pattern: str = ""
    topics: frozenset[str] = frozenset()
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Places = NOWHERE
    revoking: Places = NOWHERE
    revoke_by: float | None = None
    waits: bool = False

    def has_reached(self, epoch: int) -> bool:
        """True if it owns its target of this epoch."""
        return self.epoch == epoch and not self.revoking and not self.waits

    def reach(self, epoch: int) -> None:
        self.previous_epoch, self.epoch = self.epoch, epoch


@dataclass(eq=False, slots=True)
class ConsumerGroup:
    """One group. `target` maps member ids to their target assignment. `seen`: the topics that were planned for, at
    `planned_at` (s)."""

    kind: ClassVar = "consumer"
    protocol_type: ClassVar = "consumer"

    group_id: str
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)
    epoch: int = 0
    target_epoch: int = 0
    planned_at: float = -inf
    members: dict[str, FakeConsumerMember] = field(default_factory=dict)
    target: dict[str, Places] = field(default_factory=dict)
    seen: dict[str, GroupTopic] = field(default_factory=dict)

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        reached = all(member.has_reached(self.target_epoch) for member in self.members.values())
        return ConsumerGroupState.STABLE if reached else ConsumerGroupState.RECONCILING

    @property
    def assignor(self) -> str:
        """The assignor that most members request, or the default if none does."""
        wanted = Counter(member.assignor for member in self.members.values() if member.assignor is not None)
        return max(wanted, key=lambda name: wanted[name]) if wanted else next(iter(ASSIGNORS))

    def static(self, instance_id: str) -> FakeConsumerMember | None:
        """The member of this name."""
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def subscribed(self) -> frozenset[str]:
        """The topics to which at least one member is subscribed."""
        return frozenset().union(*(member.topics for member in self.members.values()))

    def plan(self) -> None:
        """Make a new target assignment; as few partitions move as possible."""
        assignor = get(ASSIGNORS[self.assignor])
        names = {view.topic_id: name for name, view in self.seen.items()}
        members = {}
        for member in self.members.values():
            target = self.target.get(member.member_id, NOWHERE)
            owned = [TopicPartition(names[one.topic_id], one.partition) for one in target if one.topic_id in names]
            said = assignor.subscription(sorted(member.topics), owned, self.target_epoch)
            members[member.member_id] = {
                "topics": said.topics,
                "user_data": said.user_data,
                "generation": said.generation_id,
                "instance_id": member.instance_id,
            }
        assert assignor.rebalance is Rebalance.EAGER  # a plan that holds back what moves would be no target
        plan = make_plan(assignor, GroupView.of({name: view.partitions for name, view in self.seen.items()}, members))
        self.target = {
            member_id: frozenset(Place(self.seen[one.topic].topic_id, one.partition) for one in partitions)
            for member_id, partitions in plan.items()
        }
        self.target_epoch = self.epoch

    def reconcile(self, member: FakeConsumerMember, owned: Places | None, now: float) -> None:
        """Bring a member as near to its target as other members allow. `owned`: its reported partitions, None if
        unchanged."""
        if member.has_reached(self.target_epoch):
            return
        if member.revoking and (owned is None or owned & member.revoking):
            return
        target = self.target.get(member.member_id, NOWHERE)
        held = frozenset().union(*(each.assigned | each.revoking for each in self.members.values()))
        kept = member.assigned & target
        gone = member.assigned - target
        if gone and (owned is None or owned & gone):
            member.assigned, member.revoking, member.waits = kept, gone, False
            member.revoke_by = now + member.rebalance_timeout_s
            member.reach(member.epoch)
            return
        free = (target - kept) - held
        member.assigned, member.revoking, member.revoke_by = kept | free, NOWHERE, None
        member.waits = member.assigned != target
        member.reach(self.target_epoch)


class ConsumerGroupSnapshot(NamedTuple):
    """A KIP-848 group at one moment, for tests to look at. `members` maps member ids to their epoch, `assigned` to
    the (topic id, partition) pairs of each member's last assignment."""

    state: ConsumerGroupState
    epoch: int
    target_epoch: int
    members: dict[str, int]
    assigned: dict[str, Places]
    static: dict[str, str]
    offsets: dict[TopicPartition, Committed]


def consumer_snapshot(group: ConsumerGroup) -> ConsumerGroupSnapshot:
    """A copy that stays as it is."""
    members = group.members.values()
    return ConsumerGroupSnapshot(
        group.state,
        group.epoch,
        group.target_epoch,
        {member.member_id: member.epoch for member in members},
        {member.member_id: member.assigned for member in members},
        {member.instance_id: member.member_id for member in members if member.instance_id is not None},
        dict(group.offsets),
    )
