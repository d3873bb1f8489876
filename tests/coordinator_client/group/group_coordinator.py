"""One coordinator that keeps a group as Apache Kafka's does, without sockets.

Written from the protocol's side alone (KIP-62, 345, 394, 429, 814); it knows nothing of our machine.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kohort.common.topic_partition import TopicPartition
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kohort.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from kohort.protocol.membership import read_assignment

NONE, NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, ID_REQUIRED, FENCED = 0, 16, 22, 25, 27, 79, 82
INCONSISTENT, LOADING = 23, 14

Reply = Callable[[Any], None]


@dataclass
class Enrolled:
    """A member as the coordinator keeps it."""

    id: str
    instance: str | None
    protocols: tuple[tuple[str, bytes], ...]
    session_s: float
    rebalance_s: float
    alive_until: float
    join: Reply | None = None
    sync: Reply | None = None
    assignment: bytes = b""


class GroupCoordinator:
    """One classic group: EMPTY, PREPARING, COMPLETING, STABLE."""

    def __init__(self) -> None:
        self.state = "EMPTY"
        self.members: dict[str, Enrolled] = {}
        self.pending: set[str] = set()
        self.instances: dict[str, str] = {}
        self.generation = 0
        self.leader = ""
        self.protocol = ""
        self.join_deadline = 0.0
        self.owners: dict[int, dict[TopicPartition, str]] = {}
        self.commits: dict[TopicPartition, int] = {}
        self.loading = False
        self._ids = itertools.count(1)

    # -- requests

    def handle(self, request: Any, client: str, reply: Reply, now: float) -> None:
        match request:
            case JoinGroupRequest():
                self._join(request, client, reply, now)
            case SyncGroupRequest():
                self._sync(request, reply, now)
            case HeartbeatRequest():
                reply(HeartbeatResponse(error_code=self._heartbeat(request, now)))
            case LeaveGroupRequest():
                reply(LeaveGroupResponse(error_code=self._leave(request.members[0].member_id, now)))
            case _:
                raise AssertionError(request)

    def _join(self, request: JoinGroupRequest, client: str, reply: Reply, now: float) -> None:
        def refuse(code: int, member_id: str = "") -> None:
            reply(JoinGroupResponse(error_code=code, member_id=member_id or request.member_id))

        if self.loading:
            return refuse(LOADING)
        protocols = tuple((each.name, bytes(each.metadata)) for each in request.protocols)
        others = [each for each in self.members.values() if each.id != request.member_id]
        if others and not self._common(others) & {name for name, _ in protocols}:
            return refuse(INCONSISTENT)
        member_id, instance = request.member_id, request.group_instance_id
        if not member_id:
            member_id = f"{client}-{next(self._ids)}"
            if instance is None:
                self.pending.add(member_id)
                return refuse(ID_REQUIRED, member_id)
            if instance in self.instances:
                return self._replace_static(self.instances[instance], member_id, protocols, reply, now)
        elif instance is not None and self.instances.get(instance, member_id) != member_id:
            return refuse(FENCED)
        elif member_id not in self.pending and member_id not in self.members:
            return refuse(UNKNOWN_MEMBER)
        self.pending.discard(member_id)
        member = self.members.get(member_id)
        if member is None:
            session_s, rebalance_s = request.session_timeout_ms / 1000, request.rebalance_timeout_ms / 1000
            member = Enrolled(member_id, instance, protocols, session_s, rebalance_s, now + session_s)
            self.members[member_id] = member
            if instance is not None:
                self.instances[instance] = member_id
            self.leader = self.leader or member_id
        elif (self.state == "STABLE" and member.protocols == protocols and member_id != self.leader) or (
            self.state == "COMPLETING" and member.protocols == protocols
        ):
            return reply(self._joined(member))
        member.protocols, member.join = protocols, reply
        if self.state != "PREPARING":
            self._prepare(now)
        self._complete_join(now)
        return None

    def _replace_static(self, old: str, new: str, protocols: Any, reply: Reply, now: float) -> None:
        """KIP-345: an instance under a new id. In a stable group nothing moves, unless it offers other assignors."""
        member = self.members.pop(old)
        if member.join is not None:
            member.join(JoinGroupResponse(error_code=FENCED))
        if member.sync is not None:
            member.sync(SyncGroupResponse(error_code=FENCED))
        unchanged = [name for name, _ in member.protocols] == [name for name, _ in protocols]
        member.id, member.protocols, member.join, member.sync = new, protocols, None, None
        member.alive_until = now + member.session_s
        self.members[new] = member
        self.instances[member.instance or ""] = new
        leads = self.leader == old
        if leads:
            self.leader = new
        if self.state == "STABLE" and unchanged:
            owners = self.owners[self.generation]
            self.owners[self.generation] = {tp: new if who == old else who for tp, who in owners.items()}
            response = self._joined(member)
            return reply(response._replace(skip_assignment=leads))
        member.join = reply
        if self.state != "PREPARING":
            self._prepare(now)
        return self._complete_join(now)

    def _joined(self, member: Enrolled) -> JoinGroupResponse:
        leads = member.id == self.leader
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=self.protocol,
            leader=self.leader,
            member_id=member.id,
            members=tuple(
                JoinGroupResponseMember(
                    member_id=each.id, group_instance_id=each.instance, metadata=dict(each.protocols)[self.protocol]
                )
                for each in self.members.values()
            )
            if leads
            else (),
        )

    def _sync(self, request: SyncGroupRequest, reply: Reply, now: float) -> None:
        code = self._check(request.member_id, request.group_instance_id, request.generation_id)
        if code == NONE and self.state == "PREPARING":
            code = REBALANCING
        if code != NONE:
            return reply(SyncGroupResponse(error_code=code))
        member = self.members[request.member_id]
        member.alive_until = now + member.session_s
        if self.state == "STABLE":
            return reply(self._synced(member))
        member.sync = reply
        if member.id == self.leader:
            self._assign({each.member_id: each.assignment for each in request.assignments}, now)
        return None

    def _assign(self, plan: Mapping[str, bytes], now: float) -> None:
        self.state = "STABLE"
        owners: dict[TopicPartition, str] = {}
        for member in self.members.values():
            member.assignment = plan.get(member.id, b"")
            for partition in read_assignment(member.assignment):
                assert partition not in owners, f"{partition} given to {owners[partition]} and {member.id}"
                owners[partition] = member.id
        self.owners[self.generation] = owners
        for member in self.members.values():
            member.alive_until = now + member.session_s
            if member.sync is not None:
                waiting, member.sync = member.sync, None
                waiting(self._synced(member))

    def _synced(self, member: Enrolled) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=member.assignment, protocol_type="consumer", protocol_name=self.protocol)

    def _heartbeat(self, request: HeartbeatRequest, now: float) -> int:
        code = self._check(request.member_id, request.group_instance_id, request.generation_id)
        if code == NONE:
            member = self.members[request.member_id]
            member.alive_until = now + member.session_s
            if self.state == "PREPARING":
                return REBALANCING
        return code

    def _leave(self, member_id: str, now: float) -> int:
        if member_id in self.pending:
            self.pending.discard(member_id)
            self._complete_join(now)
            return NONE
        if member_id not in self.members:
            return UNKNOWN_MEMBER
        self._remove(member_id, now)
        return NONE

    def commit(self, sent: ConsumerGroupMetadata, offsets: Mapping[TopicPartition, int]) -> int:
        """OffsetCommit. An accepted member must be the owner, or there is no owner."""
        code = self._check(sent.member_id, sent.instance_id, sent.generation)
        if code == NONE and self.state == "COMPLETING":
            code = REBALANCING
        if code == NONE:
            owners = self.owners.get(self.generation, {})
            for partition, offset in offsets.items():
                owner = owners.get(partition, sent.member_id)
                assert owner == sent.member_id, f"{sent.member_id} committed {partition}, which {owner} owns"
                self.commits[partition] = offset
        return code

    def _check(self, member_id: str, instance: str | None, generation: int) -> int:
        if self.loading:
            return LOADING
        if instance is not None and self.instances.get(instance, member_id) != member_id:
            return FENCED
        if member_id not in self.members:
            return UNKNOWN_MEMBER
        return NONE if generation == self.generation else ILLEGAL_GENERATION

    # -- the walk

    def _common(self, members: Iterable[Enrolled]) -> set[str]:
        sets = [{name for name, _ in each.protocols} for each in members]
        return set.intersection(*sets) if sets else set()

    def _prepare(self, now: float) -> None:
        for member in self.members.values():
            if member.sync is not None:
                waiting, member.sync = member.sync, None
                waiting(SyncGroupResponse(error_code=REBALANCING))
        self.state = "PREPARING"
        self.join_deadline = now + max(each.rebalance_s for each in self.members.values())

    def _complete_join(self, now: float, *, late: bool = False) -> None:
        if self.state != "PREPARING":
            return
        missing = [each for each in self.members.values() if each.join is None]
        if (missing or self.pending) and not late:
            return
        for member in missing:
            if member.instance is None:
                del self.members[member.id]
        self.pending.clear()
        if not self.members:
            self.state, self.leader = "EMPTY", ""
            return
        if self.leader not in self.members or self.members[self.leader].join is None:
            joined = [each.id for each in self.members.values() if each.join is not None]
            self.leader = (joined or list(self.members))[0]
        self.generation += 1
        common = self._common(self.members.values())
        votes = [next(name for name, _ in each.protocols if name in common) for each in self.members.values()]
        self.protocol = max(sorted(set(votes)), key=votes.count)
        self.state = "COMPLETING"
        for member in self.members.values():
            member.alive_until = now + member.session_s
            if member.join is not None:
                waiting, member.join = member.join, None
                waiting(self._joined(member))

    def _remove(self, member_id: str, now: float) -> None:
        member = self.members.pop(member_id)
        if member.instance is not None and self.instances.get(member.instance) == member_id:
            del self.instances[member.instance]
        if member.join is not None:
            member.join(JoinGroupResponse(error_code=UNKNOWN_MEMBER))
        if self.leader == member_id:
            self.leader = next(iter(self.members), "")
        if not self.members and not self.pending:
            self.state, self.leader = "EMPTY", ""
        elif self.state in ("STABLE", "COMPLETING") and self.members:
            self._prepare(now)
        self._complete_join(now)

    def tick(self, now: float) -> None:
        for member in list(self.members.values()):
            waits = member.join is not None
            if not waits and now >= member.alive_until and member.id in self.members:
                self._remove(member.id, now)
        if self.state == "PREPARING" and now >= self.join_deadline:
            self._complete_join(now, late=True)
