"""A small world for group members: one coordinator that keeps the group as Apache Kafka's does, links that lose what
was on them, users that poll or do not, and a clock that only the test moves.

The coordinator is written from the protocol's side alone (KIP-62, 345, 394, 429, 814) and knows nothing of our machine;
`Actor` is the driver that `ready.py` asks for, without sockets. Everything happens one delivery at a time, so a
schedule, drawn or written down, can be played again.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.assignors import get_all
from kohort.coordinator_client import events as ev
from kohort.coordinator_client.hooks import Assigned, HookCall, Lost, Revoked
from kohort.coordinator_client.leading import read_assignment
from kohort.coordinator_client.member import GroupMember
from kohort.coordinator_client.ready import CommitOrder, Ready, Send
from kohort.coordinator_client.settings import MemberSettings
from kohort.coordinator_client.states import MemberState
from kohort.coordinator_client.subscription import Subscription
from kohort.fastpath.topic_partition import TopicPartition
from kohort.protocol.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kohort.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP = "g"
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
            answer = self._joined(member)
            return reply(answer._replace(skip_assignment=leads))
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

    def commit(self, sent: ev.Identity, offsets: Mapping[TopicPartition, int]) -> int:
        """OffsetCommit. Whoever is let in must be the owner, or nobody is."""
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


class Lane:
    """One direction of a link: what is on it, in order, and how long the oldest has been."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._items: deque[tuple[float, Any]] = deque()

    def __bool__(self) -> bool:
        return bool(self._items)

    def put(self, item: Any) -> None:
        self._items.append((self._world.now, item))

    def take(self) -> Any:
        return self._items.popleft()[1]

    def keep(self, *kinds: type) -> None:
        self._items = deque((since, item) for since, item in self._items if isinstance(item, kinds))

    @property
    def age_s(self) -> float:
        return self._world.now - self._items[0][0] if self._items else 0.0


class Actor:
    """A process: the machine, its links to the coordinator and a user. The driver of `ready.py`, in forty lines."""

    def __init__(self, world: World, name: str, topics: Iterable[str], assignors: Iterable[str], **settings: Any):
        self.world = world
        self.name = name
        self.member = GroupMember(MemberSettings(group_id=GROUP, **settings), get_all(assignors))
        self.alive = True
        self.awake = True
        self.in_poll = False
        self.taken: HookCall | None = None
        self.commit_on_revoke = True
        self.visible: frozenset[TopicPartition] = frozenset()
        self.told: list[Assigned | Revoked | Lost] = []
        self.requests = Lane(world)
        self.answers = Lane(world)
        self.waiting: dict[int, Send] = {}
        self.link = 0
        self.known: dict[str, int] = {}
        self.ready: Ready = self.member.ready(world.now)
        self.step(ev.Subscribed(Subscription.of(topics)))

    @property
    def state(self) -> MemberState:
        return self.ready.view.state

    def step(self, *happened: ev.Event) -> None:
        for event in happened:
            self.member.step(event, self.world.now)
        self.turn()

    def turn(self) -> None:
        self.ready = ready = self.member.ready(self.world.now)
        if ready.commit is not None:
            self.requests.put(ready.commit)
        for send in ready.sends:
            self.waiting[send.serial] = send
            self.requests.put(send)
        for notice in ready.notices:
            self.world.tell(f"{self.name}: {notice.kind}: {notice.text}")
        counts = {topic: self.world.topics.get(topic, 0) for topic in ready.wanted.names}
        if ready.wanted.names and counts != self.known:
            self.known = counts
            infos = {topic: ev.TopicInfo(count) for topic, count in counts.items() if count}
            self.step(ev.TopicsChanged(infos, asked=ready.wanted.names))

    def due(self) -> bool:
        return self.ready.wake_at is not None and self.ready.wake_at <= self.world.now

    # -- the wire

    def send_next(self) -> None:
        """One request reaches its broker."""
        request = self.requests.take()
        if isinstance(request, CommitOrder):
            offsets = {tp: each.offset for tp, each in request.offsets.items()}
            code = self.world.coordinator.commit(request.identity, offsets)
            self.world.tell(f"{self.name} -> OffsetCommit {shown(offsets)} of generation {request.identity.generation}")
            if code != NONE:
                self.answers.put(ev.CommitRefused(code, request.identity, frozenset(offsets)))
            self.answers.put(ev.CommitSettled(request.serial, dict.fromkeys(offsets, code) if code else {}))
            return
        link = self.link

        def reply(answer: Any) -> None:
            if link == self.link:
                self.answers.put(ev.ANSWERS[request.api](request.serial, answer))

        self.world.route(self, request, reply)

    def receive_next(self) -> None:
        """One answer reaches us."""
        answer = self.answers.take()
        serial = getattr(answer, "serial", 0)
        send = self.waiting.pop(serial, None)
        if send is not None and not isinstance(answer, ev.Disconnected):
            self.world.tell(f"{self.name} <- {send.api} {described(answer)}")
        self.step(answer)

    def disconnect(self) -> None:
        """Every link breaks: what was on it is gone, in both directions."""
        self.link += 1
        self.requests.keep(CommitOrder)
        self.answers.keep(ev.CommitSettled, ev.CommitRefused, ev.Disconnected)
        lost, self.waiting = list(self.waiting), {}
        for serial in lost:
            self.answers.put(ev.Disconnected(serial, None, "connection lost"))
        known = self.ready.view.coordinator
        if known is not None:
            self.answers.put(ev.Disconnected(None, known.node_id, "connection lost"))

    # -- the user

    def poll(self) -> None:
        """One whole poll: in, every hook that is due, out."""
        self.enter_poll()
        while self.ready.hook is not None and self.alive:
            self.begin_hook()
            self.end_hook()
        self.leave_poll()

    def enter_poll(self) -> None:
        self.in_poll = True
        self.step(ev.Polled(self.world.now))

    def leave_poll(self) -> None:
        self.in_poll = False
        self.step(ev.PollEnded(self.world.now))

    def begin_hook(self) -> None:
        call = self.taken = self.ready.hook
        assert call is not None
        self.step(ev.HookStarted(call.serial, self.world.now))
        self.visible = call.before
        self.told.append(call.event)
        self.world.tell(f"{self.name}: {described(call.event)}")

    def end_hook(self) -> None:
        call, self.taken = self.taken, None
        assert call is not None
        commit: dict[TopicPartition, ev.OffsetToCommit] = {}
        if isinstance(call.event, Revoked) and self.commit_on_revoke:
            commit = dict.fromkeys(call.event.partitions, ev.OffsetToCommit(int(self.world.now * 1000)))
        self.visible = call.after
        self.step(ev.HookDone(call.serial, self.world.now, commit))

    @property
    def shows(self) -> frozenset[TopicPartition]:
        """Whose records a poll would return right now: the fetch barrier of `ready.py`."""
        view = self.ready.view
        return view.fetchable if self.alive and self.world.now < view.lease_until else frozenset()


