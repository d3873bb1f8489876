"""ShareGroupHeartbeat (76): joins, stays in and leaves a share group (KIP-932).

Sent to: the group's coordinator. Version 0 is the early-access form, with the same fields.

Errors
    UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH   join again with epoch 0
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, send again
    GROUP_MAX_SIZE_REACHED, INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.apis.consumer_group_heartbeat import Assignment
from kohort.protocol.primitives import int16, int32, string
from kohort.protocol.schema import Request, Response, field


class ShareGroupHeartbeatRequest(Request, key=76, versions="0-1", flexible="0+"):
    group_id: str = field(string, "0+")
    """The group."""
    member_id: str = field(string, "0+")
    """The member's id, which it makes up itself (a uuid)."""
    member_epoch: int = field(int32, "0+")
    """The member's epoch; 0 joins, -1 leaves."""
    rack_id: str | None = field(string, "0+", null="0+", default=None)
    """The member's rack; null where it has none or it did not change."""
    subscribed_topic_names: tuple[str, ...] | None = field([string], "0+", null="0+", default=None)
    """The subscribed topics; null if unchanged."""


class ShareGroupHeartbeatResponse(Response, key=76, versions="0-1", flexible="0+"):
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
