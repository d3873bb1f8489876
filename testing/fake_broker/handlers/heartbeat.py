"""Heartbeat (12), versions 0-4.

Not done: authorization.
"""

from kohort.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.testing.fake_broker.handler_context import Work

KEY = 12
VERSIONS = (0, 4)


async def handle(work: Work, request: HeartbeatRequest) -> HeartbeatResponse:
    error = work.group_error(request.group_id) or work.coordinator.heartbeat(request, now=work.now)
    work.tick()
    return HeartbeatResponse(error_code=error)
