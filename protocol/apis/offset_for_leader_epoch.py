"""OffsetForLeaderEpoch (23): where did this leader epoch end?

Sent to: each partition's leader, by a reader whose leader changed (KIP-320). If the epoch's end is below the reader's
position, the log was truncated and what it read last is gone.

Errors (by partition)
    NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR   fresh metadata, retry
    FENCED_LEADER_EPOCH           the client's metadata is old: refresh, retry
    UNKNOWN_LEADER_EPOCH          the broker is behind: retry
    OFFSET_NOT_AVAILABLE          a new leader still finds its end: retry
    TOPIC_AUTHORIZATION_FAILED    fatal
"""

from kohort.protocol.primitives import int16, int32, int64, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class OffsetForLeaderPartition(RequestPart):
    partition: int = field(int32, "0+")
    """The partition's number within its topic."""
    current_leader_epoch: int = field(int32, "2+", default=-1, ignorable=True)
    """The leader's epoch as the client knows it, so that a stale leader or client is noticed (KIP-320)."""
    leader_epoch: int = field(int32, "0+")
    """The epoch whose end is asked for."""


class OffsetForLeaderTopic(RequestPart):
    topic: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[OffsetForLeaderPartition, ...] = field([OffsetForLeaderPartition], "0+")
    """The partitions, one entry each."""


class OffsetForLeaderEpochRequest(Request, key=23, versions="0-4", flexible="4+"):
    replica_id: int = field(int32, "3+", default=-2, ignorable=True)
    """The asking broker's id; -1 for a client, -2 for a debugging client that may see beyond the high watermark."""
    topics: tuple[OffsetForLeaderTopic, ...] = field([OffsetForLeaderTopic], "0+")
    """The topics, one entry each."""


class EpochEndOffset(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    partition: int = field(int32, "0+")
    """The partition's number within its topic."""
    leader_epoch: int = field(int32, "1+", default=-1, ignorable=True)
    """The greatest epoch not above the one asked for; -1 where there is none."""
    end_offset: int = field(int64, "0+", default=-1)
    """One past the last offset of that epoch; -1 where it is unknown."""


class OffsetForLeaderTopicResult(ResponsePart):
    topic: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[EpochEndOffset, ...] = field([EpochEndOffset], "0+")
    """The partitions, one entry each."""


class OffsetForLeaderEpochResponse(Response, key=23, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    topics: tuple[OffsetForLeaderTopicResult, ...] = field([OffsetForLeaderTopicResult], "0+")
    """The topics, one entry each."""
