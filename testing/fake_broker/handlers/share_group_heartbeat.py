"""ShareGroupHeartbeat (76), version 1; the rules, and what they leave out, are in share_coordinator.py."""

from kohort.protocol.apis.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.consumer_group import GroupTopic
from kohort.testing.fake_broker.handler_context import Work

KEY = 76
VERSIONS = (1, 1)


async def handle(work: Work, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    if error := work.group_error(request.group_id):
        return ShareGroupHeartbeatResponse(error_code=error)
    group = work.groups.of(request.group_id)
    if group is not None and group.kind != "share":
        message = f"Group {request.group_id} is not a share group."
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
    topics = {name: GroupTopic(topic.topic_id, len(topic.partitions)) for name, topic in work.cluster.topics.items()}
    response = work.groups.share.heartbeat(request, client_id=work.call.client_id or "", topics=topics, now=work.now)
    work.tick()
    return response
