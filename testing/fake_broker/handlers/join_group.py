"""JoinGroup (11), versions 0-9: parked until the generation begins. classic_coordinator.py has the rules.

Not done: authorization, and the omissions of classic_coordinator.py. Subscriptions are not parsed, while a 4.3.1 broker
leaves a `consumer` group hanging for ever if one is invalid.
"""

from kohort.protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work

KEY = 11
VERSIONS = (0, 9)


async def handle(work: Work, request: JoinGroupRequest) -> JoinGroupResponse:
    version = work.call.version
    if error := work.group_error(request.group_id):
        response = JoinGroupResponse(error_code=error, member_id=request.member_id, protocol_name="")
    elif not work.groups.become_classic(request.group_id):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        response = JoinGroupResponse(error_code=error, member_id=request.member_id, protocol_name="", generation_id=-1)
    else:
        response = await work.parked(
            lambda reply: work.coordinator.join(
                request, version=version, client_id=work.call.client_id, now=work.now, reply=reply
            )
        )
    # "No protocol" is written as an empty name before it could be null.
    return response._replace(protocol_name=None) if version >= 7 and not response.protocol_name else response
