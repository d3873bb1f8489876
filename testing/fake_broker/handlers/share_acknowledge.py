"""ShareAcknowledge (79), versions 1-2: acknowledgements without a fetch; see share_fetch.py."""

from uuid import UUID

from kohort.protocol.apis.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers.share_fetch import acknowledged, acks_of, endpoints_of, ids_error, leader_of
from kohort.testing.fake_broker.shares import CLOSING, SessionKey

KEY = 79
VERSIONS = (1, 2)


async def handle(work: Work, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    if ids_error(request.group_id, request.member_id):
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST)
    shares = work.cluster.shares
    key = SessionKey(work.call.node, request.group_id or "", request.member_id or "")
    error = shares.enter(key, request.share_session_epoch, work.call.connection, opens=False)
    if error:
        return ShareAcknowledgeResponse(error_code=error)
    topics: dict[UUID, list[PartitionData]] = {}
    leaders = []
    for place, batches in acks_of(request.topics).items():
        code = acknowledged(work, key, place, batches, request.is_renew_ack)
        leader = leader_of(work, place, code)
        leaders.append(leader)
        topics.setdefault(place.topic_id, []).append(
            PartitionData(partition_index=place.partition, error_code=code, current_leader=leader)
        )
    if request.share_session_epoch == CLOSING:
        shares.close(key)
    work.wake_fetches()
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=int(shares.limits(key.group_id).lock_s * 1000),
        responses=tuple(
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
        node_endpoints=endpoints_of(work, leaders),
    )
