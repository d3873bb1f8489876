"""OffsetForLeaderEpoch (23): returns the end offset of a leader epoch.

Sent to: each partition's leader, after a leader change (KIP-320). If the end offset is below the consumer's
position, the log was truncated, and the last consumed records are lost.

Errors (by partition)
    NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR   refresh metadata, retry
    FENCED_LEADER_EPOCH           the client's metadata is stale: refresh, retry
    UNKNOWN_LEADER_EPOCH          the broker is behind: retry
    OFFSET_NOT_AVAILABLE          a new leader does not know its high watermark yet: retry
    TOPIC_AUTHORIZATION_FAILED    fatal
"""

from kohort.protocol.primitives import int16, int32, int64, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class OffsetForLeaderPartition(RequestPart):
    partition: int = field(int32, "0+")
    """The partition's number within its topic."""
    current_leader_epoch: int = field(int32, "2+", default=-1, ignorable=True)
    """The leader epoch in the client's metadata. The broker uses it to detect a stale client or leader (KIP-320)."""
    leader_epoch: int = field(int32, "0+")
    """The leader epoch for which the end offset is requested."""


class OffsetForLeaderTopic(RequestPart):
    topic: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[OffsetForLeaderPartition, ...] = field([OffsetForLeaderPartition], "0+")
    """The partitions, one entry each."""


class OffsetForLeaderEpochRequest(Request, key=23, versions="0-4", flexible="4+"):
    replica_id: int = field(int32, "3+", default=-2, ignorable=True)
    """The follower's broker id; -1 from a client, -2 from a debugging client that may read past the high watermark."""
    topics: tuple[OffsetForLeaderTopic, ...] = field([OffsetForLeaderTopic], "0+")
    """The topics, one entry each."""


class EpochEndOffset(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    partition: int = field(int32, "0+")
    """The partition's number within its topic."""
    leader_epoch: int = field(int32, "1+", default=-1, ignorable=True)
    """The largest epoch that is not above the requested one; -1 if there is none."""
    end_offset: int = field(int64, "0+", default=-1)
    """The end offset of that epoch, which is one past its last record; -1 if unknown."""


class OffsetForLeaderTopicResult(ResponsePart):
    topic: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[EpochEndOffset, ...] = field([EpochEndOffset], "0+")
    """The partitions, one entry each."""


class OffsetForLeaderEpochResponse(Response, key=23, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    topics: tuple[OffsetForLeaderTopicResult, ...] = field([OffsetForLeaderTopicResult], "0+")
    """The topics, one entry each."""
