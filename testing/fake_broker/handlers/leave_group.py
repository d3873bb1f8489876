"""LeaveGroup (13), versions 0-5: one member, and from version 3 on several.

Not done: authorization.
"""

from kohort.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work

KEY = 13
VERSIONS = (0, 5)


async def handle(work: Work, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if error := work.group_error(request.group_id):
        return LeaveGroupResponse(error_code=error)
    if work.call.version < 3:
        (outcome,) = work.groups.leave(request.group_id, [(request.member_id, None)], now=work.now)
        work.tick()
        return LeaveGroupResponse(error_code=outcome)
    leaving = [(member.member_id, member.group_instance_id) for member in request.members]
    outcomes = work.groups.leave(request.group_id, leaving, now=work.now)
    work.tick()
    return LeaveGroupResponse(
        members=tuple(
            MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=outcome)
            for (member_id, instance_id), outcome in zip(leaving, outcomes, strict=True)
        )
    )
