"""ShareGroupDescribe (77), version 1: share groups as their coordinator sees them.

Not done: authorization; every client may do everything.
"""

from kohort.protocol.apis.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.consumer_coordinator import by_topic
from kohort.testing.fake_broker.consumer_group import Places
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers.describe_groups import CLIENT_HOST, EVERYTHING

KEY = 77
VERSIONS = (1, 1)


async def handle(work: Work, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    operations = {"authorized_operations": EVERYTHING} if request.include_authorized_operations else {}
    return ShareGroupDescribeResponse(
        groups=tuple(_described(work, group_id)._replace(**operations) for group_id in request.group_ids)
    )


def _described(work: Work, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    if error := work.group_error(group_id):
        return DescribedGroup(group_id=group_id, error_code=error)
    group = work.groups.share.groups.get(group_id)
    if group is None:
        message = f"Group {group_id} not found."
        return DescribedGroup(
            group_id=group_id, group_state="Dead", error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name="simple",
        members=tuple(
            Member(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=CLIENT_HOST,
                subscribed_topic_names=tuple(sorted(member.topics)),
                assignment=_assignment(work, member.assigned),
            )
            for member in group.members.values()
        ),
    )


def _assignment(work: Work, places: Places) -> Assignment:
    topics = ((one, work.cluster.topic_by_id(one.topic_id)) for one in by_topic(places))
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=one.topic_id, topic_name=topic.name, partitions=one.partitions)
            for one, topic in topics
            if topic is not None
        )
    )
