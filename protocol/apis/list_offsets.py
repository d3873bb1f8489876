"""ListOffsets (2): finds the first offset at or after a timestamp, or a log's start or end.

Sent to: each partition's leader. With isolation level 1 "latest" is the last stable offset.

Errors (by partition)
    NOT_LEADER_OR_FOLLOWER, LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, LISTENER_NOT_FOUND
                                    refresh metadata, retry
    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH   the client or the broker is behind: refresh metadata, retry
    OFFSET_NOT_AVAILABLE            a new leader does not know its high watermark yet: retry
    UNKNOWN_TOPIC_OR_PARTITION      deleted, or not known to the broker yet: refresh metadata, retry
    UNSUPPORTED_FOR_MESSAGE_FORMAT  the message format has no timestamps
    TOPIC_AUTHORIZATION_FAILED      fatal
"""

from kohort.protocol.primitives import int8, int16, int32, int64, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class ListOffsetsPartition(RequestPart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    current_leader_epoch: int = field(int32, "4+", default=-1, ignorable=True)
    """The leader epoch in the client's metadata. The broker uses it to detect a stale client or leader (KIP-320)."""
    timestamp: int = field(int64, "0+")
    """The time in ms since the epoch: the response has the first offset at or after it. Special values: -1 latest, -2
    earliest, -3 record with the largest timestamp, -4 earliest local, -5 latest tiered, -6 earliest not yet tiered."""
    max_num_offsets: int = field(int32, "0", default=1)
    """The maximum number of offsets in the response."""


class ListOffsetsTopic(RequestPart):
    name: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[ListOffsetsPartition, ...] = field([ListOffsetsPartition], "0+")
    """The partitions, one entry each."""


class ListOffsetsRequest(Request, key=2, versions="0-11", flexible="6+"):
    replica_id: int = field(int32, "0+")
    """The follower's broker id; -1 from a client."""
    isolation_level: int = field(int8, "2+")
    """0 sees every record, 1 only those of committed transactions (KIP-98)."""
    topics: tuple[ListOffsetsTopic, ...] = field([ListOffsetsTopic], "0+")
    """The topics, one entry each."""
    timeout_ms: int = field(int32, "10+", ignorable=True)
    """Milliseconds the broker may take to read tiered storage."""


class ListOffsetsPartitionResponse(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    old_style_offsets: tuple[int, ...] = field([int64], "0")
    """The offsets in version 0: base offsets of log segments, newest first."""
    timestamp: int = field(int64, "1+", default=-1)
    """The time of the record found; -1 where there is none."""
    offset: int = field(int64, "1+", default=-1)
    """The offset found; -1 where there is none."""
    leader_epoch: int = field(int32, "4+", default=-1)
    """The epoch of the leader that wrote the record found; -1 where it is unknown."""


class ListOffsetsTopicResponse(ResponsePart):
    name: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[ListOffsetsPartitionResponse, ...] = field([ListOffsetsPartitionResponse], "0+")
    """The partitions, one entry each."""


class ListOffsetsResponse(Response, key=2, versions="0-11", flexible="6+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    topics: tuple[ListOffsetsTopicResponse, ...] = field([ListOffsetsTopicResponse], "0+")
    """The topics, one entry each."""
