"""The coordinator's side of groups of Kafka Streams: a machine without socket, thread or clock (KIP-1071).

Every call brings `now` (seconds, any origin). Heartbeats also bring the current topics, and a function that makes one.

Omissions: delays of assignments, rebalance time-outs, warm-up tasks, patterns, racks, repartition topics without a
number of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kohort.common.topic_partition import grouped
from kohort.protocol.apis.streams_group_heartbeat import (
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    TopicPartition,
    Topology,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.heartbeats import (
    HeartbeatRefused,
    check_epoch,
    end_sessions,
    known_member,
    next_deadline,
)
from kohort.testing.fake_broker.settings import CoordinatorSettings
from kohort.testing.fake_broker.streams_group import FakeStreamsMember, StreamsGroup, StreamsTask, Tasks
from kohort.testing.fake_broker.topic_names import names_a_topic

JOIN, LEAVE, LEAVE_STATIC = 0, -1, -2
MISSING_SOURCES, UNEQUAL, MISSING_INTERNAL, SHUTDOWN = 1, 2, 3, 4
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
Topics = Mapping[str, int]
"""The number of partitions of each topic."""


class StreamsCoordinator:
    """The streams groups of a cluster. `standbys`: the setting streams.num.standby.replicas of a group."""

    def __init__(self, settings: CoordinatorSettings) -> None:
        self.settings = settings
        self.groups: dict[str, StreamsGroup] = {}

    def heartbeat(
        self,
        request: StreamsGroupHeartbeatRequest,
        *,
        client_id: str,
        topics: Topics,
        create: Callable[[str, int], object],
        standbys: int,
        now: float,
    ) -> StreamsGroupHeartbeatResponse:
        """Handle one heartbeat: a join, a leave, or a sign of life. `create` makes an internal topic."""
        try:
            _check(request)
            group = self._group(request)
            if request.member_epoch == LEAVE:
                _remove(group, known_member(group, request.member_id))
                return StreamsGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE, status=())
            group.standbys = standbys
            return self._beat(group, request, client_id, topics, create, now)
        except HeartbeatRefused as refused:
            return StreamsGroupHeartbeatResponse(error_code=refused.code, error_message=refused.message, status=())

    def commit_error(self, group_id: str, epoch: int, member_id: str, *, version: int) -> int:
        """The error code with which an OffsetCommit as a whole is refused, or 0."""
        group = self.groups[group_id]
        if epoch < 0 and not group.members:
            return ErrorCode.NONE
        member = group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if version < 9:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE if epoch <= member.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def expire(self, now: float) -> None:
        """Remove the members whose session has ended."""
        end_sessions(self.groups, _remove, now)

    def next_deadline(self) -> float | None:
        """The time at which `expire` is next due, or None."""
        return next_deadline(self.groups)

    def _group(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroup:
        """The group; a join makes it."""
        group = self.groups.get(request.group_id)
        if group is not None:
            return group
        if request.member_epoch != JOIN or request.topology is None:
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        return StreamsGroup(request.group_id, request.topology)

    def _beat(
        self,
        group: StreamsGroup,
        request: StreamsGroupHeartbeatRequest,
        client_id: str,
        topics: Topics,
        create: Callable[[str, int], object],
        now: float,
    ) -> StreamsGroupHeartbeatResponse:
        joins = request.member_epoch == JOIN
        if joins:
            _check_topology(group, request.topology)
            member = group.members.get(request.member_id) or FakeStreamsMember(request.member_id, now)
        else:
            member = known_member(group, request.member_id)
            check_epoch(member, request.member_epoch)
        reported = _reported(group, request.active_tasks)
        is_new, before = member.member_id not in group.members, (member.active, member.standby)
        self.groups[request.group_id] = group
        group.members[member.member_id] = member
        group.shuts_down |= request.shutdown_application
        changed = _updated(member, request, client_id)
        status, counts = _ready(group.topology, topics, create)
        if is_new or changed or counts != group.counts:
            group.counts, group.epoch = counts, group.epoch + 1
            group.plan()
        group.reconcile(member, reported)
        member.deadline = now + self.settings.group_streams_session_timeout_ms / 1000
        reports = joins or (member.active, member.standby) != before
        if group.shuts_down:
            status = (*status, Status(status_code=SHUTDOWN, status_detail="A member has requested a shutdown."))
        return StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.settings.group_streams_heartbeat_interval_ms,
            status=status,
            active_tasks=by_subtopology(member.active) if reports else None,
            standby_tasks=by_subtopology(member.standby) if reports else None,
            warmup_tasks=() if reports else None,
            endpoint_information_epoch=group.epoch,
            partitions_by_user_endpoint=(
                _endpoints(group) if request.endpoint_information_epoch != group.epoch else None
            ),
        )


def by_subtopology(tasks: Iterable[StreamsTask]) -> tuple[TaskIds, ...]:
    """The tasks as responses have them."""
    numbers = grouped(sorted(tasks))
    return tuple(TaskIds(subtopology_id=name, partitions=tuple(found)) for name, found in numbers.items())


def _updated(member: FakeStreamsMember, request: StreamsGroupHeartbeatRequest, client_id: str) -> bool:
    """Keep the fields that the member has sent. Returns True if one of them has changed."""
    before = (member.process_id, member.endpoint)
    member.client_id = client_id
    if request.process_id is not None:
        member.process_id = request.process_id
    if request.user_endpoint is not None:
        member.endpoint = request.user_endpoint
    if request.topology is not None:
        member.topology_epoch = request.topology.epoch
    return before != (member.process_id, member.endpoint)


def _ready(
    topology: Topology, topics: Topics, create: Callable[[str, int], object]
) -> tuple[tuple[Status, ...], dict[str, int]]:
    """The statuses of the topics, and the number of tasks of each subtopology if they are ready."""
    missing = [name for one in topology.subtopologies for name in one.source_topics if name not in topics]
    if missing:
        return (Status(status_code=MISSING_SOURCES, status_detail=f"Source topics {missing} are missing."),), {}
    if unequal := [one.subtopology_id for one in topology.subtopologies if _is_unequal(one, topics)]:
        return (Status(status_code=UNEQUAL, status_detail=f"Subtopologies {unequal} read unequal topics."),), {}
    counts = {
        one.subtopology_id: max(
            [topics[name] for name in one.source_topics] + [each.partitions for each in one.repartition_source_topics]
        )
        for one in topology.subtopologies
    }
    wanted = {
        each.name: each.partitions or counts[one.subtopology_id]
        for one in topology.subtopologies
        for each in (*one.repartition_source_topics, *one.state_changelog_topics)
        if each.name not in topics
    }
    for name, partitions in wanted.items():
        create(name, partitions)
    if wanted:
        return (Status(status_code=MISSING_INTERNAL, status_detail=f"Internal topics {list(wanted)} are made."),), {}
    return (), counts


def _is_unequal(subtopology: Subtopology, topics: Topics) -> bool:
    groups = ([subtopology.source_topics[at] for at in one.source_topics] for one in subtopology.copartition_groups)
    return any(len({topics[name] for name in names}) > 1 for names in groups)


def _endpoints(group: StreamsGroup) -> tuple[EndpointToPartitions, ...]:
    """The partitions of each address, for interactive queries."""
    sources = {one.subtopology_id: one.source_topics for one in group.topology.subtopologies}

    def partitions(tasks: Tasks) -> tuple[TopicPartition, ...]:
        return tuple(
            TopicPartition(topic=topic, partitions=one.partitions)
            for one in by_subtopology(tasks)
            for topic in sources[one.subtopology_id]
        )

    return tuple(
        EndpointToPartitions(
            user_endpoint=one.endpoint,
            active_partitions=partitions(one.active),
            standby_partitions=partitions(one.standby),
        )
        for one in group.members.values()
        if one.endpoint is not None
    )


def _reported(group: StreamsGroup, given: tuple[TaskIds, ...] | None) -> Tasks | None:
    if given is None:
        return None
    found = frozenset(StreamsTask(one.subtopology_id, number) for one in given for number in one.partitions)
    known = {one.subtopology_id for one in group.topology.subtopologies}
    for task in found:
        count = group.counts.get(task.subtopology, 0)
        if task.subtopology not in known or (count and not 0 <= task.partition < count):
            raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, f"The topology has no task {task}.")
    return found


def _check_topology(group: StreamsGroup, given: Topology | None) -> None:
    assert given is not None
    known = group.topology
    if given.subtopologies != known.subtopologies or given.epoch > known.epoch:
        raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")


def _remove(group: StreamsGroup, member: FakeStreamsMember) -> None:
    del group.members[member.member_id]
    group.epoch += 1
    group.plan()
    if not group.members:
        group.shuts_down = False


def _check(request: StreamsGroupHeartbeatRequest) -> None:
    joins = request.member_epoch == JOIN
    kinds = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    for wrong, what in (
        (not request.member_id, "MemberId can't be empty."),
        (not request.group_id, "GroupId can't be empty."),
        (request.member_epoch < LEAVE_STATIC, "MemberEpoch is below -2."),
        (request.member_epoch == LEAVE_STATIC and request.instance_id is None, "InstanceId can't be null."),
        (request.instance_id is not None, "Static membership is not yet supported."),
        (joins and request.topology is None, "Topology must be set in the first request."),
        (joins and request.rebalance_timeout_ms < 0, "RebalanceTimeoutMs must be set in the first request."),
        (joins and any(one is None or one for one in kinds), "Tasks must be empty in the first request."),
        (not joins and request.topology is not None, "Topology can only be set in the first request."),
        (len({one is None for one in kinds}) > 1, "StreamsTask kinds must be all set or all null."),
        (bool(request.warmup_tasks), "Warm-up tasks are not yet supported."),
    ):
        if wrong:
            raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, what)
    _check_topics(request.topology.subtopologies if request.topology is not None else ())


def _check_topics(subtopologies: Iterable[Subtopology]) -> None:
    for one in subtopologies:
        internal = (*one.state_changelog_topics, *one.repartition_source_topics)
        names = {*one.source_topics, *(each.name for each in internal)}
        fixed = [each.name for each in one.state_changelog_topics if each.partitions]
        if names & INTERNAL_TOPICS or not all(map(names_a_topic, names)) or fixed:
            raise HeartbeatRefused(ErrorCode.STREAMS_INVALID_TOPOLOGY, f"One of {sorted(names)} is invalid.")
