"""StreamsGroupDescribe (89), versions 0-1: streams groups as their coordinator sees them.

Not done: descriptions of topologies; authorization, every client may do everything.
"""

from collections.abc import Iterable

from kohort.protocol.apis.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    Topology,
)
from kohort.protocol.apis.streams_group_heartbeat import Topology as SentTopology
from kohort.testing.fake_broker.group_descriptions import CLIENT_HOST, operations_of, refusal
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.streams_coordinator import by_subtopology
from kohort.testing.fake_broker.streams_group import NONE, FakeStreamsMember, StreamsGroup, StreamsTask

KEY = 89
VERSIONS = (0, 1)


async def handle(work: Work, request: StreamsGroupDescribeRequest) -> StreamsGroupDescribeResponse:
    operations = operations_of(request)
    return StreamsGroupDescribeResponse(
        groups=tuple(_described(work, one)._replace(**operations) for one in request.group_ids)
    )


def _described(work: Work, group_id: str) -> DescribedGroup:
    groups = work.groups.streams.groups
    if (refused := refusal(work, group_id, groups)) is not None:
        return DescribedGroup(group_id=group_id, **refused)
    group = groups[group_id]
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology=_topology(group.topology),
        members=tuple(_member(group, one) for one in group.members.values()),
    )


def _topology(topology: SentTopology) -> Topology:
    return Topology(
        epoch=topology.epoch,
        subtopologies=tuple(
            Subtopology(
                subtopology_id=one.subtopology_id,
                source_topics=one.source_topics,
                repartition_sink_topics=one.repartition_sink_topics,
                state_changelog_topics=one.state_changelog_topics,
                repartition_source_topics=one.repartition_source_topics,
            )
            for one in topology.subtopologies
        ),
    )


def _member(group: StreamsGroup, member: FakeStreamsMember) -> Member:
    return Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=CLIENT_HOST,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=member.endpoint,
        assignment=_assignment(member.active | member.revoking, member.standby),
        target_assignment=_assignment(
            group.target.get(member.member_id, NONE), group.standby.get(member.member_id, NONE)
        ),
    )


def _assignment(active: Iterable[StreamsTask], standby: Iterable[StreamsTask]) -> Assignment:
    return Assignment(active_tasks=by_subtopology(active), standby_tasks=by_subtopology(standby))
