"""DescribeGroups (15): what do these classic groups look like: state, assignor, members, who owns what?

Sent to: the coordinator of every group named.

Errors (by group)
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR   find the coordinator, retry
    INVALID_GROUP_ID              no group can be called so
    GROUP_ID_NOT_FOUND            version 6 on: no such classic group; before, it is described as Dead
    GROUP_AUTHORIZATION_FAILED    the caller may not see it
"""

from kohort.protocol.primitives import boolean, bytes_, int16, int32, string
from kohort.protocol.schema import Request, Response, ResponsePart, field


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    groups: tuple[str, ...] = field([string], "0+")
    """The groups to describe."""
    include_authorized_operations: bool = field(boolean, "3+")
    """Whether to answer with what the caller may do to each group (KIP-430)."""


class DescribedGroupMember(ResponsePart):
    member_id: str = field(string, "0+")
    """The member's id."""
    group_instance_id: str | None = field(string, "4+", null="4+", default=None, ignorable=True)
    """The static member's own name (KIP-345), or null for a dynamic member."""
    client_id: str = field(string, "0+")
    """What the member's connection calls itself."""
    client_host: str = field(string, "0+")
    """Where the member connects from."""
    member_metadata: bytes = field(bytes_, "0+")
    """What the member told under the chosen assignor's name: its subscription."""
    member_assignment: bytes = field(bytes_, "0+")
    """What the leader gave the member."""


class DescribedGroup(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or why the group cannot be described."""
    error_message: str | None = field(string, "6+", null="6+", default=None)
    """What went wrong in words, or null."""
    group_id: str = field(string, "0+")
    """The group."""
    group_state: str = field(string, "0+")
    """The group's state: Empty, PreparingRebalance, CompletingRebalance, Stable or Dead."""
    protocol_type: str = field(string, "0+")
    """The kind of group: `consumer` for consumers, `connect` for Connect's workers; empty for a dead one."""
    protocol_data: str = field(string, "0+")
    """The assignor in use; empty unless the group is stable."""
    members: tuple[DescribedGroupMember, ...] = field([DescribedGroupMember], "0+")
    """Its members."""
    authorized_operations: int = field(int32, "3+", default=-(2**31))
    """What the caller may do to the group, as a bit field; the lowest int32 where not asked for."""


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    groups: tuple[DescribedGroup, ...] = field([DescribedGroup], "0+")
    """The groups, one entry each."""
