"""CreateTopics (19): create topics, or only say whether they could be.

Sent to: any broker of a KRaft cluster (it forwards), the controller of an older one. Each topic stands for itself.

Errors (by topic)
    TOPIC_ALREADY_EXISTS            as good as done, though its settings may differ
    NOT_CONTROLLER                  fresh metadata, send to the controller
    REQUEST_TIMED_OUT               not known everywhere yet: it may still come into being
    INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT,
    INVALID_CONFIG, INVALID_REQUEST   the message says which: fatal
    POLICY_VIOLATION                the broker's own policy says no
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
    """The setting's value; null takes the default."""


class CreatableTopic(RequestPart):
    name: str = field(string, "0+")
    """The topic's name."""
    num_partitions: int = field(int32, "0+")
    """How many partitions; -1 takes the broker's default, or leaves it to `assignments`."""
    replication_factor: int = field(int16, "0+")
    """How many copies; -1 takes the broker's default, or leaves it to `assignments`."""
    assignments: tuple[CreatableReplicaAssignment, ...] = field([CreatableReplicaAssignment], "0+")
    """Brokers chosen by hand for each partition; empty lets the broker choose."""
    configs: tuple[CreatableTopicConfig, ...] = field([CreatableTopicConfig], "0+")
    """Topic settings that differ from the broker's."""


class CreateTopicsRequest(Request, key=19, versions="0-7", flexible="5+"):
    topics: tuple[CreatableTopic, ...] = field([CreatableTopic], "0+")
    """What to create."""
    timeout_ms: int = field(int32, "0+", default=60000)
    """How long the controller may take."""
    validate_only: bool = field(boolean, "1+", default=False)
    """Whether to check only and create nothing."""


class CreatableTopicConfigs(ResponsePart):
    name: str = field(string, "5+")
    """The setting's name."""
    value: str | None = field(string, "5+", null="5+")
    """The setting's value, or null."""
    read_only: bool = field(boolean, "5+")
    """Whether it cannot be changed."""
    config_source: int = field(int8, "5+", default=-1, ignorable=True)
    """Where the value comes from: 1 the topic, 2 the broker, 3 all brokers, 4 the broker's file, 5 Kafka's default, 6 a
    broker's logger, 7 client metrics, 8 the group; 0 or -1 unknown."""
    is_sensitive: bool = field(boolean, "5+")
    """Whether the value is a secret and therefore hidden."""


class CreatableTopicResult(ResponsePart):
    name: str = field(string, "0+")
    """The topic's name."""
    topic_id: UUID = field(uuid, "7+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "1+", null="0+", ignorable=True)
    """What went wrong in words, or null."""
    topic_config_error_code: int = field(int16, "5+", ignorable=True, tag=0, tagged="5+")
    """0, or why the settings are kept back from the caller."""
    num_partitions: int = field(int32, "5+", default=-1, ignorable=True)
    """How many partitions it got; -1 where it is unknown."""
    replication_factor: int = field(int16, "5+", default=-1, ignorable=True)
    """How many copies it got; -1 where it is unknown."""
    configs: tuple[CreatableTopicConfigs, ...] | None = field([CreatableTopicConfigs], "5+", null="5+", ignorable=True)
    """The settings in force; null where they are kept back."""


class CreateTopicsResponse(Response, key=19, versions="0-7", flexible="5+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    topics: tuple[CreatableTopicResult, ...] = field([CreatableTopicResult], "0+")
    """The topics, one entry each."""
