"""ListOffsets (2), versions 1-11: earliest, latest, by time, and the highest timestamp.

The latest offset is the last stable one for read_committed readers, and a search by time finds none from there on.
Not done: tiered storage (its timestamps return the local offset, or none).
"""

from kohort.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.cluster import FakePartition
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.log import FakeLog

KEY = 2
VERSIONS = (1, 11)
_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4
_NOTHING = (-1, -1)


async def handle(work: Work, request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = []
    for requested in request.topics:
        topic = work.cluster.topics.get(requested.name)
        responses = tuple(
            _one(
                work, each, work.cluster.partition(topic, each.partition_index), isolated=bool(request.isolation_level)
            )
            for each in requested.partitions
        )
        topics.append(ListOffsetsTopicResponse(name=requested.name, partitions=responses))
    return ListOffsetsResponse(topics=tuple(topics))


def _one(
    work: Work, requested: ListOffsetsPartition, partition: FakePartition | None, *, isolated: bool
) -> ListOffsetsPartitionResponse:
    number = requested.partition_index
    if error := leader_error(work, partition, requested.current_leader_epoch):
        return ListOffsetsPartitionResponse(partition_index=number, error_code=error)
    assert partition is not None
    end = partition.stable_offset if isolated else partition.log.end
    offset, timestamp_ms = _offset(partition.log, end, requested.timestamp)
    epoch = partition.epoch if work.call.version >= 4 and offset >= 0 else -1
    return ListOffsetsPartitionResponse(
        partition_index=number, offset=offset, timestamp=timestamp_ms, leader_epoch=epoch
    )


def _offset(log: FakeLog, end: int, timestamp_ms: int) -> tuple[int, int]:
    """The offset, and the time of its record. `end`: of the part that the reader may see."""
    if timestamp_ms == _LATEST:
        return end, -1
    if timestamp_ms in (_EARLIEST, _EARLIEST_LOCAL):
        return log.start, -1
    if timestamp_ms == _MAX_TIMESTAMP:
        found = log.latest_record()
    else:
        found = log.offset_at(timestamp_ms) if timestamp_ms >= 0 else None
    return found if found is not None and found[0] < end else _NOTHING


def leader_error(work: Work, partition: FakePartition | None, known_epoch: int) -> int:
    """Return the error code of `partition` for a client with `known_epoch` (-1: none); 0 if this node leads it."""
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader != work.call.node:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if known_epoch >= 0 and known_epoch < partition.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if known_epoch > partition.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE
