"""SyncGroup (14), versions 0-5: parked until the leader's assignment is there.

Not done: authorization.
"""

from kohort.protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work

KEY = 14
VERSIONS = (0, 5)


async def handle(work: Work, request: SyncGroupRequest) -> SyncGroupResponse:
    if work.call.version >= 5 and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)  # no longer optional (KIP-559)
    if error := work.group_error(request.group_id):
        return SyncGroupResponse(error_code=error)
    return await work.parked(lambda reply: work.coordinator.sync(request, now=work.now, reply=reply))
