"""OffsetFetch (9), versions 1-10: one group, from version 8 on several; topics by name, from version 10 on by id.

Without a committed offset, the offset is -1, with an empty text. A request for stable offsets is refused for what an
open transaction may still change (KIP-447).
Not done: authorization.
"""

from kohort.common.topic_partition import TopicPartition, grouped
from kohort.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.classic_group import Committed
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers.offset_commit import named

KEY = 9
VERSIONS = (1, 10)
FIRST_WITH_IDS = 10
_NOTHING = Committed(-1, "", -1)


async def handle(work: Work, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if work.call.version >= 8:
        return OffsetFetchResponse(groups=tuple(_group(work, group) for group in request.groups))
    error = work.group_error(request.group_id)
    if error and work.call.version >= 2:
        return OffsetFetchResponse(error_code=error)
    # Version 1 has no place for the group's error but its partitions.
    offsets = {} if error else work.groups.offsets(request.group_id)
    if request.topics is None:
        requested = [*grouped(sorted(offsets)).items()]
    else:
        requested = [(topic.name, list(topic.partition_indexes)) for topic in request.topics]
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                name=name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=number,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=error or code,
                    )
                    for number in numbers
                    for found, code in [_found(work, request.group_id, offsets, TopicPartition(name, number))]
                ),
            )
            for name, numbers in requested
        )
    )


def _group(work: Work, requested: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    error = work.group_error(requested.group_id)
    if not error and requested.group_id in work.groups.consumer.groups:
        error = work.groups.consumer.fetch_error(requested.group_id, requested.member_epoch, requested.member_id)
    if error:
        return OffsetFetchResponseGroup(group_id=requested.group_id, error_code=error)
    offsets = work.groups.offsets(requested.group_id)
    topics = requested.topics if requested.topics is not None else _all(work, offsets)
    return OffsetFetchResponseGroup(
        group_id=requested.group_id, topics=tuple(_topic(work, requested.group_id, offsets, topic) for topic in topics)
    )


def _topic(
    work: Work, group_id: str, offsets: dict[TopicPartition, Committed], requested: OffsetFetchRequestTopics
) -> OffsetFetchResponseTopics:
    name = named(work, requested, FIRST_WITH_IDS)
    partitions = []
    for number in requested.partition_indexes:
        found, error = _NOTHING, int(ErrorCode.UNKNOWN_TOPIC_ID)
        if name is not None:
            found, error = _found(work, group_id, offsets, TopicPartition(name, number))
        partitions.append(
            OffsetFetchResponsePartitions(
                partition_index=number,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=error,
            )
        )
    return OffsetFetchResponseTopics(name=requested.name, topic_id=requested.topic_id, partitions=tuple(partitions))


def _found(
    work: Work, group_id: str, offsets: dict[TopicPartition, Committed], partition: TopicPartition
) -> tuple[Committed, int]:
    request = work.call.request
    assert isinstance(request, OffsetFetchRequest)
    if request.require_stable and work.groups.is_undecided(group_id, partition):
        return _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT
    return offsets.get(partition, _NOTHING), ErrorCode.NONE


def _all(work: Work, offsets: dict[TopicPartition, Committed]) -> list[OffsetFetchRequestTopics]:
    return [
        OffsetFetchRequestTopics(
            name=name, topic_id=work.cluster.topics[name].topic_id, partition_indexes=tuple(numbers)
        )
        for name, numbers in grouped(sorted(offsets)).items()
        if name in work.cluster.topics
    ]
