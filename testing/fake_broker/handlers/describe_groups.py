"""DescribeGroups (15), versions 0-6: classic groups as their coordinator sees them.

The assignor and the members' metadata are returned for a Stable group only. A joining group still shows the assignments
of the generation before, as brokers of 4.x do.
Not done: authorization; every client may do everything.
"""

from kohort.protocol.apis.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.classic_group import FakeGroup, GroupState
from kohort.testing.fake_broker.group_descriptions import CLIENT_HOST, operations_of
from kohort.testing.fake_broker.handler_context import Work

KEY = 15
VERSIONS = (0, 6)


async def handle(work: Work, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    operations = operations_of(request)
    return DescribeGroupsResponse(groups=tuple(_described(work, one)._replace(**operations) for one in request.groups))


def _described(work: Work, group_id: str) -> DescribedGroup:
    if error := work.group_error(group_id):
        return DescribedGroup(group_id=group_id, error_code=error)
    group = work.coordinator.groups.get(group_id)
    if group is None:
        if work.call.version < 6:
            return DescribedGroup(group_id=group_id, group_state="Dead")
        message = f"Group {group_id} not found."
        return DescribedGroup(
            group_id=group_id, group_state="Dead", error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message
        )
    protocol = group.protocol if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=_members(group, protocol),
    )


def _members(group: FakeGroup, protocol: str | None) -> tuple[DescribedGroupMember, ...]:
    return tuple(
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=CLIENT_HOST,
            member_metadata=member.protocols[protocol] if protocol is not None else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    )
