"""One `GroupMember` on a bench: the test plays driver, coordinator, metadata and user, one sentence at a time.

Responses are built as values and handed over as events; nothing here knows what the machine ought to do.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kohort.assignors import Assignor, GroupView, MemberSubscription, Plan, Rebalance, get_all
from kohort.common.errors import KohortError
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group import events as ev
from kohort.coordinator_client.group.classic_member import ClassicMember
from kohort.coordinator_client.group.leader_assignment import read_members, run_plan
from kohort.coordinator_client.group.member_timers import MemberSettings
from kohort.coordinator_client.group.ready import BacklogOrder, CommitOrder, PlanOrder, Ready, Send
from kohort.coordinator_client.hooks import HookCall, Start
from kohort.coordinator_client.subscription_state import Subscription
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.metadata import TopicInfo, TopicsChanged
from kohort.network.notices import Notice
from kohort.protocol.apis.find_coordinator import Coordinator, FindCoordinatorResponse
from kohort.protocol.apis.heartbeat import HeartbeatResponse
from kohort.protocol.apis.join_group import JoinGroupResponse, JoinGroupResponseMember
from kohort.protocol.apis.leave_group import LeaveGroupResponse, MemberResponse
from kohort.protocol.apis.sync_group import SyncGroupResponse
from kohort.protocol.membership import (
    Assignment,
    TopicPartitions,
    build_assignment,
    build_subscription,
    parse_assignment,
    parse_subscription,
)
from kohort.protocol.membership import (
    Subscription as WireSubscription,
)

GROUP = "billing"


def tps(*names: str) -> frozenset[TopicPartition]:
    """`tps("t-0", "t-1")` and, for runs, `tps("t-0..3")`."""
    found = set()
    for name in names:
        topic, _, numbers = name.rpartition("-")
        first, _, last = numbers.partition("..")
        found |= {TopicPartition(topic, number) for number in range(int(first), int(last or first) + 1)}
    return frozenset(found)


def wire(partitions: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return tuple(TopicPartitions(topic=topic, partitions=tuple(numbers)) for topic, numbers in by_topic.items())


def said(
    member_id: str,
    *topics: str,
    owned: Iterable[TopicPartition] = (),
    generation: int = -1,
    rack: str | None = None,
    instance: str | None = None,
    user_data: bytes | None = None,
) -> JoinGroupResponseMember:
    """A member as the leader's JoinGroup response lists it."""
    subscription = WireSubscription(
        topics=topics, user_data=user_data, owned_partitions=wire(owned), generation_id=generation, rack_id=rack
    )
    return JoinGroupResponseMember(
        member_id=member_id, group_instance_id=instance, metadata=build_subscription(subscription)
    )


class TopicsOnly:
    """An assignor whose subscription has only the topics, as in docs/assignors.md."""

    name = "topics-only"
    rebalance = Rebalance.EAGER

    def subscription(self, topics: object, owned: object, generation: int) -> MemberSubscription:
        return MemberSubscription(tuple(topics))  # type: ignore[arg-type]

    def assign(self, group: GroupView) -> Plan:
        raise NotImplementedError


