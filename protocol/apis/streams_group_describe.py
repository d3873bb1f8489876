"""StreamsGroupDescribe (89): describes groups of Kafka Streams (KIP-1071).

Sent to: the coordinator of each requested group.

Errors (by group)
    GROUP_ID_NOT_FOUND            no such group, or a group of another type
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, retry
    INVALID_GROUP_ID, INVALID_REQUEST   the group id is invalid
    GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   the caller lacks DESCRIBE
"""

from kohort.protocol.apis.streams_group_heartbeat import Endpoint, KeyValue, TaskIds, TaskOffset, TopicInfo
from kohort.protocol.primitives import boolean, int8, int16, int32, string
from kohort.protocol.schema import Request, Response, ResponsePart, field


class StreamsGroupDescribeRequest(Request, key=89, versions="0-1", flexible="0+"):
    group_ids: tuple[str, ...] = field([string], "0+")
    """The groups to describe."""
    include_authorized_operations: bool = field(boolean, "0+")
    """True adds the caller's authorized operations on each group to the response (KIP-430)."""
    include_topology_description: bool = field(boolean, "1+", default=False)
    """True adds the description of each group's topology to the response (KIP-1331)."""


class Subtopology(ResponsePart):
    subtopology_id: str = field(string, "0+")
    """The subtopology's id within the topology."""
    source_topics: tuple[str, ...] = field([string], "0+")
    """The topics that it reads."""
    repartition_sink_topics: tuple[str, ...] = field([string], "0+")
    """The repartition topics that it writes to."""
    state_changelog_topics: tuple[TopicInfo, ...] = field([TopicInfo], "0+")
    """The changelogs of its state stores."""
    repartition_source_topics: tuple[TopicInfo, ...] = field([TopicInfo], "0+")
    """The repartition topics that it reads."""


class Topology(ResponsePart):
    epoch: int = field(int32, "0+")
    """The epoch of the group's topology."""
    subtopologies: tuple[Subtopology, ...] | None = field([Subtopology], "0+", null="0+", default=None)
    """The subtopologies, one entry each; null if the group is not ready."""


class Assignment(ResponsePart):
    active_tasks: tuple[TaskIds, ...] = field([TaskIds], "0+")
    """The active tasks."""
    standby_tasks: tuple[TaskIds, ...] = field([TaskIds], "0+")
    """The standby tasks."""
    warmup_tasks: tuple[TaskIds, ...] = field([TaskIds], "0+")
    """The warm-up tasks."""


class Member(ResponsePart):
    member_id: str = field(string, "0+")
    """The member's id."""
    member_epoch: int = field(int32, "0+")
    """The member's epoch."""
    instance_id: str | None = field(string, "0+", null="0+", default=None)
    """The static member's own name, or null."""
    rack_id: str | None = field(string, "0+", null="0+", default=None)
    """The member's rack, or null."""
    client_id: str = field(string, "0+")
    """The member's client id."""
    client_host: str = field(string, "0+")
    """The member's host address."""
    topology_epoch: int = field(int32, "0+")
    """The epoch of the member's topology."""
    process_id: str = field(string, "0+")
    """The id of the member's process."""
    user_endpoint: Endpoint | None = field(Endpoint, "0+", null="0+", default=None)
    """The address for interactive queries, or null."""
    client_tags: tuple[KeyValue, ...] = field([KeyValue], "0+")
    """The member's tags for rack-aware assignment."""
    task_offsets: tuple[TaskOffset, ...] = field([TaskOffset], "0+")
    """The offsets of changelogs by task."""
    task_end_offsets: tuple[TaskOffset, ...] = field([TaskOffset], "0+")
    """The end offsets of changelogs by task."""
    assignment: Assignment = field(Assignment, "0+")
    """The tasks that the member has."""
    target_assignment: Assignment = field(Assignment, "0+")
    """The tasks that the member shall have."""
    is_classic: bool = field(boolean, "0+")
    """True for a member of the classic protocol."""


class TopologyDescriptionNode(ResponsePart):
    name: str = field(string, "1+")
    """The node's name."""
    node_type: int = field(int8, "1+")
    """1 a source, 2 a processor, 3 a sink."""
    source_topics: tuple[str, ...] = field([string], "1+")
    """The topics that a source reads; empty if they are not fixed."""
    sink_topic: str | None = field(string, "1+", null="1+", default=None)
    """The topic that a sink writes to, or null if it is not fixed."""
    stores: tuple[str, ...] = field([string], "1+")
    """The state stores that a processor uses."""
    successors: tuple[str, ...] = field([string], "1+")
    """The names of the nodes after this one."""


class TopologyDescriptionSubtopology(ResponsePart):
    subtopology_id: str = field(string, "1+")
    """The subtopology's id within the topology."""
    nodes: tuple[TopologyDescriptionNode, ...] = field([TopologyDescriptionNode], "1+")
    """The nodes, one entry each."""


class TopologyDescriptionGlobalStore(ResponsePart):
    source: TopologyDescriptionNode = field(TopologyDescriptionNode, "1+")
    """The source that fills the store."""
    processor: TopologyDescriptionNode = field(TopologyDescriptionNode, "1+")
    """The processor that writes to the store."""


class TopologyDescription(ResponsePart):
    subtopologies: tuple[TopologyDescriptionSubtopology, ...] = field([TopologyDescriptionSubtopology], "1+")
    """The subtopologies, one entry each."""
    global_stores: tuple[TopologyDescriptionGlobalStore, ...] = field([TopologyDescriptionGlobalStore], "1+")
    """The global stores, one entry each."""


class DescribedGroup(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or why the group cannot be described."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""
    group_id: str = field(string, "0+")
    """The group."""
    group_state: str = field(string, "0+")
    """The group's state: Empty, NotReady, Assigning, Reconciling, Stable or Dead."""
    group_epoch: int = field(int32, "0+")
    """Grows with every change of members or topology."""
    assignment_epoch: int = field(int32, "0+")
    """The group epoch that the target assignment was made for."""
    topology: Topology | None = field(Topology, "0+", null="0+", default=None)
    """The group's topology; null with an error."""
    members: tuple[Member, ...] = field([Member], "0+")
    """Its members."""
    authorized_operations: int = field(int32, "0+", default=-(2**31))
    """The caller's authorized operations on the group, as a bit field; -2**31 if not requested."""
    topology_description: TopologyDescription | None = field(TopologyDescription, "1+", null="1+", default=None)
    """The description of the topology; null unless its status is 3."""
    topology_description_status: int = field(int8, "1+", default=0)
    """0 not requested, 1 not stored, 2 not available by an error, 3 available."""
    assignor_name: str | None = field(string, "1+", null="1+", default=None, ignorable=True)
    """The assignor of the next assignment, or null."""


class StreamsGroupDescribeResponse(Response, key=89, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    groups: tuple[DescribedGroup, ...] = field([DescribedGroup], "0+")
    """The groups, one entry each."""
