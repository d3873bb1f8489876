"""ShareGroupDescribe (77), version 1: share groups as their coordinator sees them.

Not done: authorization; every client may do everything.
"""

from kohort.protocol.apis.share_group_describe import (
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from kohort.testing.fake_broker.group_descriptions import CLIENT_HOST, assignment_of, operations_of, refusal
from kohort.testing.fake_broker.handler_context import Work

KEY = 77
VERSIONS = (1, 1)


async def handle(work: Work, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    operations = operations_of(request)
    return ShareGroupDescribeResponse(
        groups=tuple(_described(work, one)._replace(**operations) for one in request.group_ids)
    )


def _described(work: Work, group_id: str) -> DescribedGroup:
    groups = work.groups.share.groups
    if (refused := refusal(work, group_id, groups)) is not None:
        return DescribedGroup(group_id=group_id, **refused)
    group = groups[group_id]
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
                assignment=assignment_of(work, member.assigned),
            )
            for member in group.members.values()
        ),
    )
