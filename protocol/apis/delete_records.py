"""DeleteRecords (21): deletes the records before an offset.

Sent to: each partition's leader.

Errors (by partition)
    OFFSET_OUT_OF_RANGE           beyond the high watermark
    POLICY_VIOLATION              the topic is compacted only
    NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION   refresh metadata, retry
    REQUEST_TIMED_OUT             not applied by all replicas yet
    TOPIC_AUTHORIZATION_FAILED    fatal
"""

from kohort.protocol.primitives import int16, int32, int64, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class DeleteRecordsPartition(RequestPart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    offset: int = field(int64, "0+")
    """Records before this offset are deleted; -1 means the high watermark."""


class DeleteRecordsTopic(RequestPart):
    name: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[DeleteRecordsPartition, ...] = field([DeleteRecordsPartition], "0+")
    """The partitions, one entry each."""


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+"):
    topics: tuple[DeleteRecordsTopic, ...] = field([DeleteRecordsTopic], "0+")
    """The topics, one entry each."""
    timeout_ms: int = field(int32, "0+")
    """Milliseconds the broker may take."""


class DeleteRecordsPartitionResult(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    low_watermark: int = field(int64, "0+")
    """The first offset that the partition still has."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""


class DeleteRecordsTopicResult(ResponsePart):
    name: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[DeleteRecordsPartitionResult, ...] = field([DeleteRecordsPartitionResult], "0+")
    """The partitions, one entry each."""


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    topics: tuple[DeleteRecordsTopicResult, ...] = field([DeleteRecordsTopicResult], "0+")
    """The topics, one entry each."""
