"""DeleteShareGroupOffsets (92), version 0: deletes the share state of topics from an empty group.

Not done: authorization.
"""

from kohort.protocol.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kohort.protocol.errors import ErrorCode
from kohort.protocol.primitives import ZERO_UUID
from kohort.testing.fake_broker.handler_context import Work

KEY = 92
VERSIONS = (0, 0)


async def handle(work: Work, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
    group = work.groups.share.groups.get(request.group_id)
    error = work.group_error(request.group_id)
    if group is None:
        error = error or ErrorCode.GROUP_ID_NOT_FOUND
    elif group.members:
        error = error or ErrorCode.NON_EMPTY_GROUP
    if error:
        return DeleteShareGroupOffsetsResponse(error_code=error)
    return DeleteShareGroupOffsetsResponse(
        responses=tuple(_deleted(work, request.group_id, one.topic_name) for one in request.topics)
    )


def _deleted(work: Work, group_id: str, name: str) -> DeleteShareGroupOffsetsResponseTopic:
    topic = work.cluster.topics.get(name)
    states = work.cluster.shares.of_group(group_id)
    mine = [place for place in states if topic is not None and place.topic_id == topic.topic_id]
    for place in mine:
        del work.cluster.shares.partitions[group_id, place]
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        error_code=ErrorCode.NONE if mine else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        topic_id=topic.topic_id if topic is not None else ZERO_UUID,
    )
