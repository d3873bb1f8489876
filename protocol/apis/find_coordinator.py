"""FindCoordinator (10): which broker coordinates this group, or this transactional id?

Sent to: any broker. From version 4 on several keys at once, each with its own error.

Errors
    COORDINATOR_NOT_AVAILABLE               none elected yet: retry after a while
    COORDINATOR_LOAD_IN_PROGRESS            still loading: retry after a while
    INVALID_GROUP_ID                        no group can be called so: give up
    GROUP_AUTHORIZATION_FAILED              the caller may not see the group: give up
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED   the same for a transactional id
    INVALID_REQUEST                         a key type the broker does not know in this version
"""

from kohort.protocol.primitives import int8, int16, int32, string
from kohort.protocol.schema import Request, Response, ResponsePart, field


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    key: str = field(string, "0-3")
    """What is coordinated: a group id or a transactional id."""
    key_type: int = field(int8, "1+", default=0)
    """0 a group, 1 a transaction, 2 a share group's partition (`group:topic id:partition`)."""
    coordinator_keys: tuple[str, ...] = field([string], "4+")
    """The groups or transactional ids to look up, several at once (KIP-699)."""


class Coordinator(ResponsePart):
    key: str = field(string, "4+")
    """The key that this answer is for."""
    node_id: int = field(int32, "4+")
    """The coordinator's broker id; -1 with an error."""
    host: str = field(string, "4+")
    """The name or address to connect to."""
    port: int = field(int32, "4+")
    """The port to connect to."""
    error_code: int = field(int16, "4+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "4+", null="4+", ignorable=True)
    """What went wrong in words, or null."""


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0-3")
    """0, or what went wrong."""
    error_message: str | None = field(string, "1-3", null="1-3", ignorable=True)
    """What went wrong in words, or null."""
    node_id: int = field(int32, "0-3")
    """The coordinator's broker id."""
    host: str = field(string, "0-3")
    """The name or address to connect to."""
    port: int = field(int32, "0-3")
    """The port to connect to."""
    coordinators: tuple[Coordinator, ...] = field([Coordinator], "4+")
    """One answer a key."""
