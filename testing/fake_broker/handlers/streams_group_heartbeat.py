"""StreamsGroupHeartbeat (88), versions 0-1; the rules, and what they leave out, are in streams_coordinator.py."""

from kohort.protocol.apis.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.shares import STANDBYS

KEY = 88
VERSIONS = (0, 1)


async def handle(work: Work, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    if error := work.group_error(request.group_id):
        return StreamsGroupHeartbeatResponse(error_code=error, status=())
    group = work.groups.of(request.group_id)
    if group is not None and group.kind != "streams":
        message = f"Group {request.group_id} is not a streams group."
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message, status=())
    response = work.groups.streams.heartbeat(
        request,
        client_id=work.call.client_id or "",
        topics={name: len(topic.partitions) for name, topic in work.cluster.topics.items()},
        create=work.cluster.create_topic,
        standbys=int(work.cluster.shares.config(request.group_id, STANDBYS)),
        now=work.now,
    )
    work.tick()
    return response
