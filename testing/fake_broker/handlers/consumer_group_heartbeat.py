"""ConsumerGroupHeartbeat (68), versions 0-1; the rules, and what they leave out, are in consumer_coordinator.py."""

from kohort.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.consumer_group import GroupTopic
from kohort.testing.fake_broker.handler_context import Work

KEY = 68
VERSIONS = (0, 1)


async def handle(work: Work, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    if error := work.group_error(request.group_id):
        return ConsumerGroupHeartbeatResponse(error_code=error)
    if request.member_epoch == 0 and not work.groups.become_consumer(request.group_id):
        message = f"Group {request.group_id} is not a consumer group."
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=message)
    topics = {name: GroupTopic(topic.topic_id, len(topic.partitions)) for name, topic in work.cluster.topics.items()}
    response = work.groups.consumer.heartbeat(
        request, version=work.call.version, client_id=work.call.client_id, topics=topics, now=work.now
    )
    work.tick()
    return response
