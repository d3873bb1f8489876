"""Heartbeat (12): keeps the member's session alive and reports a rebalance.

Sent to: the group's coordinator, every heartbeat interval while the member is in a generation.

Errors
    REBALANCE_IN_PROGRESS        a rebalance has begun: revoke partitions, and join again
    ILLEGAL_GENERATION           a newer generation exists: the partitions are lost, join again
    UNKNOWN_MEMBER_ID            the member was removed: its partitions are lost, join again with an empty id
    FENCED_INSTANCE_ID           another process uses the same group instance id: fatal
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE   send FindCoordinator, stay a member
    COORDINATOR_LOAD_IN_PROGRESS stay a member, retry after a backoff
    GROUP_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.primitives import int16, int32, string
from kohort.protocol.schema import Request, Response, field


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    group_id: str = field(string, "0+")
    """The group."""
    generation_id: int = field(int32, "0+")
    """The generation of the member's last successful JoinGroup."""
    member_id: str = field(string, "0+")
    """The member id that the coordinator assigned; empty before the first JoinGroup response."""
    group_instance_id: str | None = field(string, "3+", null="3+", default=None)
    """The group instance id of a static member (KIP-345), or null for a dynamic member."""


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
