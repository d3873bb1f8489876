"""Replays a tape through today's machine, and compares the requests.

The member's rules may have changed since the tape was made. A replay shows each request on the tape beside the request
of today's `ClassicMember`. The user's part is not on a tape: hooks return None at once, and a leave counts as a close.
For lag-based assignors, the lag is computed from the OffsetFetch and ListOffsets responses on the tape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from operator import attrgetter
from typing import Any
from uuid import UUID

from kohort.assignors import Assignor, Rebalance, UnknownAssignor, get
from kohort.assignors.range import RangeAssignor
from kohort.common.errors import KohortError
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group.classic_member import ClassicMember
from kohort.coordinator_client.group.events import (
    RESPONSE_EVENTS,
    CloseRequested,
    CommitRefused,
    CommitSettled,
    HookDone,
    HookStarted,
    LagKnown,
    PlanMade,
    Polled,
    Subscribed,
)
from kohort.coordinator_client.group.leader_assignment import AssignorFailed, run_plan
from kohort.coordinator_client.group.member_timers import MemberSettings
from kohort.coordinator_client.group.ready import BacklogOrder, PlanOrder, Send
from kohort.coordinator_client.group.states import MemberState, RebalanceRecord
from kohort.coordinator_client.offsets.group_lag import waiting
from kohort.coordinator_client.subscription_state import Subscription
from kohort.network.group_types import ConsumerGroupMetadata, OffsetAndMetadata
from kohort.network.metadata import NOTHING_KNOWN, ClusterView
from kohort.network.metadata_refresh import topics_changed
from kohort.network.offset_requests import (
    EARLIEST,
    LATEST,
    ListedOffset,
    commit_codes,
    committed_offsets,
    listed_offsets,
)
from kohort.network.request_versions import fit
from kohort.protocol import membership, tape
from kohort.protocol.catalogue import API
from kohort.protocol.tape import Taped

CLOSE_S = 30.0
SHORTEST_HEARTBEAT_S = 0.1
AFTER_A_PLAN = ("SyncGroup", "JoinGroup", "LeaveGroup")  # or after none could be made
UNCOMPARED = {"reason": ""}  # the user's text, or kohort's of another version


class Replayed(NamedTuple):
    """One request of the tape. `difference`: the difference to today's request; None if they are equal.

    `state`: the member's state after today's request. `time_s`: of the tape.
    """

    time_s: float
    api: str
    state: MemberState
    difference: str | None


@dataclass(slots=True)
class _Received:
    """The lag found in responses on the tape since the order for it."""

    order: BacklogOrder
    committed: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)
    found: dict[int, dict[TopicPartition, int]] = field(default_factory=lambda: {LATEST: {}, EARLIEST: {}})
    requested: dict[tuple[int, int], dict[TopicPartition, int]] = field(default_factory=dict)

    def sees(self, taped: Taped, names: Mapping[UUID, str]) -> None:
        place, value = (taped.connection, taped.correlation_id), tape.value(taped)
        if taped.api == "OffsetFetch" and taped.direction == "response":
            self.committed |= committed_offsets(value, names).found
        elif taped.api == "ListOffsets" and taped.direction == "request":
            self.requested[place] = {
                TopicPartition(topic.name, one.partition_index): one.timestamp
                for topic in value.topics
                for one in topic.partitions
            }
        elif taped.api == "ListOffsets":
            wanted = self.requested.pop(place, {})
            for partition, got in listed_offsets(value).items():
                if isinstance(got, ListedOffset) and wanted.get(partition) in self.found:
                    self.found[wanted[partition]][partition] = got.offset

    def reported(self) -> LagKnown:
        ends, beginnings = self.found[LATEST], self.found[EARLIEST]
        lag = waiting(self.committed, ends, beginnings, reads_old=bool(beginnings))
        return LagKnown(self.order.serial, lag)


class NoMember(KohortError):
    """A tape without a JoinGroup request, so without a member."""


class _StandIn(RangeAssignor):
    """Replaces an assignor that is not installed here. The leader's plans with it are on the tape."""

    def __init__(self, name: str, rebalance: Rebalance) -> None:
        self.name, self.rebalance = name, rebalance


