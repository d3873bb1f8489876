"""A coordinator's state of one classic group: members, state, committed offsets (rules: classic_coordinator.py).

States and what moves between them (the classic protocol, as brokers of 3.7 to 4.3 keep it):

    EMPTY       no members; offsets may remain           a join -> PREPARING
    PREPARING   waiting for every member's JoinGroup     all joined, or time is up -> COMPLETING (or EMPTY)
    COMPLETING  generation begun, leader not yet synced  its SyncGroup -> STABLE; a join, a leave, a death -> PREPARING
    STABLE      everyone has an assignment               a join, a leave, a death -> PREPARING
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.protocol.apis.sync_group import SyncGroupResponse

JoinReply = Callable[[JoinGroupResponse], None]
SyncReply = Callable[[SyncGroupResponse], None]


class GroupState(Enum):
    """See the head of this file."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Committed(NamedTuple):
    """The committed offset of a partition. `order` grows from commit to commit."""

    offset: int
    metadata: str | None
    leader_epoch: int
    order: int = 0


@dataclass(eq=False, slots=True)
class FakeMember:
    """A member as its coordinator sees it. `joining` and `syncing` hold the callbacks of its pending responses."""

    member_id: str
    instance_id: str | None
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: dict[str, bytes]
    deadline: float
    client_id: str = ""
    assignment: bytes = b""
    joining: JoinReply | None = None
    syncing: SyncReply | None = None

    def update(self, request: JoinGroupRequest) -> None:
        """Apply the fields of a rejoin."""
        self.session_timeout_s = request.session_timeout_ms / 1000
        self.rebalance_timeout_s = rebalance_timeout_s(request)
        self.protocols = protocols_of(request)

    @property
    def waits(self) -> bool:
        """True if a response is pending; the member cannot be dead while the broker keeps it waiting."""
        return self.joining is not None or self.syncing is not None


@dataclass(eq=False, slots=True)
class FakeGroup:
    """One group; `pending` maps unused member ids (KIP-394) to the time at which they are forgotten.

    `gathering`: a group that was empty waits for more members until its deadline, however many have joined.
    `unsynced`: members of this generation whose SyncGroup has not come; they are given up at the deadline, also after
    the leader's has come (KAFKA-10134).
    """

    kind: ClassVar = "classic"

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, FakeMember] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)
    deadline: float | None = None
    gathering: bool = False
    unsynced: set[str] = field(default_factory=set)

    def supports(self, protocols: dict[str, bytes], protocol_type: str) -> bool:
        """True if a member with these assignors fits: the same kind of group, and an assignor that all others have
        too."""
        if not self.members:
            return bool(protocols) and bool(protocol_type)
        return protocol_type == self.protocol_type and bool(self.candidates() & protocols.keys())

    def candidates(self) -> set[str]:
        """The assignors that every member has."""
        names = [member.protocols.keys() for member in self.members.values()]
        return set[str].intersection(*(set(each) for each in names)) if names else set()

    def vote(self) -> str:
        """The candidate that most members prefer; on a tie, the one that the oldest member named first."""
        candidates = self.candidates()
        votes: dict[str, int] = {}
        for member in self.members.values():
            favourite = next(name for name in member.protocols if name in candidates)
            votes[favourite] = votes.get(favourite, 0) + 1
        return max(votes, key=lambda name: votes[name])


class GroupSnapshot(NamedTuple):
    """A group at one moment, for tests to look at. `members` maps member ids to their assignment's bytes."""

    state: GroupState
    generation: int
    protocol: str | None
    leader: str | None
    members: dict[str, bytes]
    static: dict[str, str]
    pending: tuple[str, ...]
    offsets: dict[TopicPartition, Committed]


def snapshot(group: FakeGroup) -> GroupSnapshot:
    """A copy that stays as it is."""
    return GroupSnapshot(
        group.state,
        group.generation,
        group.protocol,
        group.leader,
        {member.member_id: member.assignment for member in group.members.values()},
        dict(group.static),
        tuple(group.pending),
        dict(group.offsets),
    )


def protocols_of(request: JoinGroupRequest) -> dict[str, bytes]:
    """Assignor name to metadata, the favourite first."""
    return {protocol.name: bytes(protocol.metadata) for protocol in request.protocols}


def rebalance_timeout_s(request: JoinGroupRequest) -> float:
    """Version 0 has none, and -1 means the session timeout."""
    timeout_ms = request.rebalance_timeout_ms
    return (timeout_ms if timeout_ms >= 0 else request.session_timeout_ms) / 1000