@dataclass
class World:
    """The clock, the cluster and everybody in it."""

    topics: dict[str, int] = field(default_factory=lambda: {"t": 4})
    now: float = 1000.0
    home: int = 1
    """The node that coordinates the group."""
    down: set[int] = field(default_factory=set)
    coordinator: GroupCoordinator = field(default_factory=GroupCoordinator)
    actors: dict[str, Actor] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def tell(self, line: str) -> None:
        self.log.append(line)

    def start(
        self, name: str, topics: Iterable[str] = ("t",), assignors: Iterable[str] = ("range",), **how: Any
    ) -> Actor:
        actor = self.actors[name] = Actor(self, name, topics, assignors, **how)
        return actor

    def route(self, actor: Actor, send: Send, reply: Reply) -> None:
        """A request arrives: at any broker, at the coordinator, at a broker that no longer is it, or at none."""
        if send.to is None:
            self.tell(f"{actor.name} -> {described(send)}")
            node = Coordinator(key=GROUP, node_id=self.home, host=f"node{self.home}", port=9092)
            reply(FindCoordinatorResponse(coordinators=(node,)))
        elif send.to.node_id in self.down:
            actor.waiting.pop(send.serial, None)
            actor.answers.put(ev.Disconnected(send.serial, send.to.node_id, "connection refused"))
        elif send.to.node_id != self.home:
            self.tell(f"{actor.name} -> {described(send)}")
            reply(_refusal(send.api, NOT_COORDINATOR))
        else:
            self.tell(f"{actor.name} -> {described(send)}")
            self.coordinator.handle(send.request, actor.name, reply, self.now)

    # -- running

    def alive(self) -> list[Actor]:
        return [actor for actor in self.actors.values() if actor.alive and actor.awake]

    def settle(self, *, polling: bool = True) -> None:
        """Deliver and poll, in turn and in order, until nothing more happens at this moment."""
        for _ in range(10_000):
            moved = False
            self.coordinator.tick(self.now)
            for actor in self.alive():
                while actor.requests:
                    actor.send_next()
                    moved = True
            for actor in self.alive():
                while actor.answers:
                    actor.receive_next()
                    moved = True
                if polling and actor.ready.hook is not None and actor.taken is None:
                    actor.poll()
                    moved = True
                if actor.due():
                    actor.turn()
                    moved = moved or not actor.due()
            if not moved:
                return
        raise AssertionError("the world does not come to rest")

    def pass_time(self, seconds: float, *, polling: bool = True, step_s: float = 0.5) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step_s)
            for actor in self.alive():
                if polling and not actor.in_poll:
                    actor.poll()
                else:
                    actor.turn()
            self.settle(polling=polling)

    # -- invariants

    def check(self) -> None:
        """One owner at a time: no two processes would return records of one partition at this moment.

        A static member whose name somebody else has just taken cannot know it before it asks, so it is left out.
        """
        shown: dict[TopicPartition, str] = {}
        for actor in self.actors.values():
            instance, member_id = actor.member.settings.instance_id, actor.ready.view.identity.member_id
            if instance is not None and self.coordinator.instances.get(instance, member_id) != member_id:
                continue
            for partition in actor.shows:
                assert partition not in shown, f"{partition} is shown by {shown[partition]} and {actor.name}"
                shown[partition] = actor.name
            view = actor.ready.view
            owners = self.coordinator.owners.get(view.identity.generation)
            if actor.alive and owners is not None and view.state is MemberState.STABLE and not view.rejoin_wanted:
                mine = {partition for partition, who in owners.items() if who == view.identity.member_id}
                assert view.assignment.partitions == mine, (
                    f"{actor.name} owns what generation {view.identity} did not give"
                )


