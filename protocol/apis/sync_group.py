"""SyncGroup (14): the leader hands in everyone's assignment, and each member gets its own.

Sent to: the group's coordinator, after JoinGroup. It answers when the leader's assignment is there.

Errors
    REBALANCE_IN_PROGRESS         a new round began meanwhile: join again
    ILLEGAL_GENERATION            a newer generation exists: join again
    UNKNOWN_MEMBER_ID             the coordinator forgot the member: join again with an empty id
    FENCED_INSTANCE_ID            another process uses the same static name: fatal
    INCONSISTENT_GROUP_PROTOCOL   the protocol named is not the one of this generation (KIP-559): fatal
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR   find the coordinator, then join again
    COORDINATOR_LOAD_IN_PROGRESS  try again after a while
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
    """The generation that the member believes to be in."""
    member_id: str = field(string, "0+")
    """The member's id as the coordinator gave it; empty before it has one."""
    group_instance_id: str | None = field(string, "3+", null="3+", default=None)
    """The static member's own name (KIP-345), or null for a dynamic member."""
    protocol_type: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The kind of group: `consumer` for consumers, `connect` for Connect's workers."""
    protocol_name: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The assignor that the group settled on."""
    assignments: tuple[SyncGroupRequestAssignment, ...] = field([SyncGroupRequestAssignment], "0+")
    """What each member gets; only the leader fills it."""


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    protocol_type: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The kind of group: `consumer` for consumers, `connect` for Connect's workers."""
    protocol_name: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The assignor that the group settled on."""
    assignment: bytes = field(bytes_, "0+")
    """The member's assignment, in the group's embedded protocol."""
