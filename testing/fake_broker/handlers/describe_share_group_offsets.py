"""DescribeShareGroupOffsets (90), versions 0-1: start offsets and lag.

The start offset is the leader's own, and not the one of the last write, as on a real broker.
Not done: authorization.
"""

from kohort.protocol.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kohort.protocol.errors import ErrorCode
from kohort.protocol.primitives import ZERO_UUID
from kohort.testing.fake_broker.consumer_group import Place
from kohort.testing.fake_broker.handler_context import Work

KEY = 90
VERSIONS = (0, 1)


async def handle(work: Work, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=tuple(_described(work, requested) for requested in request.groups))


def _described(work: Work, requested: DescribeShareGroupOffsetsRequestGroup) -> DescribeShareGroupOffsetsResponseGroup:
    if error := work.group_error(requested.group_id):
        return DescribeShareGroupOffsetsResponseGroup(group_id=requested.group_id, error_code=error)
    group = work.groups.of(requested.group_id)
    if group is not None and group.kind != "share":
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=requested.group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="not a share group"
        )
    if requested.topics is None:
        places = sorted(work.cluster.shares.of_group(requested.group_id))
        named: dict[str, list[int]] = {}
        for place in places:
            topic = work.cluster.topic_by_id(place.topic_id)
            if topic is not None:
                named.setdefault(topic.name, []).append(place.partition)
    else:
        named = {one.topic_name: list(one.partitions) for one in requested.topics}
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=requested.group_id,
        topics=tuple(_topic(work, requested.group_id, name, numbers) for name, numbers in named.items()),
    )


def _topic(work: Work, group_id: str, name: str, numbers: list[int]) -> DescribeShareGroupOffsetsResponseTopic:
    topic = work.cluster.topics.get(name)
    found = []
    for number in numbers:
        partition = work.cluster.partition(topic, number)
        place = Place(topic.topic_id, number) if topic is not None else None
        state = work.cluster.shares.partitions.get((group_id, place)) if place is not None else None
        if partition is None or state is None:
            found.append(DescribeShareGroupOffsetsResponsePartition(partition_index=number, start_offset=-1, lag=-1))
            continue
        found.append(
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=number,
                start_offset=state.start,
                leader_epoch=partition.epoch,
                lag=partition.log.end - state.start - state.settled,
            )
        )
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name, partitions=tuple(found), topic_id=topic.topic_id if topic is not None else ZERO_UUID
    )
