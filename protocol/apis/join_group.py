"""JoinGroup (11): joins the group's next generation.

Sent to: the group's coordinator. It responds when every member has joined, or when the rebalance timeout has passed.
The leader's response lists all members, other responses list none. SyncGroup follows.

Errors
    MEMBER_ID_REQUIRED            first join of a dynamic member (KIP-394): join again with the id of the response
    UNKNOWN_MEMBER_ID             the coordinator does not know the member: join again with an empty id
    FENCED_INSTANCE_ID            another process uses the same group instance id: fatal
    COORDINATOR_LOAD_IN_PROGRESS  join again after a backoff
    COORDINATOR_NOT_AVAILABLE     send FindCoordinator again
    NOT_COORDINATOR               send FindCoordinator again
    REBALANCE_IN_PROGRESS         join again
    INCONSISTENT_GROUP_PROTOCOL   no common assignor with the other members, or another protocol type: fatal
    INVALID_SESSION_TIMEOUT       outside the broker's bounds: fatal
    INVALID_GROUP_ID              fatal
    GROUP_AUTHORIZATION_FAILED    fatal
    GROUP_MAX_SIZE_REACHED        fatal
    UNSUPPORTED_VERSION           a group instance id needs version 5
"""

from kohort.protocol.primitives import boolean, bytes_, int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class JoinGroupRequestProtocol(RequestPart):
    name: str = field(string, "0+")
    """The assignor's name."""
    metadata: bytes = field(bytes_, "0+")
    """The member's subscription for the assignor, in the group's embedded protocol."""


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    group_id: str = field(string, "0+")
    """The group."""
    session_timeout_ms: int = field(int32, "0+")
    """Milliseconds without a heartbeat after which the coordinator removes the member."""
    rebalance_timeout_ms: int = field(int32, "1+", default=-1, ignorable=True)
    """Milliseconds the coordinator waits for the member to rejoin; -1 means the session timeout."""
    member_id: str = field(string, "0+")
    """The member id that the coordinator assigned; empty before the first JoinGroup response."""
    group_instance_id: str | None = field(string, "5+", null="5+", default=None)
    """The group instance id of a static member (KIP-345), or null for a dynamic member."""
    protocol_type: str = field(string, "0+")
    """The kind of group: `consumer` for consumers, `connect` for Connect's workers."""
    protocols: tuple[JoinGroupRequestProtocol, ...] = field([JoinGroupRequestProtocol], "0+")
    """The assignors that the member can use, the favourite first."""
    reason: str | None = field(string, "8+", null="8+", default=None, ignorable=True)
    """The reason, for the broker's log (KIP-800)."""


class JoinGroupResponseMember(ResponsePart):
    member_id: str = field(string, "0+")
    """The member's id."""
    group_instance_id: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The group instance id of a static member (KIP-345), or null for a dynamic member."""
    metadata: bytes = field(bytes_, "0+")
    """The member's subscription for the selected assignor."""


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    generation_id: int = field(int32, "0+", default=-1)
    """The new generation; -1 with an error."""
    protocol_type: str | None = field(string, "7+", null="7+", default=None, ignorable=True)
    """The kind of group: `consumer` for consumers, `connect` for Connect's workers."""
    protocol_name: str | None = field(string, "0+", null="7+")
    """The assignor that all members support and most prefer; null with an error."""
    leader: str = field(string, "0+")
    """The member id of the leader, which computes the assignment."""
    skip_assignment: bool = field(boolean, "9+", default=False)
    """True for a returning static leader: the old assignment remains, and the leader must not assign (KIP-814)."""
    member_id: str = field(string, "0+")
    """The id to use from now on."""
    members: tuple[JoinGroupResponseMember, ...] = field([JoinGroupResponseMember], "0+")
    """Every member of the generation; filled for the leader only."""
