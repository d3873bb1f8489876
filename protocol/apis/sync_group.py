"""SyncGroup (14): the leader sends all assignments, and each member gets its own.

Sent to: the group's coordinator, after JoinGroup. It responds when it has the leader's assignment.

Errors
    REBALANCE_IN_PROGRESS         a new rebalance began: join again
    ILLEGAL_GENERATION            a newer generation exists: join again
    UNKNOWN_MEMBER_ID             the coordinator does not know the member: join again with an empty id
    FENCED_INSTANCE_ID            another process uses the same group instance id: fatal
    INCONSISTENT_GROUP_PROTOCOL   the protocol is not that of this generation (KIP-559): fatal
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR   send FindCoordinator, then join again
    COORDINATOR_LOAD_IN_PROGRESS  retry after a backoff
    GROUP_AUTHORIZATION_FAILED    fatal
"""

from kohort.protocol.primitives import bytes_, int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, field


class SyncGroupRequestAssignment(RequestPart):
    member_id: str = field(string, "0+")
    """The member that the assignment is for."""
    assignment: bytes = field(bytes_, "0+")
    """The member's assignment, in the group's embedded protocol."""


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    group_id: str = field(string, "0+")
    """The group."""
    generation_id: int = field(int32, "0+")
    """The generation of the member's last successful JoinGroup."""
    member_id: str = field(string, "0+")
    """The member id that the coordinator assigned; empty before the first JoinGroup response."""
    group_instance_id: str | None = field(string, "3+", null="3+", default=None)
    """The group instance id of a static member (KIP-345), or null for a dynamic member."""
    protocol_type: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The kind of group: `consumer` for consumers, `connect` for Connect's workers."""
    protocol_name: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The assignor that the group settled on."""
    assignments: tuple[SyncGroupRequestAssignment, ...] = field([SyncGroupRequestAssignment], "0+")
    """The assignment of each member; empty unless the leader sends the request."""


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    protocol_type: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The kind of group: `consumer` for consumers, `connect` for Connect's workers."""
    protocol_name: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The assignor that the group settled on."""
    assignment: bytes = field(bytes_, "0+")
    """The member's assignment, in the group's embedded protocol."""
