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
    for requested in request.topics:
        topic = work.cluster.topics.get(requested.topic)
        responses = tuple(
            _one(work, each, work.cluster.partition(topic, each.partition)) for each in requested.partitions
        )
        topics.append(OffsetForLeaderTopicResult(topic=requested.topic, partitions=responses))
    return OffsetForLeaderEpochResponse(topics=tuple(topics))


def _one(work: Work, requested: OffsetForLeaderPartition, partition: FakePartition | None) -> EpochEndOffset:
    if error := leader_error(work, partition, requested.current_leader_epoch):
        return EpochEndOffset(partition=requested.partition, error_code=error)
    assert partition is not None
    epoch, end = partition.log.epoch_end(requested.leader_epoch, newest=partition.epoch)
    return EpochEndOffset(partition=requested.partition, leader_epoch=epoch, end_offset=end)
