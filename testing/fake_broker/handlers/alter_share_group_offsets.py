"""AlterShareGroupOffsets (91), version 0: sets start offsets of an empty group, which it creates if it is absent.

Not done: authorization.
"""

from kohort.protocol.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kohort.protocol.errors import ErrorCode
from kohort.protocol.primitives import ZERO_UUID
from kohort.testing.fake_broker.consumer_group import Place
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.share_group import ShareGroup
from kohort.testing.fake_broker.share_partition import FakeSharePartition

KEY = 91
VERSIONS = (0, 0)


async def handle(work: Work, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    error = work.group_error(request.group_id)
    group = work.groups.of(request.group_id)
    if group is not None and not isinstance(group, ShareGroup):
        error = error or ErrorCode.GROUP_ID_NOT_FOUND
    elif group is not None and group.members:
        error = error or ErrorCode.NON_EMPTY_GROUP
    if error:
        return AlterShareGroupOffsetsResponse(error_code=error)
    work.groups.share.groups.setdefault(request.group_id, ShareGroup(request.group_id))
    return AlterShareGroupOffsetsResponse(
        responses=tuple(_altered(work, request.group_id, topic) for topic in request.topics)
    )


def _altered(
    work: Work, group_id: str, requested: AlterShareGroupOffsetsRequestTopic
) -> AlterShareGroupOffsetsResponseTopic:
    topic = work.cluster.topics.get(requested.topic_name)
    found = []
    for one in requested.partitions:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is not None and work.cluster.partition(topic, one.partition_index) is not None:
            place = Place(topic.topic_id, one.partition_index)
            work.cluster.shares.partitions[group_id, place] = FakeSharePartition(one.start_offset)
            error = ErrorCode.NONE
        found.append(AlterShareGroupOffsetsResponsePartition(partition_index=one.partition_index, error_code=error))
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=requested.topic_name,
        partitions=tuple(found),
        topic_id=topic.topic_id if topic is not None else ZERO_UUID,
    )