@dataclass(slots=True)
class _Play:
    member: ClassicMember
    taped: list[Taped]
    requested: deque[Send] = field(default_factory=deque)  # requested today, and not yet found on the tape
    waiting: dict[tuple[int, int], Send] = field(default_factory=dict)  # (connection, correlation id) -> the send
    metadata_requested: dict[tuple[int, int], frozenset[str] | None] = field(default_factory=dict)
    committed_as: dict[tuple[int, int], ConsumerGroupMetadata] = field(default_factory=dict)
    received: _Received | None = None
    cluster: ClusterView = NOTHING_KNOWN
    state: MemberState = MemberState.OUT

    @property
    def names(self) -> dict[UUID, str]:
        """The names of topics by their ids."""
        return {one.id: one.name for one in self.cluster.topics.values()}

    def turn(self, now: float) -> None:
        """Let the member act until it has nothing left to do at this time."""
        self.member.step(Polled(now), now)
        while True:
            ready = self.member.ready(now)
            self.state = ready.view.state
            self.requested.extend(ready.sends)
            if ready.backlog is not None:
                self.received = _Received(ready.backlog)
            if ready.plan is not None:
                if (made := self.made(ready.plan, now)) is not None:
                    self.member.step(made, now)
            elif ready.commit is not None:
                self.member.step(CommitSettled(ready.commit.serial), now)
            elif ready.hook is not None:
                self.member.step(HookStarted(ready.hook.serial, now), now)
                self.member.step(HookDone(ready.hook.serial, now), now)
            elif not ready.sends:
                return

    def made(self, order: PlanOrder, now: float) -> PlanMade | None:
        """Return the result of the order; None if a stand-in would plan and the tape ends before its result."""
        if not isinstance(order.assignor, _StandIn):
            return run_plan(order)
        later = islice(self.taped, bisect_left(self.taped, now, key=attrgetter("time_s")), None)
        after = next((each for each in later if each.direction == "request" and each.api in AFTER_A_PLAN), None)
        if after is None:
            return None
        if after.api == "SyncGroup":
            return PlanMade(order.serial, tape.value(after).assignments)
        return PlanMade(order.serial, error=AssignorFailed("it did then", assignor=order.assignor.name))

    def requests(self, taped: Taped) -> Replayed:
        """Compare a request on the tape with the member's current one."""
        self.turn(taped.time_s)
        if taped.api == "SyncGroup" and self.received is not None:
            self.member.step(self.received.reported(), taped.time_s)
            self.received = None
            self.turn(taped.time_s)
        if taped.api == "LeaveGroup" and not any(send.api == "LeaveGroup" for send in self.requested):
            self.member.step(CloseRequested(taped.time_s + CLOSE_S), taped.time_s)
            self.turn(taped.time_s)
        alike = [send for send in self.requested if send.api == taped.api]
        if not alike:
            return Replayed(taped.time_s, taped.api, self.state, "the member sends no such request")
        # A heartbeat that is due a moment too early, and overtaken by a join, was never sent: the newest one counts.
        send = alike[-1]
        self.requested = deque(each for each in self.requested if each.api != taped.api)
        self.waiting[taped.connection, taped.correlation_id] = send
        then, now = _comparable(tape.value(taped)), _comparable(fit(send.request, taped.version))
        message = API[taped.api].request
        same = message.build(then, taped.version) == message.build(now, taped.version)
        return Replayed(taped.time_s, taped.api, self.state, None if same else f"then {then}, now {now}")

    def is_complete(self, taped: Taped) -> None:
        send = self.waiting.pop((taped.connection, taped.correlation_id), None)
        if send is not None:
            self.member.step(RESPONSE_EVENTS[taped.api](send.serial, tape.value(taped)), taped.time_s)
            self.turn(taped.time_s)

    def sees_metadata(self, taped: Taped) -> None:
        place, value = (taped.connection, taped.correlation_id), tape.value(taped)
        if taped.direction == "request":
            named = None if value.topics is None else frozenset(topic.name for topic in value.topics)
            self.metadata_requested[place] = named
        elif place in self.metadata_requested:
            requested = self.metadata_requested.pop(place)
            self.cluster = self.cluster.updated(value, requested=requested)
            self.member.step(topics_changed(self.cluster, requested), taped.time_s)
            self.turn(taped.time_s)

    def sees_commit(self, taped: Taped) -> None:
        """A refusal is what began many a rebalance."""
        place, value = (taped.connection, taped.correlation_id), tape.value(taped)
        if taped.direction == "request":
            self.committed_as[place] = ConsumerGroupMetadata(
                value.group_id, value.generation_id_or_member_epoch, value.member_id, value.group_instance_id
            )
            return
        if (sent := self.committed_as.pop(place, None)) is None:
            return
        refused: dict[int, set[TopicPartition]] = {}
        for partition, code in commit_codes(value, self.names).items():
            refused.setdefault(code, set()).add(partition)
        for code in sorted(refused.keys() - {0}):
            self.member.step(CommitRefused(code, sent, frozenset(refused[code])), taped.time_s)
            self.turn(taped.time_s)


def replay(frames: Iterable[Taped]) -> Iterator[Replayed]:
    """Every request of the group's protocol on the tape, compared. Raises NoMember, or what its assignors raise."""
    for taped in _processes(frames):
        yield from _steps(_begun(taped, get), taped)


