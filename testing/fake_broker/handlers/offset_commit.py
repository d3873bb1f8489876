"""OffsetCommit (8), versions 2-10: fenced by generation or member epoch; topics by name, from version 10 on by id.

Not done: expiry of offsets, authorization, commits of transactions.
"""

from kohort.common.topic_partition import TopicPartition
from kohort.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.protocol.apis.offset_fetch import OffsetFetchRequestTopics
from kohort.protocol.apis.txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.classic_group import Committed
from kohort.testing.fake_broker.handler_context import Work

KEY = 8
VERSIONS = (2, 10)
FIRST_WITH_IDS = 10


async def handle(work: Work, request: OffsetCommitRequest) -> OffsetCommitResponse:
    is_unknown = work.groups.of(request.group_id) is None
    error = work.group_error(request.group_id) or work.groups.commit_error(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        version=work.call.version,
        now=work.now,
    )
    work.tick()
    if error == ErrorCode.ILLEGAL_GENERATION and is_unknown and work.call.version >= 9:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    return OffsetCommitResponse(topics=tuple(_topic(work, request.group_id, topic, error) for topic in request.topics))


def _topic(work: Work, group_id: str, requested: OffsetCommitRequestTopic, error: int) -> OffsetCommitResponseTopic:
    name = named(work, requested, FIRST_WITH_IDS)
    return OffsetCommitResponseTopic(
        name=requested.name,
        topic_id=requested.topic_id,
        partitions=tuple(
            OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error or keep(work, group_id, name, partition)
            )
            for partition in requested.partitions
        ),
    )


def named(
    work: Work,
    requested: OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic | OffsetFetchRequestTopics,
    first_with_ids: int,
) -> str | None:
    """The name of a topic in a request, or None if no topic has the id."""
    if work.call.version < first_with_ids:
        return requested.name
    known = work.cluster.topic_by_id(requested.topic_id)
    return known.name if known else None


def keep(
    work: Work,
    group_id: str,
    topic: str | None,
    requested: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    *,
    producer_id: int | None = None,
) -> int:
    """Keep one partition's offset, until the end of a producer's transaction if one is named; returns its error
    code. `topic`: as `named` returned it."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    number = requested.partition_index
    if work.cluster.partition(work.cluster.topics.get(topic), number) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    committed = Committed(requested.committed_offset, requested.committed_metadata, requested.committed_leader_epoch)
    return work.groups.commit(group_id, TopicPartition(topic, number), committed, producer_id=producer_id)
