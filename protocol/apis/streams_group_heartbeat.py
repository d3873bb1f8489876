"""StreamsGroupHeartbeat (88): joins, stays in and leaves a group of Kafka Streams (KIP-1071).

Sent to: the group's coordinator. Declared for checks of brokers and for `kohort wire explain`. No kohort client sends
it. A status in the response is no error, and the member stays in the group.

Errors
    UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH   the tasks are lost: join again with epoch 0
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, send again
    STREAMS_INVALID_TOPOLOGY, STREAMS_INVALID_TOPOLOGY_EPOCH, STREAMS_TOPOLOGY_FENCED   the topology is refused: fatal
    GROUP_ID_NOT_FOUND            no such group with this epoch, or a group of another type
    UNSUPPORTED_VERSION           streams groups are disabled on this cluster: fatal
    GROUP_MAX_SIZE_REACHED, INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.primitives import boolean, int8, int16, int32, int64, string, uint16
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class KeyValue(RequestPart):
    key: str = field(string, "0+")
    """The name of the setting or tag."""
    value: str = field(string, "0+")
    """Its value."""


class TopicInfo(RequestPart):
    name: str = field(string, "0+")
    """The topic's name."""
    partitions: int = field(int32, "0+")
    """The number of partitions; 0 lets the broker choose. It must be 0 for changelogs."""
    replication_factor: int = field(int16, "0+")
    """The number of replicas; 0 means the broker's default."""
    topic_configs: tuple[KeyValue, ...] = field([KeyValue], "0+")
    """The topic's settings."""


class CopartitionGroup(RequestPart):
    """Topics of one subtopology that must have the same number of partitions, as indexes into its arrays."""

    source_topics: tuple[int, ...] = field([int16], "0+")
    """Indexes into the source topics."""
    source_topic_regex: tuple[int, ...] = field([int16], "0+")
    """Indexes into the patterns."""
    repartition_source_topics: tuple[int, ...] = field([int16], "0+")
    """Indexes into the repartition source topics."""


class Subtopology(RequestPart):
    subtopology_id: str = field(string, "0+")
    """The subtopology's id within the topology."""
    source_topics: tuple[str, ...] = field([string], "0+")
    """The topics that it reads."""
    source_topic_regex: tuple[str, ...] = field([string], "0+")
    """The patterns of topics that it reads."""
    state_changelog_topics: tuple[TopicInfo, ...] = field([TopicInfo], "0+")
    """The changelogs of its state stores. The broker creates them."""
    repartition_sink_topics: tuple[str, ...] = field([string], "0+")
    """The repartition topics that it writes to."""
    repartition_source_topics: tuple[TopicInfo, ...] = field([TopicInfo], "0+")
    """The repartition topics that it reads. The broker creates them."""
    copartition_groups: tuple[CopartitionGroup, ...] = field([CopartitionGroup], "0+")
    """Topics that must have the same number of partitions."""


class Topology(RequestPart):
    epoch: int = field(int32, "0+")
    """The epoch of the topology."""
    subtopologies: tuple[Subtopology, ...] = field([Subtopology], "0+")
    """The subtopologies, one entry each."""


class TaskIds(RequestPart):
    """Tasks of one subtopology, in requests and in responses."""

    subtopology_id: str = field(string, "0+")
    """The subtopology's id."""
    partitions: tuple[int, ...] = field([int32], "0+")
    """The partitions that the tasks process."""


class Endpoint(RequestPart):
    host: str = field(string, "0+")
    """The host name or address."""
    port: int = field(uint16, "0+")
    """The port."""


class TaskOffset(RequestPart):
    subtopology_id: str = field(string, "0+")
    """The subtopology's id."""
    partition: int = field(int32, "0+")
    """The partition that the task processes."""
    offset: int = field(int64, "0+")
    """The sum of the offsets of the task's changelogs."""


