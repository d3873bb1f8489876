"""LeaveGroup (13): remove members from the group, oneself or (as an admin) static ones by name.

Sent to: the group's coordinator. From version 3 on a list of members, each with its own error.

Errors
    UNKNOWN_MEMBER_ID            gone already: as good as done
    FENCED_INSTANCE_ID           the static name belongs to another member id now
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR   not done; the session timeout will do it
    GROUP_AUTHORIZATION_FAILED   not done
"""

from kohort.protocol.primitives import int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class MemberIdentity(RequestPart):
    member_id: str = field(string, "3+")
    """The member's id; may be empty where the static name is given."""
    group_instance_id: str | None = field(string, "3+", null="3+", default=None)
    """The static member's own name (KIP-345), or null for a dynamic member."""
    reason: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """Why, for the broker's log (KIP-800)."""


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
    """The static member's own name (KIP-345), or null for a dynamic member."""
    error_code: int = field(int16, "3+")
    """0, or why the member could not be removed."""


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    members: tuple[MemberResponse, ...] = field([MemberResponse], "3+")
    """One answer a member."""
