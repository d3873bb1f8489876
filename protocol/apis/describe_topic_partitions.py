"""DescribeTopicPartitions (75): returns the partitions of topics in pages (KIP-966).

Sent to: any broker. If the response has a cursor, the next request carries it.

Errors (by topic; by partition)
    UNKNOWN_TOPIC_OR_PARTITION    no such topic
    INVALID_TOPIC_EXCEPTION       the topic name is invalid
    LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND   the partition has no leader for this listener
    TOPIC_AUTHORIZATION_FAILED    the caller lacks DESCRIBE
    INVALID_REQUEST               the cursor is invalid
"""

from uuid import UUID

from kohort.protocol.primitives import boolean, int16, int32, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class TopicRequest(RequestPart):
    name: str = field(string, "0+")
    """The topic's name."""


class Cursor(RequestPart):
    """The first partition of the next page, in the request and in the response."""

    topic_name: str = field(string, "0+")
    """The topic's name."""
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible="0+"):
    topics: tuple[TopicRequest, ...] = field([TopicRequest], "0+")
    """The topics to describe; none means all."""
    response_partition_limit: int = field(int32, "0+", default=2000)
    """The maximum number of partitions in the response."""
    cursor: Cursor | None = field(Cursor, "0+", null="0+", default=None)
    """The first partition of the response; null starts at the first topic."""


class DescribeTopicPartitionsResponsePartition(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    leader_id: int = field(int32, "0+")
    """The leader's broker id; -1 if there is none."""
    leader_epoch: int = field(int32, "0+", default=-1, ignorable=True)
    """The leader's epoch."""
    replica_nodes: tuple[int, ...] = field([int32], "0+")
    """The broker ids of the replicas."""
    isr_nodes: tuple[int, ...] = field([int32], "0+")
    """The broker ids of the replicas in sync with the leader."""
    eligible_leader_replicas: tuple[int, ...] | None = field([int32], "0+", null="0+", default=None)
    """The broker ids of replicas that may become leader though they are not in sync; null if unknown."""
    last_known_elr: tuple[int, ...] | None = field([int32], "0+", null="0+", default=None)
    """The broker ids of the last known such replicas; null if unknown."""
    offline_replicas: tuple[int, ...] = field([int32], "0+", ignorable=True)
    """The broker ids of the replicas that are offline."""


class DescribeTopicPartitionsResponseTopic(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    name: str | None = field(string, "0+", null="0+")
    """The topic's name."""
    topic_id: UUID = field(uuid, "0+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    is_internal: bool = field(boolean, "0+", default=False, ignorable=True)
    """True for a topic that Kafka keeps for itself."""
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = field(
        [DescribeTopicPartitionsResponsePartition], "0+"
    )
    """The partitions, one entry each."""
    topic_authorized_operations: int = field(int32, "0+", default=-(2**31))
    """The caller's authorized operations on the topic, as a bit field; -2**31 if not requested."""


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = field([DescribeTopicPartitionsResponseTopic], "0+")
    """The topics, one entry each."""
    next_cursor: Cursor | None = field(Cursor, "0+", null="0+", default=None)
    """The first partition of the next page; null if there is none."""
