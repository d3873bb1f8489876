"""OffsetForLeaderEpoch (23), versions 0-4: the end offset of the newest epoch not above the requested one.

Not done: requests of replicas (every client is taken for a consumer), authorization.
"""

from kohort.protocol.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from kohort.testing.fake_broker.cluster import FakePartition
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers.list_offsets import leader_error

KEY = 23
VERSIONS = (0, 4)


async def handle(work: Work, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    topics = []
    for asked in request.topics:
        topic = work.cluster.topics.get(asked.topic)
        answers = tuple(_one(work, each, work.cluster.partition(topic, each.partition)) for each in asked.partitions)
        topics.append(OffsetForLeaderTopicResult(topic=asked.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=tuple(topics))


def _one(work: Work, asked: OffsetForLeaderPartition, partition: FakePartition | None) -> EpochEndOffset:
    if error := leader_error(work, partition, asked.current_leader_epoch):
        return EpochEndOffset(partition=asked.partition, error_code=error)
    assert partition is not None
    epoch, end = partition.log.epoch_end(asked.leader_epoch, newest=partition.epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)
