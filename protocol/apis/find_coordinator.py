"""FindCoordinator (10): finds the coordinator of a group or of a transactional id.

Sent to: any broker. From version 4 on the request has several keys, each with its own error.

Errors
    COORDINATOR_NOT_AVAILABLE               no coordinator yet: retry after a backoff
    COORDINATOR_LOAD_IN_PROGRESS            still loading: retry after a backoff
    INVALID_GROUP_ID                        the group id is invalid: fatal
    GROUP_AUTHORIZATION_FAILED              the caller lacks DESCRIBE on the group: fatal
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED   the caller lacks DESCRIBE on the transactional id: fatal
    INVALID_REQUEST                         the broker does not support the key type in this version
"""

from kohort.protocol.primitives import int8, int16, int32, string
from kohort.protocol.schema import Request, Response, ResponsePart, field


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    key: str = field(string, "0-3")
    """The coordinator key: a group id or a transactional id."""
    key_type: int = field(int8, "1+", default=0)
    """0 a group, 1 a transaction, 2 a share group's partition (`group:topic id:partition`)."""
    coordinator_keys: tuple[str, ...] = field([string], "4+")
    """The groups or transactional ids to look up, several at once (KIP-699)."""


class Coordinator(ResponsePart):
    key: str = field(string, "4+")
    """The requested key."""
    node_id: int = field(int32, "4+")
    """The coordinator's broker id; -1 with an error."""
    host: str = field(string, "4+")
    """The name or address to connect to."""
    port: int = field(int32, "4+")
    """The port to connect to."""
    error_code: int = field(int16, "4+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "4+", null="4+", ignorable=True)
    """The error message, or null."""


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0-3")
    """0, or what went wrong."""
    error_message: str | None = field(string, "1-3", null="1-3", ignorable=True)
    """The error message, or null."""
    node_id: int = field(int32, "0-3")
    """The coordinator's broker id."""
    host: str = field(string, "0-3")
    """The name or address to connect to."""
    port: int = field(int32, "0-3")
    """The port to connect to."""
    coordinators: tuple[Coordinator, ...] = field([Coordinator], "4+")
    """The coordinators, one for each key."""
