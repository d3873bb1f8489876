"""ConsumerGroupHeartbeat (68): the whole of membership in a KIP-848 group: join, stay, report, be told, leave.

Sent to: the group's coordinator, at the interval it names, and at once when something changed. A field that is null
says "as before", in both directions.

Errors
    UNKNOWN_MEMBER_ID             the member was given up: its partitions are lost, join again with epoch 0
    FENCED_MEMBER_EPOCH           the same: join again with epoch 0
    UNRELEASED_INSTANCE_ID        the static name is still in use: wait, try again
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE   find the coordinator, send again
    COORDINATOR_LOAD_IN_PROGRESS  send again after a while
    UNSUPPORTED_ASSIGNOR          the coordinator has no assignor of this name: fatal
    INVALID_REGULAR_EXPRESSION    the pattern is no RE2 (version 1 on): fatal
    GROUP_MAX_SIZE_REACHED, INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   fatal
"""

from uuid import UUID

from kohort.protocol.primitives import int16, int32, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class TopicPartitions(RequestPart):
    """Stands in the request and, under the same name, in the response."""

    topic_id: UUID = field(uuid, "0+")
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[int, ...] = field([int32], "0+")
    """The partitions' numbers."""


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    group_id: str = field(string, "0+")
    """The group."""
    member_id: str = field(string, "0+")
    """The member's id, which it makes up itself (a uuid) from version 1 on; empty on joining in version 0."""
    member_epoch: int = field(int32, "0+")
    """The member's epoch; 0 joins, -1 leaves, -2 leaves for a while as a static member."""
    instance_id: str | None = field(string, "0+", null="0+", default=None)
    """The static member's own name, or null."""
    rack_id: str | None = field(string, "0+", null="0+", default=None)
    """The member's rack; null where it has none or it did not change."""
    rebalance_timeout_ms: int = field(int32, "0+", default=-1)
    """How long the member may take to give partitions back; -1 where it did not change."""
    subscribed_topic_names: tuple[str, ...] | None = field([string], "0+", null="0+", default=None)
    """The topics it wants to read; null where that did not change."""
    subscribed_topic_regex: str | None = field(string, "1+", null="1+", default=None)
    """The pattern it wants to read, for RE2; null where there is none or it did not change."""
    server_assignor: str | None = field(string, "0+", null="0+", default=None)
    """The assignor it wants the coordinator to use; null leaves the choice, or where it did not change."""
    topic_partitions: tuple[TopicPartitions, ...] | None = field([TopicPartitions], "0+", null="0+", default=None)
    """What it owns now; null where that did not change."""


class Assignment(ResponsePart):
    topic_partitions: tuple[TopicPartitions, ...] = field([TopicPartitions], "0+")
    """The partitions, by topic."""


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """What went wrong in words, or null."""
    member_id: str | None = field(string, "0+", null="0+", default=None)
    """The member's id where the coordinator made it up, else null."""
    member_epoch: int = field(int32, "0+")
    """The member's epoch from now on."""
    heartbeat_interval_ms: int = field(int32, "0+")
    """How long until the next heartbeat."""
    assignment: Assignment | None = field(Assignment, "0+", null="0+", default=None)
    """What the member shall own; null where that did not change."""
