"""JoinGroup (11): let me be a member of the group's next generation.

Sent to: the group's coordinator, which answers when every member has joined or the rebalance timeout is over. The
leader's answer lists all members; everyone else's lists none. SyncGroup follows.

Errors
    MEMBER_ID_REQUIRED            first join of a dynamic member (KIP-394): join again with the id in the answer
    UNKNOWN_MEMBER_ID             the coordinator forgot the member: join again with an empty id
    FENCED_INSTANCE_ID            another process uses the same static name: fatal
    COORDINATOR_LOAD_IN_PROGRESS  join again after a while
    COORDINATOR_NOT_AVAILABLE     find the coordinator again
    NOT_COORDINATOR               find the coordinator again
    REBALANCE_IN_PROGRESS         join again
    INCONSISTENT_GROUP_PROTOCOL   no assignor in common with the members already there, or another kind of group: fatal
    INVALID_SESSION_TIMEOUT       outside the broker's bounds: fatal
    INVALID_GROUP_ID              fatal
    GROUP_AUTHORIZATION_FAILED    fatal
    GROUP_MAX_SIZE_REACHED        fatal
    UNSUPPORTED_VERSION           a static name needs version 5
"""

from kohort.protocol.primitives import boolean, bytes_, int16, int32, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class JoinGroupRequestProtocol(RequestPart):
    name: str = field(string, "0+")
    """The assignor's name."""
    metadata: bytes = field(bytes_, "0+")
    """What the member tells the assignor: its subscription, in the group's embedded protocol."""


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    group_id: str = field(string, "0+")
    """The group."""
    session_timeout_ms: int = field(int32, "0+")
    """How long the coordinator waits for a heartbeat before it gives the member up."""
    rebalance_timeout_ms: int = field(int32, "1+", default=-1, ignorable=True)
    """How long the coordinator waits for the member to rejoin; -1 stands for the session timeout."""
    member_id: str = field(string, "0+")
    """The member's id as the coordinator gave it; empty before it has one."""
    group_instance_id: str | None = field(string, "5+", null="5+", default=None)
    """The static member's own name (KIP-345), or null for a dynamic member."""
    protocol_type: str = field(string, "0+")
    """The kind of group: `consumer` for consumers, `connect` for Connect's workers."""
    protocols: tuple[JoinGroupRequestProtocol, ...] = field([JoinGroupRequestProtocol], "0+")
    """The assignors that the member can use, the favourite first."""
    reason: str | None = field(string, "8+", null="8+", default=None, ignorable=True)
    """Why, for the broker's log (KIP-800)."""


class JoinGroupResponseMember(ResponsePart):
    member_id: str = field(string, "0+")
    """The member's id."""
    group_instance_id: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The static member's own name (KIP-345), or null for a dynamic member."""
    metadata: bytes = field(bytes_, "0+")
    """What the member told under the chosen assignor's name."""


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = field(int32, "2+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    generation_id: int = field(int32, "0+", default=-1)
    """The new generation; -1 with an error."""
    protocol_type: str | None = field(string, "7+", null="7+", default=None, ignorable=True)
    """The kind of group: `consumer` for consumers, `connect` for Connect's workers."""
    protocol_name: str | None = field(string, "0+", null="7+")
    """The assignor that every member has and most prefer; null with an error."""
    leader: str = field(string, "0+")
    """The member id of the leader, who assigns for all."""
    skip_assignment: bool = field(boolean, "9+", default=False)
    """Told to a returning static leader: the old assignment stands, do not assign again (KIP-814)."""
    member_id: str = field(string, "0+")
    """The id to use from now on."""
    members: tuple[JoinGroupResponseMember, ...] = field([JoinGroupResponseMember], "0+")
    """Every member of the generation; filled for the leader only."""
