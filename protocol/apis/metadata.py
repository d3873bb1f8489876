"""Metadata (3): lists brokers, topics, partitions and their leaders.

Sent to: any broker. Version 10 returns topic ids, version 12 accepts them.

Errors (by topic, by partition; version 13 also at the top)
    UNKNOWN_TOPIC_OR_PARTITION   no such topic, or a new topic that the broker does not know yet: retry
    UNKNOWN_TOPIC_ID             no topic with this id: deleted, or not known to the broker yet
    LEADER_NOT_AVAILABLE         no leader elected yet: retry
    INVALID_TOPIC_EXCEPTION      the topic name is invalid: fatal
    TOPIC_AUTHORIZATION_FAILED   the caller lacks DESCRIBE: fatal
    LISTENER_NOT_FOUND           the leader has no listener of the requested name: retry
    REPLICA_NOT_AVAILABLE        a replica is offline: ignore it, and use the leader
    REBOOTSTRAP_REQUIRED         discard the metadata and use the bootstrap addresses again (KIP-1102)
"""

from uuid import UUID

from kohort.protocol.primitives import boolean, int16, int32, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class MetadataRequestTopic(RequestPart):
    topic_id: UUID = field(uuid, "10+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    name: str | None = field(string, "0+", null="10+")
    """The topic's name, or null if the request names it by id."""


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    topics: tuple[MetadataRequestTopic, ...] | None = field([MetadataRequestTopic], "0+", null="1+")
    """The topics to describe; null means all (in version 0 the empty array does)."""
    allow_auto_topic_creation: bool = field(boolean, "4+", default=True)
    """True lets the broker create a missing topic."""
    include_cluster_authorized_operations: bool = field(boolean, "8-10")
    """True adds the caller's authorized operations on the cluster to the response (KIP-430)."""
    include_topic_authorized_operations: bool = field(boolean, "8+")
    """True adds the caller's authorized operations on each topic to the response (KIP-430)."""


class MetadataResponseBroker(ResponsePart):
    node_id: int = field(int32, "0+")
    """The broker's id."""
    host: str = field(string, "0+")
    """The name or address to connect to."""
    port: int = field(int32, "0+")
    """The port to connect to."""
    rack: str | None = field(string, "1+", null="1+", default=None, ignorable=True)
    """The broker's rack, or null."""


class MetadataResponsePartition(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or why the partition has no usable leader."""
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    leader_id: int = field(int32, "0+")
    """The leader's broker id; -1 where none is known."""
    leader_epoch: int = field(int32, "7+", default=-1, ignorable=True)
    """The epoch of the leadership; -1 where it is unknown."""
    replica_nodes: tuple[int, ...] = field([int32], "0+")
    """The brokers that hold a copy, the preferred leader first."""
    isr_nodes: tuple[int, ...] = field([int32], "0+")
    """The replicas that are in sync with the leader."""
    offline_replicas: tuple[int, ...] = field([int32], "5+", ignorable=True)
    """The replicas on a broker or disk that is offline."""


class MetadataResponseTopic(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or why the topic cannot be described."""
    name: str | None = field(string, "0+", null="12+")
    """The topic's name; null for an id that is unknown."""
    topic_id: UUID = field(uuid, "10+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    is_internal: bool = field(boolean, "1+", default=False, ignorable=True)
    """True for Kafka's internal topics, for example __consumer_offsets."""
    partitions: tuple[MetadataResponsePartition, ...] = field([MetadataResponsePartition], "0+")
    """The partitions, one entry each."""
    topic_authorized_operations: int = field(int32, "8+", default=-(2**31))
    """The caller's authorized operations on the topic, as a bit field; -2**31 if not requested."""


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = field(int32, "3+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    brokers: tuple[MetadataResponseBroker, ...] = field([MetadataResponseBroker], "0+")
    """The live brokers."""
    cluster_id: str | None = field(string, "2+", null="2+", default=None, ignorable=True)
    """The cluster's id, or null if the broker has none."""
    controller_id: int = field(int32, "1+", default=-1, ignorable=True)
    """The broker id that clients use as the controller; -1 if there is none."""
    topics: tuple[MetadataResponseTopic, ...] = field([MetadataResponseTopic], "0+")
    """The topics, one entry each."""
    cluster_authorized_operations: int = field(int32, "8-10", default=-(2**31))
    """The caller's authorized operations on the cluster, as a bit field; -2**31 if not requested."""
    error_code: int = field(int16, "13+", ignorable=True)
    """0, or what is wrong with the request as a whole."""
