"""DeleteGroups (42): deletes groups without members, with their committed offsets.

Sent to: the coordinator of each requested group.

Errors (by group)
    NON_EMPTY_GROUP               the group has members
    GROUP_ID_NOT_FOUND            already deleted
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, retry
    GROUP_DELETION_FAILED         not deleted, for the reason in the message
    INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.primitives import int16, int32, string
from kohort.protocol.schema import Request, Response, ResponsePart, field


class DeleteGroupsRequest(Request, key=42, versions="0-3", flexible="2+"):
    groups_names: tuple[str, ...] = field([string], "0+")
    """The groups to delete."""


class DeletableGroupResult(ResponsePart):
    group_id: str = field(string, "0+")
    """The group."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "3+", null="3+", default=None, ignorable=True)
    """The error message, or null."""


class DeleteGroupsResponse(Response, key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    results: tuple[DeletableGroupResult, ...] = field([DeletableGroupResult], "0+")
    """The groups, one entry each."""