class Rig:
    """The bench. `now` is its clock; every verb ends with a `ready`, whose edges are kept."""

    def __init__(self, *assignors: str | Assignor, at: float = 100.0, **settings: Any) -> None:
        self.settings = MemberSettings(group_id=GROUP, **settings)
        self.member = ClassicMember(self.settings, get_all(assignors or ("range",)))
        self.now = at
        self.sends: list[Send] = []
        self.notices: list[Notice] = []
        self.order: CommitOrder | None = None
        self.plans_by_itself = True
        self.measure: BacklogOrder | None = None
        self.plan_order: PlanOrder | None = None
        self.ready: Ready = self._take()

    # -- the two verbs

    def post(self, *happened: ev.Event) -> Ready:
        for event in happened:
            self.member.step(event, self.now)
        return self._take()

    def after(self, seconds: float) -> Ready:
        self.now += seconds
        return self._take()

    def _take(self) -> Ready:
        self.ready = self.member.ready(self.now)
        self.sends += self.ready.sends
        self.notices += self.ready.notices
        self.order = self.ready.commit or self.order
        self.measure = self.ready.backlog or self.measure
        if self.ready.plan is not None:
            self.plan_order = self.ready.plan
            if self.plans_by_itself:
                return self.planned()
        return self.ready

    # -- looking

    @property
    def state(self) -> str:
        """The state's name (not the state: a type checker would take it for the same all through a test)."""
        return self.ready.view.state.name

    @property
    def hook(self) -> HookCall:
        assert self.ready.hook is not None
        return self.ready.hook

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.ready.view.assignment.partitions

    @property
    def kinds(self) -> list[str]:
        return [notice.kind for notice in self.notices]

    def waiting(self, api: str) -> Any:
        """The newest request of this API; there must be one."""
        return next(send for send in reversed(self.sends) if send.api == api)

    def requested(self, api: str) -> list[Any]:
        """All requests of this API so far, oldest first."""
        return [send.request for send in self.sends if send.api == api]

    def last(self, api: str) -> Any:
        return self.waiting(api).request

    def reported(self, assignor: str = "range") -> WireSubscription:
        """The subscription in the newest JoinGroup under an assignor's name."""
        protocols = {each.name: each.metadata for each in self.last("JoinGroup").protocols}
        return parse_subscription(protocols[assignor])

    def plan(self) -> dict[str, frozenset[TopicPartition]]:
        """The assignments in the newest SyncGroup, by member."""
        return {
            each.member_id: frozenset(
                TopicPartition(one.topic, number)
                for one in parse_assignment(each.assignment).assigned_partitions
                for number in one.partitions
            )
            for each in self.last("SyncGroup").assignments
        }

    # -- playing coordinator

    def found(self, code: int = 0, *, node: int = 1, host: str = "one", port: int = 9092) -> Ready:
        response = FindCoordinatorResponse(
            coordinators=(Coordinator(key=GROUP, node_id=node, host=host, port=port, error_code=code),)
        )
        return self.post(ev.FindCoordinatorResponded(self.waiting("FindCoordinator").serial, response))

    def joined(
        self,
        code: int = 0,
        *,
        generation: int = 1,
        me: str = "m1",
        leader: str | None = "other",
        protocol: str | None = "range",
        members: Sequence[JoinGroupResponseMember] = (),
        skip: bool = False,
        protocol_type: str | None = "consumer",
    ) -> Ready:
        response = JoinGroupResponse(
            error_code=code,
            generation_id=-1 if code else generation,
            protocol_type=protocol_type,
            protocol_name=None if code else protocol,
            leader="" if code else (leader or me),
            member_id=me,
            members=tuple(members),
            skip_assignment=skip,
        )
        return self.post(ev.JoinGroupResponded(self.waiting("JoinGroup").serial, response))

    def synced(
        self,
        code: int = 0,
        assigned: Iterable[TopicPartition] = (),
        *,
        raw: bytes | None = None,
        protocol: str | None = None,
        protocol_type: str | None = "consumer",
    ) -> Ready:
        data = build_assignment(Assignment(assigned_partitions=wire(assigned))) if raw is None else raw
        response = SyncGroupResponse(
            error_code=code,
            assignment=b"" if code else data,
            protocol_name=protocol,
            protocol_type=protocol_type,
        )
        return self.post(ev.SyncGroupResponded(self.waiting("SyncGroup").serial, response))

    def beat(self, code: int = 0, serial: int | None = None) -> Ready:
        requested = self.waiting("Heartbeat").serial if serial is None else serial
        return self.post(ev.HeartbeatResponded(requested, HeartbeatResponse(error_code=code)))

    def left(self, code: int = 0, member_code: int = 0) -> Ready:
        members = (MemberResponse(member_id="m1", group_instance_id=None, error_code=member_code),)
        response = LeaveGroupResponse(error_code=code, members=members)
        return self.post(ev.LeaveGroupResponded(self.waiting("LeaveGroup").serial, response))

    def heartbeat(self, code: int = 0) -> Ready:
        """Wait for the next heartbeat and respond to it."""
        before = len(self.requested("Heartbeat"))
        self.after(self.settings.heartbeat_interval_ms / 1000)
        assert len(self.requested("Heartbeat")) == before + 1, f"no heartbeat in {self.state}"
        return self.beat(code)

    def cut(self, api: str, reason: str = "connection closed") -> Ready:
        """The connection breaks while a request of this API waits."""
        return self.post(ev.Disconnected(self.waiting(api).serial, 1, reason))

    def planned(self) -> Ready:
        """The assignor has run."""
        assert self.plan_order is not None
        return self.post(run_plan(self.plan_order))

    def measured(self, *, unknown: int = 0, why: str = "", **lag: int) -> Ready:
        """The lag by partition, `t_0=5` for t-0."""
        assert self.measure is not None
        found = {tp: waiting for name, waiting in lag.items() for tp in tps(name.replace("_", "-"))}
        return self.post(ev.LagKnown(self.measure.serial, found, unknown, why))

    # -- playing user and metadata

    def subscribe(self, *topics: str) -> Ready:
        return self.post(ev.Subscribed(Subscription.of(topics)))

    def topics(self, complete: bool = False, **counts: int) -> Ready:
        """A Metadata response; a count of 0 means that the topic does not exist."""
        infos = {topic: TopicInfo(count) for topic, count in counts.items() if count}
        return self.post(TopicsChanged(infos, complete, frozenset(counts)))

    def start_hook(self) -> HookCall:
        call = self.hook
        self.post(ev.Polled(self.now), ev.HookStarted(call.serial, self.now))
        return call

    def end_hook(
        self,
        call: HookCall,
        commit: Mapping[TopicPartition, int] | None = None,
        start: Mapping[TopicPartition, int] | None = None,
        error: BaseException | None = None,
    ) -> Ready:
        offsets = {tp: OffsetAndMetadata(offset) for tp, offset in (commit or {}).items()}
        starts = {tp: Start(offset) for tp, offset in (start or {}).items()}
        return self.post(ev.HookDone(call.serial, self.now, offsets, starts, error), ev.PollEnded(self.now))

    def run_hook(self, **response: Any) -> HookCall:
        call = self.start_hook()
        self.end_hook(call, **response)
        return call

    def settle(self, **refused: int) -> Ready:
        assert self.order is not None
        codes = {tp: code for name, code in refused.items() for tp in tps(name.replace("_", "-"))}
        return self.post(ev.CommitSettled(self.order.serial, codes))

    # -- whole walks

    def reach_joining(self, *topics: str) -> Ready:
        self.subscribe(*(topics or ("t",)))
        return self.found()

    def reach_syncing(self, *topics: str, generation: int = 1, protocol: str = "range") -> Ready:
        self.reach_joining(*topics)
        return self.joined(generation=generation, protocol=protocol)

    def reach_stable(
        self, assigned: Iterable[TopicPartition], *topics: str, generation: int = 1, protocol: str = "range"
    ) -> Ready:
        self.reach_syncing(*topics, generation=generation, protocol=protocol)
        self.synced(assigned=assigned)
        self.run_hook()
        assert self.state == "STABLE"
        return self.ready

    def again(self, assigned: Iterable[TopicPartition], *, generation: int, protocol: str = "range") -> Ready:
        """From JOINING with a join under way to ASSIGNING (or REVOKING), as a follower."""
        self.joined(generation=generation, protocol=protocol)
        return self.synced(assigned=assigned)


def as_leader(*members: JoinGroupResponseMember) -> dict[str, Any]:
    """Arguments of `joined` that make m1 the leader of these members."""
    assert read_members(members, "range", 1)
    return {"leader": None, "members": members}


def fatal(rig: Rig) -> KohortError:
    error = rig.ready.view.fatal
    assert error is not None
    return error


def assert_silent(rig: Rig) -> None:
    """A member that failed sends nothing, ever."""
    rig.sends.clear()
    for _ in range(5):
        rig.after(60)
    assert rig.sends == []
    assert rig.ready.wake_at is None
