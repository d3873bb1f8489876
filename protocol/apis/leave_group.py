"""LeaveGroup (13): removes the member itself or, as an admin, static members by instance id.

Sent to: the group's coordinator. From version 3 on the request has several members, each with its own error.

Errors
    UNKNOWN_MEMBER_ID            already removed: treat as success
    FENCED_INSTANCE_ID           the group instance id belongs to another member id
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR   left to the session timeout
    GROUP_AUTHORIZATION_FAILED   not removed
"""

from kohort.protocol.primitives import int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class MemberIdentity(RequestPart):
    member_id: str = field(string, "3+")
    """The member id; may be empty if `group_instance_id` is set."""
    group_instance_id: str | None = field(string, "3+", null="3+", default=None)
    """The group instance id of a static member (KIP-345), or null for a dynamic member."""
    reason: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The reason, for the broker's log (KIP-800)."""


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    group_id: str = field(string, "0+")
    """The group."""
    member_id: str = field(string, "0-2")
    """The member that leaves."""
    members: tuple[MemberIdentity, ...] = field([MemberIdentity], "3+")
    """The members to remove, several at once (KIP-345)."""


class MemberResponse(ResponsePart):
    member_id: str = field(string, "3+")
    """The member's id."""
    group_instance_id: str | None = field(string, "3+", null="3+")
    """The group instance id of a static member (KIP-345), or null for a dynamic member."""
    error_code: int = field(int16, "3+")
    """0, or why the member could not be removed."""


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    members: tuple[MemberResponse, ...] = field([MemberResponse], "3+")
    """The results, one for each member."""
