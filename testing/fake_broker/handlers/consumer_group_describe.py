"""ConsumerGroupDescribe (69), versions 0-1: KIP-848 groups as their coordinator sees them.

Not done: authorization; every client may do everything.
"""

from kohort.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.consumer_group import NOWHERE
from kohort.testing.fake_broker.group_descriptions import CLIENT_HOST, assignment_of, operations_of
from kohort.testing.fake_broker.handler_context import Work

KEY = 69
VERSIONS = (0, 1)
_CONSUMER_MEMBER = 1


async def handle(work: Work, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    operations = operations_of(request)
    return ConsumerGroupDescribeResponse(
        groups=tuple(_described(work, one)._replace(**operations) for one in request.group_ids)
    )


def _described(work: Work, group_id: str) -> DescribedGroup:
    if error := work.group_error(group_id) if group_id else ErrorCode.INVALID_GROUP_ID:
        return DescribedGroup(group_id=group_id, error_code=error)
    group = work.groups.consumer.groups.get(group_id)
    if group is None:
        message = f"Group {group_id} not found."
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=group.assignor,
        members=tuple(
            Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=CLIENT_HOST,
                subscribed_topic_names=tuple(sorted(member.named)),
                subscribed_topic_regex=member.pattern or None,
                assignment=assignment_of(work, member.assigned),
                target_assignment=assignment_of(work, group.target.get(member.member_id, NOWHERE)),
                member_type=_CONSUMER_MEMBER,
            )
            for member in group.members.values()
        ),
    )
