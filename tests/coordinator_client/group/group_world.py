"""A small world for group members: one coordinator with the rules of Apache Kafka's, links and users.

A link may lose its bytes. A user polls or does not. Only the test moves the clock.

The coordinator is `group_coordinator.py`'s; `Actor` is the driver that `coordinator_client/group/ready.py` requires,
without sockets. Everything happens one delivery at a time, so a schedule, drawn or written down, can be played
again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kohort.assignors import get_all
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.classic_member import ClassicMember
from kohort.coordinator_client.group.leader_assignment import run_plan
from kohort.coordinator_client.group.member_timers import MemberSettings
from kohort.coordinator_client.group.ready import BacklogOrder, CommitOrder, Ready, Send
from kohort.coordinator_client.group.states import MemberState
from kohort.coordinator_client.hooks import Assigned, HookCall, Lost, Revoked
from kohort.coordinator_client.subscription_state import Subscription
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.metadata import TopicInfo, TopicsChanged
from kohort.protocol.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from kohort.protocol.membership import read_assignment
from tests.coordinator_client.group.group_coordinator import ID_REQUIRED, NONE, NOT_COORDINATOR, GroupCoordinator, Reply

GROUP = "g"


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
    """A process: the machine, its links to the coordinator and a user. The driver of
    `coordinator_client/group/ready.py`, in forty lines."""

    def __init__(self, world: World, name: str, topics: Iterable[str], assignors: Iterable[str], **settings: Any):
        self.world = world
        self.name = name
        self.member = ClassicMember(MemberSettings(group_id=GROUP, **settings), get_all(assignors))
        self.alive = True
        self.awake = True
        self.in_poll = False
        self.taken: HookCall | None = None
        self.commit_on_revoke = True
        self.visible: frozenset[TopicPartition] = frozenset()
        self.reported: list[Assigned | Revoked | Lost] = []
        self.requests = Lane(world)
        self.responses = Lane(world)
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
        for notice in ready.notices:
            self.world.post(f"{self.name}: {notice.kind}: {notice.text}")
        if ready.commit is not None:
            self.requests.put(ready.commit)
        for send in ready.sends:
            self.waiting[send.serial] = send
            self.requests.put(send)
        if ready.backlog is not None:
            self.measure(ready.backlog)
        if ready.plan is not None:
            self.step(run_plan(ready.plan))
            return
        counts = {topic: self.world.topics.get(topic, 0) for topic in ready.wanted.names}
        if ready.wanted.names and counts != self.known:
            self.known = counts
            infos = {topic: TopicInfo(count) for topic, count in counts.items() if count}
            self.step(TopicsChanged(infos, requested=ready.wanted.names))

    def measure(self, order: BacklogOrder) -> None:
        """The lag as the world has it; an unreachable broker leaves out its partitions."""
        total = sum(order.topics.values())
        if self.world.backlog is None:
            self.world.post(f"{self.name} requests the lag of {total} partitions, without a response")
            return
        reported = {tp: lag for tp, lag in self.world.backlog.items() if tp.partition < order.topics.get(tp.topic, 0)}
        self.world.post(f"{self.name} requests the lag: {shown_lag(reported)}")
        unknown = total - len(reported)
        self.step(ev.LagKnown(order.serial, reported, unknown, "no leader" if unknown else ""))

    def due(self) -> bool:
        return self.ready.wake_at is not None and self.ready.wake_at <= self.world.now

    # -- the wire

    def send_next(self) -> None:
        """One request reaches its broker."""
        request = self.requests.take()
        if isinstance(request, CommitOrder):
            offsets = {tp: each.offset for tp, each in request.offsets.items()}
            code = self.world.coordinator.commit(request.identity, offsets)
            self.world.post(f"{self.name} -> OffsetCommit {shown(offsets)} of generation {request.identity.generation}")
            if code != NONE:
                self.responses.put(ev.CommitRefused(code, request.identity, frozenset(offsets)))
            self.responses.put(ev.CommitSettled(request.serial, dict.fromkeys(offsets, code) if code else {}))
            return
        link = self.link

        def reply(response: Any) -> None:
            if link == self.link:
                self.responses.put(ev.RESPONSE_EVENTS[request.api](request.serial, response))

        self.world.route(self, request, reply)

    def receive_next(self) -> None:
        """One response reaches the member."""
        response = self.responses.take()
        serial = getattr(response, "serial", 0)
        send = self.waiting.pop(serial, None)
        if send is not None and not isinstance(response, ev.Disconnected):
            self.world.post(f"{self.name} <- {send.api} {described(response)}")
        self.step(response)

    def disconnect(self) -> None:
        """Every link breaks: what was on it is gone, in both directions."""
        self.link += 1
        self.requests.keep(CommitOrder)
        self.responses.keep(ev.CommitSettled, ev.CommitRefused, ev.Disconnected)
        lost, self.waiting = list(self.waiting), {}
        for serial in lost:
            self.responses.put(ev.Disconnected(serial, None, "connection lost"))
        known = self.ready.view.coordinator
        if known is not None:
            self.responses.put(ev.Disconnected(None, known.node_id, "connection lost"))

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
        self.reported.append(call.event)
        self.world.post(f"{self.name}: {described(call.event)}")

    def end_hook(self) -> None:
        call, self.taken = self.taken, None
        assert call is not None
        commit: dict[TopicPartition, OffsetAndMetadata] = {}
        if isinstance(call.event, Revoked) and self.commit_on_revoke:
            commit = dict.fromkeys(call.event.partitions, OffsetAndMetadata(int(self.world.now * 1000)))
        self.visible = call.after
        self.step(ev.HookDone(call.serial, self.world.now, commit))

    @property
    def shows(self) -> frozenset[TopicPartition]:
        """The partitions whose records a poll would return right now: the fetch barrier of
        `coordinator_client/group/ready.py`."""
        view = self.ready.view
        return view.fetchable if self.alive and self.world.now < view.ownership_deadline else frozenset()


@dataclass
class World:
    """The clock, the cluster and all members."""

    topics: dict[str, int] = field(default_factory=lambda: {"t": 4})
    now: float = 1000.0
    home: int = 1
    """The node that coordinates the group."""
    down: set[int] = field(default_factory=set)
    coordinator: GroupCoordinator = field(default_factory=GroupCoordinator)
    actors: dict[str, Actor] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    backlog: dict[TopicPartition, int] | None = None
    """Records waiting, for members whose assignor needs them. None: requests for them get no response."""

    def post(self, line: str) -> None:
        self.log.append(line)

    def start(
        self, name: str, topics: Iterable[str] = ("t",), assignors: Iterable[str] = ("range",), **how: Any
    ) -> Actor:
        actor = self.actors[name] = Actor(self, name, topics, assignors, **how)
        return actor

    def route(self, actor: Actor, send: Send, reply: Reply) -> None:
        """A request arrives: at any broker, at the coordinator, at a broker that no longer is it, or at none."""
        if send.to is None:
            self.post(f"{actor.name} -> {described(send)}")
            node = Coordinator(key=GROUP, node_id=self.home, host=f"node{self.home}", port=9092)
            reply(FindCoordinatorResponse(coordinators=(node,)))
        elif send.to.node_id in self.down:
            actor.waiting.pop(send.serial, None)
            actor.responses.put(ev.Disconnected(send.serial, send.to.node_id, "connection refused"))
        elif send.to.node_id != self.home:
            self.post(f"{actor.name} -> {described(send)}")
            reply(_refusal(send.api, NOT_COORDINATOR))
        else:
            self.post(f"{actor.name} -> {described(send)}")
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
                while actor.responses:
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

        A static member whose name was just taken over cannot know it before its next request, so it is left out.
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
            wants_rejoin = actor.member._membership.rejoin is not None
            if actor.alive and owners is not None and view.state is MemberState.STABLE and not wants_rejoin:
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


def shown_lag(lag: Mapping[TopicPartition, int]) -> str:
    """`t-0 5, t-1 0`."""
    return ", ".join(f"{topic}-{number} {waiting}" for (topic, number), waiting in sorted(lag.items())) or "nothing"


def described(what: object) -> str:
    """One line for people."""
    from kohort.protocol.errors import error_name

    match what:
        case Send(api="JoinGroup", request=JoinGroupRequest() as join):
            static = f" instance {join.group_instance_id}" if join.group_instance_id else ""
            names = "/".join(each.name for each in join.protocols)
            identity = f"as {join.member_id}" if join.member_id else "without a member id"
            return f"JoinGroup {identity}{static}, {names}, because {join.reason}"
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
        case ev.JoinGroupResponded(response=response) if not response.error_code:
            leads = f", leads {len(response.members)}" if response.leader == response.member_id else ""
            skip = ", need not assign" if response.skip_assignment else ""
            return f"generation {response.generation_id} as {response.member_id}, {response.protocol_name}{leads}{skip}"
        case ev.JoinGroupResponded(response=response):
            given = f" {response.member_id}" if response.error_code == ID_REQUIRED else ""
            return f"{error_name(response.error_code)}{given}"
        case ev.SyncGroupResponded(response=response) if not response.error_code:
            return shown(read_assignment(bytes(response.assignment)))
        case ev.FindCoordinatorResponded(response=response):
            return f"node {response.coordinators[0].node_id}"
        case (
            ev.SyncGroupResponded(response=response)
            | ev.HeartbeatResponded(response=response)
            | ev.LeaveGroupResponded(response=response)
        ):
            return error_name(response.error_code) if response.error_code else "ok"
        case Revoked():
            return f"on_revoked {shown(what.partitions)}: {what.cause}"
        case Assigned():
            return f"on_assigned {shown(what.partitions)} of generation {what.generation}: {what.cause}"
        case Lost():
            return f"on_lost {shown(what.partitions)} of generation {what.generation}: {what.cause}"
    return str(what)
