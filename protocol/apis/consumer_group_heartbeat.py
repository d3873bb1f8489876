"""ConsumerGroupHeartbeat (68): joins, reports, gets the assignment and leaves in a KIP-848 group.

Sent to: the group's coordinator, at the interval of its response, and at once after a change. A null field means
"unchanged", in both directions.

Errors
    UNKNOWN_MEMBER_ID             the member was removed: its partitions are lost, join again with epoch 0
    FENCED_MEMBER_EPOCH           the same: join again with epoch 0
    UNRELEASED_INSTANCE_ID        the group instance id is still in use: retry after a backoff
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE   send FindCoordinator, send again
    COORDINATOR_LOAD_IN_PROGRESS  send again after a backoff
    UNSUPPORTED_ASSIGNOR          the coordinator has no assignor of this name: fatal
    INVALID_REGULAR_EXPRESSION    the pattern is not valid RE2 (version 1 on): fatal
    GROUP_MAX_SIZE_REACHED, INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   fatal
"""

from uuid import UUID

from kohort.protocol.primitives import int16, int32, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class TopicPartitions(RequestPart):
    """Partitions of one topic, in the request and in the response."""

    topic_id: UUID = field(uuid, "0+")
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[int, ...] = field([int32], "0+")
    """The partitions' numbers."""


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    group_id: str = field(string, "0+")
    """The group."""
    member_id: str = field(string, "0+")
    """The member id. From version 1 on the member generates it (a UUID); in version 0 it is empty on joining."""
    member_epoch: int = field(int32, "0+")
    """The member's epoch; 0 joins, -1 leaves, -2 leaves temporarily as a static member."""
    instance_id: str | None = field(string, "0+", null="0+", default=None)
    """The static member's own name, or null."""
    rack_id: str | None = field(string, "0+", null="0+", default=None)
    """The member's rack; null where it has none or it did not change."""
    rebalance_timeout_ms: int = field(int32, "0+", default=-1)
    """Milliseconds the member may take to revoke partitions; -1 if unchanged."""
    subscribed_topic_names: tuple[str, ...] | None = field([string], "0+", null="0+", default=None)
    """The subscribed topics; null if unchanged."""
    subscribed_topic_regex: str | None = field(string, "1+", null="1+", default=None)
    """The subscribed topic pattern in RE2 syntax; null if there is none or it did not change."""
    server_assignor: str | None = field(string, "0+", null="0+", default=None)
    """The assignor that the coordinator shall use; null if unchanged, or to let the coordinator choose."""
    topic_partitions: tuple[TopicPartitions, ...] | None = field([TopicPartitions], "0+", null="0+", default=None)
    """The partitions that the member owns now; null if unchanged."""


class Assignment(ResponsePart):
    topic_partitions: tuple[TopicPartitions, ...] = field([TopicPartitions], "0+")
    """The partitions, by topic."""


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""
    member_id: str | None = field(string, "0+", null="0+", default=None)
    """The member's id where the coordinator made it up, else null."""
    member_epoch: int = field(int32, "0+")
    """The member's epoch from now on."""
    heartbeat_interval_ms: int = field(int32, "0+")
    """Milliseconds until the next heartbeat."""
    assignment: Assignment | None = field(Assignment, "0+", null="0+", default=None)
    """The member's new assignment; null if unchanged."""
