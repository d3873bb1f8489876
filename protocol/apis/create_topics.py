"""CreateTopics (19): creates topics, or only validates them.

Sent to: any broker of a KRaft cluster (it forwards), or the controller of a ZooKeeper cluster. Topics fail one by one.

Errors (by topic)
    TOPIC_ALREADY_EXISTS            the topic exists, perhaps with other settings
    NOT_CONTROLLER                  refresh metadata, send to the controller
    REQUEST_TIMED_OUT               not known to all brokers yet: the topic may still be created
    INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT,
    INVALID_CONFIG, INVALID_REQUEST   fatal: see `error_message`
    POLICY_VIOLATION                the broker's CreateTopicPolicy rejects it
    THROTTLING_QUOTA_EXCEEDED       wait `throttle_time_ms`, retry (KIP-599)
    TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED   fatal
"""

from uuid import UUID

from kohort.protocol.primitives import boolean, int8, int16, int32, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class CreatableReplicaAssignment(RequestPart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    broker_ids: tuple[int, ...] = field([int32], "0+")
    """The brokers that shall hold a copy, the preferred leader first."""


class CreatableTopicConfig(RequestPart):
    name: str = field(string, "0+")
    """The setting's name."""
    value: str | None = field(string, "0+", null="0+")
    """The setting's value; null means the default."""


class CreatableTopic(RequestPart):
    name: str = field(string, "0+")
    """The topic's name."""
    num_partitions: int = field(int32, "0+")
    """The number of partitions; -1 means the broker's default, or that `assignments` decides."""
    replication_factor: int = field(int16, "0+")
    """The replication factor; -1 means the broker's default, or that `assignments` decides."""
    assignments: tuple[CreatableReplicaAssignment, ...] = field([CreatableReplicaAssignment], "0+")
    """Explicit replicas of each partition; empty lets the broker choose."""
    configs: tuple[CreatableTopicConfig, ...] = field([CreatableTopicConfig], "0+")
    """Topic settings that differ from the broker's."""


class CreateTopicsRequest(Request, key=19, versions="0-7", flexible="5+"):
    topics: tuple[CreatableTopic, ...] = field([CreatableTopic], "0+")
    """The topics to create."""
    timeout_ms: int = field(int32, "0+", default=60000)
    """Milliseconds the controller may take."""
    validate_only: bool = field(boolean, "1+", default=False)
    """True validates the request and creates nothing."""


class CreatableTopicConfigs(ResponsePart):
    name: str = field(string, "5+")
    """The setting's name."""
    value: str | None = field(string, "5+", null="5+")
    """The setting's value, or null."""
    read_only: bool = field(boolean, "5+")
    """True if the setting cannot be changed."""
    config_source: int = field(int8, "5+", default=-1, ignorable=True)
    """The source of the value, -1 or 0 if unknown.

    - 1 topic, 2 broker, 3 all brokers, 4 the broker's static file
    - 5 Kafka's default, 6 a broker's logger, 7 client metrics, 8 group.
    """
    is_sensitive: bool = field(boolean, "5+")
    """True if the value is a secret and therefore null."""


class CreatableTopicResult(ResponsePart):
    name: str = field(string, "0+")
    """The topic's name."""
    topic_id: UUID = field(uuid, "7+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "1+", null="0+", ignorable=True)
    """The error message, or null."""
    topic_config_error_code: int = field(int16, "5+", ignorable=True, tag=0, tagged="5+")
    """0, or why the settings are kept back from the caller."""
    num_partitions: int = field(int32, "5+", default=-1, ignorable=True)
    """The number of partitions of the created topic; -1 if unknown."""
    replication_factor: int = field(int16, "5+", default=-1, ignorable=True)
    """The replication factor of the created topic; -1 if unknown."""
    configs: tuple[CreatableTopicConfigs, ...] | None = field([CreatableTopicConfigs], "5+", null="5+", ignorable=True)
    """The topic's settings; null if the caller may not see them."""


class CreateTopicsResponse(Response, key=19, versions="0-7", flexible="5+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    topics: tuple[CreatableTopicResult, ...] = field([CreatableTopicResult], "0+")
    """The topics, one entry each."""
