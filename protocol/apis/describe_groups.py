"""DescribeGroups (15): describes classic groups: state, assignor, members and assignments.

Sent to: the coordinator of each requested group.

Errors (by group)
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR   send FindCoordinator, retry
    INVALID_GROUP_ID              the group id is invalid
    GROUP_ID_NOT_FOUND            no such classic group (version 6 on; before, its state is Dead)
    GROUP_AUTHORIZATION_FAILED    the caller lacks DESCRIBE
"""

from kohort.protocol.primitives import boolean, bytes_, int16, int32, string
from kohort.protocol.schema import Request, Response, ResponsePart, field


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    groups: tuple[str, ...] = field([string], "0+")
    """The groups to describe."""
    include_authorized_operations: bool = field(boolean, "3+")
    """True adds the caller's authorized operations on each group to the response (KIP-430)."""


class DescribedGroupMember(ResponsePart):
    member_id: str = field(string, "0+")
    """The member's id."""
    group_instance_id: str | None = field(string, "4+", null="4+", default=None, ignorable=True)
    """The group instance id of a static member (KIP-345), or null for a dynamic member."""
    client_id: str = field(string, "0+")
    """The member's client id."""
    client_host: str = field(string, "0+")
    """The member's host address."""
    member_metadata: bytes = field(bytes_, "0+")
    """The member's subscription for the selected assignor."""
    member_assignment: bytes = field(bytes_, "0+")
    """The assignment that the leader computed for the member."""


class DescribedGroup(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or why the group cannot be described."""
    error_message: str | None = field(string, "6+", null="6+", default=None)
    """The error message, or null."""
    group_id: str = field(string, "0+")
    """The group."""
    group_state: str = field(string, "0+")
    """The group's state: Empty, PreparingRebalance, CompletingRebalance, Stable or Dead."""
    protocol_type: str = field(string, "0+")
    """The protocol type: `consumer` for consumers, `connect` for Connect workers; empty for a dead group."""
    protocol_data: str = field(string, "0+")
    """The assignor in use; empty unless the group is stable."""
    members: tuple[DescribedGroupMember, ...] = field([DescribedGroupMember], "0+")
    """Its members."""
    authorized_operations: int = field(int32, "3+", default=-(2**31))
    """The caller's authorized operations on the group, as a bit field; -2**31 if not requested."""


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    groups: tuple[DescribedGroup, ...] = field([DescribedGroup], "0+")
    """The groups, one entry each."""
