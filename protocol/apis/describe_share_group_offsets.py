"""DescribeShareGroupOffsets (90): returns the start offsets of share groups by partition, and from version 1 the lag.

Sent to: the coordinator of each group. A partition without share state has the start offset -1 and no error (KIP-932,
KIP-1226).

Errors (by group; by partition)
    GROUP_ID_NOT_FOUND            the group is of another type
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, retry
    UNKNOWN_TOPIC_OR_PARTITION    no such partition
    GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   the caller lacks DESCRIBE
"""

from uuid import UUID

from kohort.protocol.primitives import int16, int32, int64, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class DescribeShareGroupOffsetsRequestTopic(RequestPart):
    topic_name: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[int, ...] = field([int32], "0+")
    """The partitions' numbers."""


class DescribeShareGroupOffsetsRequestGroup(RequestPart):
    group_id: str = field(string, "0+")
    """The group."""
    topics: tuple[DescribeShareGroupOffsetsRequestTopic, ...] | None = field(
        [DescribeShareGroupOffsetsRequestTopic], "0+", null="0+"
    )
    """The partitions to describe; null means all with share state."""


class DescribeShareGroupOffsetsRequest(Request, key=90, versions="0-1", flexible="0+"):
    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...] = field([DescribeShareGroupOffsetsRequestGroup], "0+")
    """The groups to describe."""


class DescribeShareGroupOffsetsResponsePartition(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    start_offset: int = field(int64, "0+")
    """The share-partition start offset in the share coordinator's state; -1 if there is none."""
    leader_epoch: int = field(int32, "0+")
    """The leader epoch of the state."""
    lag: int = field(int64, "1+", default=-1, ignorable=True)
    """The number of offsets that are neither accepted nor archived; -1 if unknown."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""


class DescribeShareGroupOffsetsResponseTopic(ResponsePart):
    topic_name: str = field(string, "0+")
    """The topic's name."""
    topic_id: UUID = field(uuid, "0+")
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[DescribeShareGroupOffsetsResponsePartition, ...] = field(
        [DescribeShareGroupOffsetsResponsePartition], "0+"
    )
    """The partitions, one entry each."""


class DescribeShareGroupOffsetsResponseGroup(ResponsePart):
    group_id: str = field(string, "0+")
    """The group."""
    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...] = field([DescribeShareGroupOffsetsResponseTopic], "0+")
    """The topics, one entry each."""
    error_code: int = field(int16, "0+")
    """0, or why the group cannot be described."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    groups: tuple[DescribeShareGroupOffsetsResponseGroup, ...] = field([DescribeShareGroupOffsetsResponseGroup], "0+")
    """The groups, one entry each."""
