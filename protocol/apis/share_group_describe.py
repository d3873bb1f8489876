"""ShareGroupDescribe (77): describes share groups (KIP-932).

Sent to: the coordinator of each requested group. Version 0 is the early-access form, with the same fields.

Errors (by group)
    GROUP_ID_NOT_FOUND            no such group, or a group of another type
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, retry
    INVALID_GROUP_ID, INVALID_REQUEST   the group id is invalid
    GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   the caller lacks DESCRIBE
"""

from kohort.protocol.apis.consumer_group_describe import Assignment
from kohort.protocol.primitives import boolean, int16, int32, string
from kohort.protocol.schema import Request, Response, ResponsePart, field


class ShareGroupDescribeRequest(Request, key=77, versions="0-1", flexible="0+"):
    group_ids: tuple[str, ...] = field([string], "0+")
    """The groups to describe."""
    include_authorized_operations: bool = field(boolean, "0+")
    """True adds the caller's authorized operations on each group to the response (KIP-430)."""


class Member(ResponsePart):
    member_id: str = field(string, "0+")
    """The member's id."""
    rack_id: str | None = field(string, "0+", null="0+", default=None)
    """The member's rack, or null."""
    member_epoch: int = field(int32, "0+")
    """The member's epoch."""
    client_id: str = field(string, "0+")
    """The member's client id."""
    client_host: str = field(string, "0+")
    """The member's host address."""
    subscribed_topic_names: tuple[str, ...] = field([string], "0+")
    """The subscribed topics."""
    assignment: Assignment = field(Assignment, "0+")
    """The partitions that the member owns."""


class DescribedGroup(ResponsePart):
    error_code: int = field(int16, "0+")
    """0, or why the group cannot be described."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""
    group_id: str = field(string, "0+")
    """The group."""
    group_state: str = field(string, "0+")
    """The group's state: Empty, Stable or Dead."""
    group_epoch: int = field(int32, "0+")
    """Grows with every change of members or subscriptions."""
    assignment_epoch: int = field(int32, "0+")
    """The group epoch that the target assignment was made for."""
    assignor_name: str = field(string, "0+")
    """The assignor in use."""
    members: tuple[Member, ...] = field([Member], "0+")
    """Its members."""
    authorized_operations: int = field(int32, "0+", default=-(2**31))
    """The caller's authorized operations on the group, as a bit field; -2**31 if not requested."""


class ShareGroupDescribeResponse(Response, key=77, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    groups: tuple[DescribedGroup, ...] = field([DescribedGroup], "0+")
    """The groups, one entry each."""
