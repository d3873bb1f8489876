"""CreatePartitions (37): adds partitions to topics. Existing keys may map to other partitions.

Sent to: any broker of a KRaft cluster (it forwards), or the controller of a ZooKeeper cluster.

Errors (by topic)
    INVALID_PARTITIONS            not more than the current number
    UNKNOWN_TOPIC_OR_PARTITION    no such topic
    INVALID_REPLICA_ASSIGNMENT    the explicit replicas are invalid
    REASSIGNMENT_IN_PROGRESS      wait until partitions have stopped moving
    NOT_CONTROLLER                refresh metadata, send to the controller
    REQUEST_TIMED_OUT             not known to all brokers yet
    THROTTLING_QUOTA_EXCEEDED     wait `throttle_time_ms`, retry (KIP-599)
    INVALID_REQUEST, POLICY_VIOLATION, TOPIC_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.primitives import boolean, int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class CreatePartitionsAssignment(RequestPart):
    broker_ids: tuple[int, ...] = field([int32], "0+")
    """The brokers that shall hold a copy, the preferred leader first."""


class CreatePartitionsTopic(RequestPart):
    name: str = field(string, "0+")
    """The topic's name."""
    count: int = field(int32, "0+")
    """The new number of partitions of the topic."""
    assignments: tuple[CreatePartitionsAssignment, ...] | None = field([CreatePartitionsAssignment], "0+", null="0+")
    """Explicit replicas of each new partition; null lets the broker choose."""


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    topics: tuple[CreatePartitionsTopic, ...] = field([CreatePartitionsTopic], "0+")
    """The topics to grow."""
    timeout_ms: int = field(int32, "0+")
    """Milliseconds the broker may take."""
    validate_only: bool = field(boolean, "0+")
    """True validates the request and creates nothing."""


class CreatePartitionsTopicResult(ResponsePart):
    name: str = field(string, "0+")
    """The topic's name."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    results: tuple[CreatePartitionsTopicResult, ...] = field([CreatePartitionsTopicResult], "0+")
    """The topics, one entry each."""