class StreamsGroupHeartbeatRequest(Request, key=88, versions="0-1", flexible="0+"):
    group_id: str = field(string, "0+")
    """The group."""
    member_id: str = field(string, "0+")
    """The member's id, which it makes up itself."""
    member_epoch: int = field(int32, "0+")
    """The member's epoch; 0 joins, -1 leaves, -2 leaves temporarily as a static member."""
    endpoint_information_epoch: int = field(int32, "0+")
    """The last received endpoint epoch, 0 at first."""
    instance_id: str | None = field(string, "0+", null="0+", default=None)
    """The static member's own name, or null."""
    rack_id: str | None = field(string, "0+", null="0+", default=None)
    """The member's rack; null where it has none or it did not change."""
    rebalance_timeout_ms: int = field(int32, "0+", default=-1)
    """Milliseconds the member may take to give up tasks; -1 if unchanged."""
    topology: Topology | None = field(Topology, "0+", null="0+", default=None)
    """The topology, when the member joins, else null."""
    active_tasks: tuple[TaskIds, ...] | None = field([TaskIds], "0+", null="0+", default=None)
    """The active tasks that the member has; null if unchanged."""
    standby_tasks: tuple[TaskIds, ...] | None = field([TaskIds], "0+", null="0+", default=None)
    """The standby tasks that the member has; null if unchanged."""
    warmup_tasks: tuple[TaskIds, ...] | None = field([TaskIds], "0+", null="0+", default=None)
    """The warm-up tasks that the member has; null if unchanged."""
    process_id: str | None = field(string, "0+", null="0+", default=None)
    """The id of the member's process, which may have several members; null if unchanged."""
    user_endpoint: Endpoint | None = field(Endpoint, "0+", null="0+", default=None)
    """The address for interactive queries; null if unchanged, or if there is none."""
    client_tags: tuple[KeyValue, ...] | None = field([KeyValue], "0+", null="0+", default=None)
    """The member's tags for rack-aware assignment; null if unchanged."""
    task_offsets: tuple[TaskOffset, ...] | None = field([TaskOffset], "0+", null="0+", default=None)
    """The offsets of changelogs by task; null if unchanged."""
    task_end_offsets: tuple[TaskOffset, ...] | None = field([TaskOffset], "0+", null="0+", default=None)
    """The end offsets of changelogs by task; null if unchanged."""
    shutdown_application: bool = field(boolean, "0+", default=False)
    """True requests that all members of the group shut down."""


class Status(ResponsePart):
    status_code: int = field(int8, "0+")
    """The status code.

    - 0 the topology is stale, 1 source topics are missing, 2 topics have wrong numbers of partitions
    - 3 internal topics are missing, 4 the application shuts down, 5 the assignment is delayed
    - 6 members lack tags that rack-aware assignment needs (version 1 on).
    """
    status_detail: str = field(string, "0+")
    """The status as text."""


class TopicPartition(ResponsePart):
    topic: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[int, ...] = field([int32], "0+")
    """The partitions' numbers."""


class EndpointToPartitions(ResponsePart):
    user_endpoint: Endpoint = field(Endpoint, "0+")
    """The address of a process."""
    active_partitions: tuple[TopicPartition, ...] = field([TopicPartition], "0+")
    """The partitions that its active tasks have."""
    standby_partitions: tuple[TopicPartition, ...] = field([TopicPartition], "0+")
    """The partitions that its standby tasks have."""


class StreamsGroupHeartbeatResponse(Response, key=88, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""
    member_id: str = field(string, "0+")
    """The member's id."""
    member_epoch: int = field(int32, "0+")
    """The member's epoch from now on."""
    heartbeat_interval_ms: int = field(int32, "0+")
    """Milliseconds until the next heartbeat."""
    acceptable_recovery_lag_legacy: int = field(int32, "0")
    """The largest lag of a warm-up task that counts as caught up, in version 0."""
    task_offset_interval_ms: int = field(int32, "0+")
    """Milliseconds between two reports of task offsets."""
    acceptable_recovery_lag: int = field(int64, "1+", default=-1, ignorable=True)
    """The largest lag of a warm-up task that counts as caught up; -1 if the broker does not set one."""
    status: tuple[Status, ...] | None = field([Status], "0+", null="0+")
    """The statuses of the group."""
    active_tasks: tuple[TaskIds, ...] | None = field([TaskIds], "0+", null="0+", default=None)
    """The member's active tasks; null if unchanged."""
    standby_tasks: tuple[TaskIds, ...] | None = field([TaskIds], "0+", null="0+", default=None)
    """The member's standby tasks; null if unchanged."""
    warmup_tasks: tuple[TaskIds, ...] | None = field([TaskIds], "0+", null="0+", default=None)
    """The member's warm-up tasks; null if unchanged."""
    topology_description_required: bool = field(boolean, "1+", default=False)
    """True if the broker wants a description of the topology (KIP-1331)."""
    endpoint_information_epoch: int = field(int32, "0+")
    """The epoch of the endpoints."""
    partitions_by_user_endpoint: tuple[EndpointToPartitions, ...] | None = field(
        [EndpointToPartitions], "0+", null="0+", default=None
    )
    """The partitions of each address; null if unchanged."""
