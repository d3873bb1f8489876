"""The classic group protocol as a coordinator implements it: a machine without socket, thread or clock.

Every call brings `now` (seconds, any origin) and a `reply` that takes the response at once or later. JoinGroup is
parked until the generation begins, SyncGroup until the leader's assignment is there. `expire(now)` does what is due
by now. `next_deadline()` returns the time at which that is next due.

Omissions:

- members of KIP-848 in a group of this kind; a group changes its kind only while it is empty
- authorization, and loading states
- the removal of a joining member whose response is pending for five minutes
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from kohort.protocol.apis.heartbeat import HeartbeatRequest
from kohort.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kohort.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.classic_group import (
    FakeGroup,
    FakeMember,
    GroupState,
    JoinReply,
    SyncReply,
    protocols_of,
    rebalance_timeout_s,
)
from kohort.testing.fake_broker.settings import CoordinatorSettings


class GroupCoordinator:
    """All groups of one cluster; member ids are counted, so that a run repeats itself."""

    def __init__(self, settings: CoordinatorSettings | None = None) -> None:
        self.settings = settings or CoordinatorSettings()
        self.groups: dict[str, FakeGroup] = {}
        self._numbers = count(1)

    def join(
        self, request: JoinGroupRequest, *, version: int, client_id: str | None, now: float, reply: JoinReply
    ) -> None:
        """JoinGroup; `version` decides whether a first join must come back with the id it is given (KIP-394)."""
        error = self._join_refusal(request)
        if error:
            reply(_refused(error, request.member_id))
            return
        group = self.groups.setdefault(request.group_id, FakeGroup(request.group_id))
        member_id, instance_id = request.member_id, request.group_instance_id
        full = len(group.members) + len(group.pending) >= self.settings.group_max_size
        if full and member_id not in group.members and member_id not in group.pending:
            reply(_refused(ErrorCode.GROUP_MAX_SIZE_REACHED, member_id))
        elif not group.supports(protocols_of(request), request.protocol_type):
            reply(_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id))
        elif not member_id and instance_id is not None and instance_id in group.static:
            self._replace_static(group, request, version, now, reply)
        elif not member_id:
            given = f"{instance_id or client_id or 'member'}-{next(self._numbers):08d}"
            if instance_id is None and version >= 4:
                group.pending[given] = now + request.session_timeout_ms / 1000
                reply(_refused(ErrorCode.MEMBER_ID_REQUIRED, given))
            else:
                self._add(group, given, client_id, request, now, reply)
        elif member_id in group.pending and instance_id is None:
            del group.pending[member_id]
            self._add(group, member_id, client_id, request, now, reply)
        elif error := _identity_error(group, member_id, instance_id):
            reply(_refused(error, member_id))
        else:
            self._rejoin(group, group.members[member_id], request, now, reply)

    def sync(self, request: SyncGroupRequest, *, now: float, reply: SyncReply) -> None:
        """SyncGroup: parked until the leader's request; that one completes all of them."""
        if not request.group_id:
            reply(SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
            return
        group = self.groups.get(request.group_id)
        error = self._member_error(group, request.member_id, request.group_instance_id, request.generation_id)
        if error or group is None:
            reply(SyncGroupResponse(error_code=error))
            return
        member = group.members[request.member_id]
        if (request.protocol_type not in (None, group.protocol_type)) or (
            request.protocol_name not in (None, group.protocol)
        ):
            reply(SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif group.state is GroupState.PREPARING:
            reply(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        elif group.state is GroupState.STABLE:
            _touch(member, now)
            self._has_synced(group, member)
            reply(_synced(group, member))
        else:
            member.syncing = reply
            group.unsynced.discard(member.member_id)
            if member.member_id == group.leader:
                given = {each.member_id: bytes(each.assignment) for each in request.assignments}
                self._stabilize(group, given, now)

    def heartbeat(self, request: HeartbeatRequest, *, now: float) -> int:
        """Heartbeat; returns its error code."""
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        group = self.groups.get(request.group_id)
        error = self._member_error(group, request.member_id, request.group_instance_id, request.generation_id)
        if error or group is None:
            return error
        _touch(group.members[request.member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING else ErrorCode.NONE

    def leave(self, group_id: str, members: Iterable[tuple[str, str | None]], *, now: float) -> list[int]:
        """LeaveGroup for (member id, instance id) each; returns their error codes."""
        group = self.groups.get(group_id)
        outcome: list[int] = []
        for member_id, instance_id in members:
            if group is None:
                outcome.append(ErrorCode.UNKNOWN_MEMBER_ID)
                continue
            if not member_id and instance_id in group.static:
                member_id = group.static[str(instance_id)]
            if member_id in group.pending:
                del group.pending[member_id]
                self._progress(group, now)
                outcome.append(ErrorCode.NONE)
            elif error := _identity_error(group, member_id, instance_id):
                outcome.append(error)
            else:
                self._remove(group, group.members[member_id], now)
                outcome.append(ErrorCode.NONE)
        return outcome

    def commit_error(
        self, group_id: str, generation: int, member_id: str, instance_id: str | None, *, now: float
    ) -> int:
        """The error code with which an OffsetCommit as a whole is refused, or 0; the group exists afterwards."""
        group = self.groups.get(group_id)
        if group is None or (not group.members and group.state is GroupState.EMPTY):
            if generation >= 0:
                return ErrorCode.ILLEGAL_GENERATION if group is None else ErrorCode.UNKNOWN_MEMBER_ID
            self.groups.setdefault(group_id, FakeGroup(group_id))
            return ErrorCode.NONE
        if generation < 0 and not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self._member_error(group, member_id, instance_id, generation)
        if error:
            return error
        _touch(group.members[member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.COMPLETING else ErrorCode.NONE

    def expire(self, now: float) -> None:
        """Do the work due by `now`: remove members without heartbeats and unused ids, end rebalances past their
        deadline."""
        for group in list(self.groups.values()):
            for member_id in [each for each, deadline in group.pending.items() if deadline <= now]:
                del group.pending[member_id]
                self._progress(group, now)
            for member in [each for each in group.members.values() if each.deadline <= now and not each.waits]:
                if member.member_id in group.members:
                    self._remove(group, member, now)
            if group.deadline is not None and group.deadline <= now:
                self._time_is_up(group, now)

    def next_deadline(self) -> float | None:
        """The time at which `expire` is next due, or None."""
        times = [group.deadline for group in self.groups.values() if group.deadline is not None]
        for group in self.groups.values():
            times += group.pending.values()
            times += [member.deadline for member in group.members.values() if not member.waits]
        return min(times, default=None)

    def _join_refusal(self, request: JoinGroupRequest) -> int:
        low, high = self.settings.group_min_session_timeout_ms, self.settings.group_max_session_timeout_ms
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not low <= request.session_timeout_ms <= high:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if request.member_id and request.group_id not in self.groups:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _member_error(self, group: FakeGroup | None, member_id: str, instance_id: str | None, generation: int) -> int:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if error := _identity_error(group, member_id, instance_id):
            return error
        return ErrorCode.NONE if generation == group.generation else ErrorCode.ILLEGAL_GENERATION

    def _add(
        self,
        group: FakeGroup,
        member_id: str,
        client_id: str | None,
        request: JoinGroupRequest,
        now: float,
        reply: JoinReply,
    ) -> None:
        session_s = request.session_timeout_ms / 1000
        member = FakeMember(
            member_id,
            request.group_instance_id,
            session_s,
            rebalance_timeout_s(request),
            protocols_of(request),
            now + session_s,
            client_id or "",
        )
        if not group.members:
            group.protocol_type = request.protocol_type
        group.members[member_id] = member
        if member.instance_id is not None:
            group.static[member.instance_id] = member_id
        group.leader = group.leader or member_id
        member.joining = reply
        self._rebalance(group, now)

    def _rejoin(
        self, group: FakeGroup, member: FakeMember, request: JoinGroupRequest, now: float, reply: JoinReply
    ) -> None:
        changed = [*member.protocols.items()] != [*protocols_of(request).items()]  # their order is the member's vote
        leads_stable = group.state is GroupState.STABLE and member.member_id == group.leader
        if group.state is not GroupState.PREPARING and not changed and not leads_stable:
            # It has not received its last response, or rejoins without a reason: the generation is unchanged.
            _touch(member, now)
            reply(_joined(group, member))
            return
        if member.joining is not None:
            member.joining(_refused(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        member.update(request)
        _touch(member, now)
        member.joining = reply
        self._rebalance(group, now)

    def _replace_static(
        self, group: FakeGroup, request: JoinGroupRequest, version: int, now: float, reply: JoinReply
    ) -> None:
        """A static member is back under its name without an id: it gets a new one, the old is fenced (KIP-345)."""
        assert request.group_instance_id is not None
        old = group.members[group.static[request.group_instance_id]]
        before = old.member_id
        fresh = f"{request.group_instance_id}-{next(self._numbers):08d}"
        if old.joining is not None:
            old.joining(_refused(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        if old.syncing is not None:
            old.syncing(SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        led = group.leader == old.member_id
        # It keeps its place among the members, so that votes and listings stay as they were.
        group.members = {
            (fresh if member_id == old.member_id else member_id): member for member_id, member in group.members.items()
        }
        group.static[request.group_instance_id] = fresh
        old.member_id, old.joining, old.syncing = fresh, None, None
        old.update(request)
        _touch(old, now)
        if led:
            group.leader = fresh
        group.unsynced = {fresh if member_id == before else member_id for member_id in group.unsynced}
        if group.state is GroupState.STABLE and group.vote() == group.protocol:
            if led and version < 9:
                # The lost response named another leader, so this member did not learn of skip_assignment (KIP-814).
                reply(_joined(group, old)._replace(leader=before, members=()))
            else:
                reply(_joined(group, old, skip_assignment=led))
        else:
            old.joining = reply
            self._rebalance(group, now)

    def _rebalance(self, group: FakeGroup, now: float) -> None:
        """Enter PREPARING, or go on in it."""
        if group.state is not GroupState.PREPARING:
            if group.state is GroupState.COMPLETING:
                self._give_up(group)
            delay_s = self.settings.group_initial_rebalance_delay_ms / 1000
            group.gathering = group.state is GroupState.EMPTY
            group.state = GroupState.PREPARING
            if group.gathering and not delay_s:
                self._begin(group, now)  # the first generation waits for no id that was given out
                return
            group.deadline = now + (delay_s if group.gathering else _rebalance_timeout_s(group))
        self._progress(group, now)

    def _give_up(self, group: FakeGroup) -> None:
        """A generation that never became stable; what one that did has assigned is shown until the next one has."""
        for member in group.members.values():
            member.assignment = b""
            if member.syncing is not None:
                reply, member.syncing = member.syncing, None
                reply(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))

    def _progress(self, group: FakeGroup, now: float) -> None:
        """Begin the generation when everyone has joined and no given id is still out."""
        if group.state is not GroupState.PREPARING or group.pending or group.gathering:
            return
        if all(member.joining is not None for member in group.members.values()):
            self._begin(group, now)

    def _time_is_up(self, group: FakeGroup, now: float) -> None:
        if group.state is GroupState.PREPARING:
            for member in [each for each in group.members.values() if each.joining is None]:
                if member.instance_id is None:  # a static member has its session timeout to come back
                    self._forget(group, member)
            if group.members and all(member.joining is None for member in group.members.values()):
                group.deadline = now + _rebalance_timeout_s(group)  # no generation is empty
                return
            self._begin(group, now)
        elif group.state in (GroupState.COMPLETING, GroupState.STABLE):
            for member in [group.members[member_id] for member_id in group.unsynced if member_id in group.members]:
                self._forget(group, member)
            group.deadline = None
            self._rebalance(group, now)

    def _begin(self, group: FakeGroup, now: float) -> None:
        group.generation += 1
        group.deadline, group.gathering = None, False
        if not group.members:
            group.state, group.protocol, group.leader = GroupState.EMPTY, None, None
            return
        if group.leader not in group.members or group.members[group.leader].joining is None:
            joined = [member.member_id for member in group.members.values() if member.joining is not None]
            group.leader = joined[0] if joined else next(iter(group.members))
        group.state = GroupState.COMPLETING
        group.protocol = group.vote()
        group.deadline = now + _rebalance_timeout_s(group)
        group.unsynced = set(group.members)
        for member in list(group.members.values()):
            if member.joining is not None:
                reply, member.joining = member.joining, None
                _touch(member, now)
                reply(_joined(group, member))

    def _stabilize(self, group: FakeGroup, given: dict[str, bytes], now: float) -> None:
        group.state = GroupState.STABLE
        group.deadline = group.deadline if group.unsynced else None
        for member in group.members.values():
            member.assignment = given.get(member.member_id, b"")
        for member in list(group.members.values()):
            if member.syncing is not None:
                reply, member.syncing = member.syncing, None
                _touch(member, now)
                reply(_synced(group, member))

    def _has_synced(self, group: FakeGroup, member: FakeMember) -> None:
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            group.deadline = None

    def _remove(self, group: FakeGroup, member: FakeMember, now: float) -> None:
        self._forget(group, member)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING):
            self._rebalance(group, now)
        else:
            self._progress(group, now)

    def _forget(self, group: FakeGroup, member: FakeMember) -> None:
        del group.members[member.member_id]
        group.unsynced.discard(member.member_id)
        if member.instance_id is not None:
            group.static.pop(member.instance_id, None)
        if member.joining is not None:
            member.joining(_refused(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        if member.syncing is not None:
            member.syncing(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        if group.leader == member.member_id:
            group.leader = next(iter(group.members), None)


def _identity_error(group: FakeGroup, member_id: str, instance_id: str | None) -> int:
    if instance_id is not None:
        if instance_id not in group.static:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.static[instance_id] != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _rebalance_timeout_s(group: FakeGroup) -> float:
    return max((member.rebalance_timeout_s for member in group.members.values()), default=0.0)


def _touch(member: FakeMember, now: float) -> None:
    member.deadline = now + member.session_timeout_s


def _refused(error: int, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name="", generation_id=-1)


def _joined(group: FakeGroup, member: FakeMember, *, skip_assignment: bool = False) -> JoinGroupResponse:
    leads = member.member_id == group.leader
    protocol = group.protocol or ""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=_listing(group.members.values(), protocol) if leads else (),
    )


def _listing(members: Iterable[FakeMember], protocol: str) -> tuple[JoinGroupResponseMember, ...]:
    return tuple(
        JoinGroupResponseMember(
            member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.protocols[protocol]
        )
        for member in members
    )


def _synced(group: FakeGroup, member: FakeMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
