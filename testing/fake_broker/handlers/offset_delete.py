"""OffsetDelete (47), version 0: forget committed offsets, except those of topics that a member reads (KIP-496).

The topics of members are read from their metadata. If one cannot be decoded, its group counts as reading everything.
Not done: authorization.
"""

from collections.abc import Set as AbstractSet

from kohort.common.errors import WireError
from kohort.common.topic_partition import TopicPartition
from kohort.protocol.apis.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kohort.protocol.errors import ErrorCode
from kohort.protocol.membership import parse_subscription
from kohort.testing.fake_broker.classic_group import FakeGroup
from kohort.testing.fake_broker.consumer_group import ConsumerGroup
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.streams_group import StreamsGroup

KEY = 47
VERSIONS = (0, 0)
WITH_OFFSETS = (FakeGroup, ConsumerGroup, StreamsGroup)
_CONSUMERS = "consumer"


async def handle(work: Work, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    group = work.groups.of(request.group_id)
    error = work.group_error(request.group_id)
    if not request.group_id:
        error = ErrorCode.INVALID_GROUP_ID
    elif not isinstance(group, WITH_OFFSETS):
        error = error or ErrorCode.GROUP_ID_NOT_FOUND
    elif isinstance(group, FakeGroup) and group.members and group.protocol_type != _CONSUMERS:
        error = error or ErrorCode.NON_EMPTY_GROUP
    if error or not isinstance(group, WITH_OFFSETS):
        return OffsetDeleteResponse(error_code=error, topics=())
    read = _topics_read(group) if isinstance(group, FakeGroup) else group.subscribed()
    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=entry.partition_index,
                        error_code=_delete(work, group, read, TopicPartition(topic.name, entry.partition_index)),
                    )
                    for entry in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _delete(
    work: Work,
    group: FakeGroup | ConsumerGroup | StreamsGroup,
    read: AbstractSet[str] | None,
    partition: TopicPartition,
) -> int:
    if work.cluster.partition(work.cluster.topics.get(partition.topic), partition.partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if read is None or partition.topic in read:
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    group.offsets.pop(partition, None)
    return ErrorCode.NONE


def _topics_read(group: FakeGroup) -> set[str] | None:
    """The topics, or None for all."""
    topics: set[str] = set()
    for member in group.members.values():
        for metadata in member.protocols.values():
            try:
                topics.update(parse_subscription(metadata).topics)
            except WireError:
                return None
    return topics