def _refusal(api: str, code: int) -> Any:
    kinds: dict[str, Any] = {
        "JoinGroup": JoinGroupResponse,
        "SyncGroup": SyncGroupResponse,
        "Heartbeat": HeartbeatResponse,
        "LeaveGroup": LeaveGroupResponse,
    }
    return kinds[api](error_code=code)


def shown(partitions: Iterable[TopicPartition]) -> str:
    """`t-0,1 u-3`, or `nothing`."""
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(number))
    return " ".join(f"{topic}-{','.join(numbers)}" for topic, numbers in by_topic.items()) or "nothing"


def described(what: object) -> str:
    """One line for people."""
    from kohort.protocol.errors import error_name

    match what:
        case Send(api="JoinGroup", request=JoinGroupRequest() as join):
            static = f" instance {join.group_instance_id}" if join.group_instance_id else ""
            names = "/".join(each.name for each in join.protocols)
            return f"JoinGroup as {join.member_id or 'nobody'}{static}, {names}, because {join.reason}"
        case Send(api="SyncGroup", request=SyncGroupRequest() as sync):
            plan = "; ".join(
                f"{each.member_id}: {shown(read_assignment(each.assignment))}" for each in sync.assignments
            )
            return f"SyncGroup generation {sync.generation_id}" + (f" [{plan}]" if plan else "")
        case Send(api="Heartbeat", request=HeartbeatRequest() as beat):
            return f"Heartbeat generation {beat.generation_id}"
        case Send(api="LeaveGroup", request=LeaveGroupRequest() as leave):
            return f"LeaveGroup as {leave.members[0].member_id}, because {leave.members[0].reason}"
        case Send(api=api):
            return api
        case ev.Joined(response=answer) if not answer.error_code:
            leads = f", leads {len(answer.members)}" if answer.leader == answer.member_id else ""
            skip = ", need not assign" if answer.skip_assignment else ""
            return f"generation {answer.generation_id} as {answer.member_id}, {answer.protocol_name}{leads}{skip}"
        case ev.Joined(response=answer):
            given = f" {answer.member_id}" if answer.error_code == ID_REQUIRED else ""
            return f"{error_name(answer.error_code)}{given}"
        case ev.Synced(response=answer) if not answer.error_code:
            return shown(read_assignment(bytes(answer.assignment)))
        case ev.CoordinatorFound(response=answer):
            return f"node {answer.coordinators[0].node_id}"
        case ev.Synced(response=answer) | ev.Beat(response=answer) | ev.Left(response=answer):
            return error_name(answer.error_code) if answer.error_code else "ok"
        case Revoked():
            return f"on_revoked {shown(what.partitions)}: {what.cause}"
        case Assigned():
            return f"on_assigned {shown(what.partitions)} of generation {what.generation}: {what.cause}"
        case Lost():
            return f"on_lost {shown(what.partitions)} of generation {what.generation}: {what.cause}"
    return str(what)