def rebalances_on(frames: Iterable[Taped]) -> tuple[RebalanceRecord, ...]:
    """The rebalances of the member on the tape, times in seconds of the tape.

    If other processes have appended to the tape, theirs follow, with times of their own. A rebalance in which a process
    ended has no outcome. The last one may still be under way. Its hooks are not on the tape: those phases take no time
    here. Its assignors need not be installed: one that is not is taken for cooperative if the member sent its owned
    partitions in the join.
    Raises NoMember.
    """
    found: list[RebalanceRecord] = []
    ended = 0.0
    for taped in _processes(frames):
        found[-1:] = [_closed(one, ended) for one in found[-1:]]
        play = _begun(taped, partial(_installed_or_not, taped=taped))
        for _ in _steps(play, taped):
            pass
        found += play.member.timeline.rebalances
        ended = taped[-1].time_s
    return tuple(found)


def _closed(rebalance: RebalanceRecord, ended_at: float) -> RebalanceRecord:
    """The last rebalance of a process, with the time at which the process ended if it was under way."""
    if rebalance.ended_at is not None:
        return rebalance
    phases = (one if one.ended_at is not None else one._replace(ended_at=ended_at) for one in rebalance.phases)
    return rebalance._replace(ended_at=ended_at, phases=tuple(phases))


def _processes(frames: Iterable[Taped]) -> list[list[Taped]]:
    """The frames of each process that has joined a group. Raises NoMember if there is none."""
    found: list[list[Taped]] = [[]]
    sent: dict[int, int] = {}
    for each in frames:
        if each.direction == "request":
            # In a connection they grow. A lower one begins another process.
            if each.correlation_id <= sent.get(each.connection, -1):
                found.append([])
                sent = {}
            sent[each.connection] = each.correlation_id
        found[-1].append(each)
    joined = [taped for taped in found if next(_joins(taped), None) is not None]
    if not joined:
        raise NoMember("no JoinGroup request is on this tape", hint="tape a consumer that subscribes")
    return joined


def _begun(taped: list[Taped], assignor: Callable[[str], Assignor]) -> _Play:
    join = next(_joins(taped))
    assignors = [assignor(protocol.name) for protocol in join.protocols]
    play = _Play(ClassicMember(_settings(join, _heartbeat_interval_ms(taped)), assignors), taped)
    play.member.step(Subscribed(Subscription.of(_subscribed(join).topics)), taped[0].time_s)
    return play


def _joins(taped: list[Taped]) -> Iterator[Any]:
    return (tape.value(each) for each in taped if (each.api, each.direction) == ("JoinGroup", "request"))


def _installed_or_not(name: str, taped: list[Taped]) -> Assignor:
    try:
        return get(name)
    except UnknownAssignor:
        reported = (one.metadata for join in _joins(taped) for one in join.protocols if one.name == name)
        keeps = any(membership.parse_subscription(metadata).owned_partitions for metadata in reported)
        return _StandIn(name, Rebalance.COOPERATIVE if keeps else Rebalance.EAGER)


def _steps(play: _Play, taped: list[Taped]) -> Iterator[Replayed]:
    for each in taped:
        if each.api == "Metadata":
            play.sees_metadata(each)
        elif each.api in ("OffsetFetch", "ListOffsets"):
            if play.received is not None:
                play.received.sees(each, play.names)
        elif each.api == "OffsetCommit":
            play.sees_commit(each)
        elif each.api in RESPONSE_EVENTS and each.direction == "request":
            yield play.requests(each)
        elif each.api in RESPONSE_EVENTS:
            play.is_complete(each)


def _heartbeat_interval_ms(frames: list[Taped]) -> int:
    """Estimate the heartbeat interval, which is in no frame.

    It is slightly less than the shortest time before a heartbeat, counted from the previous heartbeat or the JoinGroup
    response. An early heartbeat waits for its place on the tape, a late one would miss it.
    """
    pace = {("request", "Heartbeat"), ("response", "JoinGroup")}
    paced = [each for each in frames if (each.direction, each.api) in pace]
    waits = [after.time_s - before.time_s for before, after in pairwise(paced) if after.api == "Heartbeat"]
    return int(max(min(waits, default=0.0) * 0.9, SHORTEST_HEARTBEAT_S) * 1000)


def _settings(join: Any, heartbeat_interval_ms: int) -> MemberSettings:
    return MemberSettings(
        group_id=join.group_id,
        instance_id=join.group_instance_id,
        rack_id=_subscribed(join).rack_id,
        session_timeout_ms=join.session_timeout_ms,
        heartbeat_interval_ms=heartbeat_interval_ms,
        max_poll_interval_ms=join.rebalance_timeout_ms,
        jitter=0.0,  # the shortest backoff: a request that is due later is found waiting
        leave_on_close=True,
    )


def _subscribed(join: Any) -> membership.Subscription:
    return membership.parse_subscription(join.protocols[0].metadata)


def _comparable(value: Any) -> Any:
    changes: dict[str, Any] = {name: blank for name, blank in UNCOMPARED.items() if name in value._fields}
    members = getattr(value, "members", None)
    if members:
        changes["members"] = tuple(member._replace(**UNCOMPARED) for member in members)
    return value._replace(**changes)
