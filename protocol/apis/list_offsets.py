"""ListOffsets (2): which offset has the first record at or after a time, and where do the logs begin and end?

Sent to: each partition's leader. With isolation level 1 "latest" is the last stable offset.

Errors (by partition)
    NOT_LEADER_OR_FOLLOWER, LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, LISTENER_NOT_FOUND
                                    fresh metadata, retry
    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH   the client or the broker is behind: fresh metadata, retry
    OFFSET_NOT_AVAILABLE            a new leader still finds its end: retry
    UNKNOWN_TOPIC_OR_PARTITION      deleted, or not yet known there: fresh metadata, retry
    UNSUPPORTED_FOR_MESSAGE_FORMAT  records too old to have times
    TOPIC_AUTHORIZATION_FAILED      fatal
"""

from kohort.protocol.primitives import int8, int16, int32, int64, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class ListOffsetsPartition(RequestPart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    current_leader_epoch: int = field(int32, "4+", default=-1, ignorable=True)
    """The leader's epoch as the client knows it, so that a stale leader or client is noticed (KIP-320)."""
    timestamp: int = field(int64, "0+")
    """The first offset at or after this time in ms; or -1 latest, -2 earliest, -3 the record of the highest time, -4
    earliest local, -5 latest tiered, -6 earliest still to be uploaded."""
    max_num_offsets: int = field(int32, "0", default=1)
    """How many offsets to answer with at most."""


class ListOffsetsTopic(RequestPart):
    name: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[ListOffsetsPartition, ...] = field([ListOffsetsPartition], "0+")
    """The partitions, one entry each."""


class ListOffsetsRequest(Request, key=2, versions="0-11", flexible="6+"):
    replica_id: int = field(int32, "0+")
    """The asking broker's id; -1 for a client."""
    isolation_level: int = field(int8, "2+")
    """0 sees every record, 1 only those of committed transactions (KIP-98)."""
    topics: tuple[ListOffsetsTopic, ...] = field([ListOffsetsTopic], "0+")
    """The topics, one entry each."""
    timeout_ms: int = field(int32, "10+", ignorable=True)
    """How long the broker may take to look into tiered storage."""


class ListOffsetsPartitionResponse(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    old_style_offsets: tuple[int, ...] = field([int64], "0")
    """The offsets of version 0, which answers with segment bounds, newest first."""
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
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    topics: tuple[ListOffsetsTopicResponse, ...] = field([ListOffsetsTopicResponse], "0+")
    """The topics, one entry each."""
