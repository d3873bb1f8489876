"""ListGroups (16): lists the groups that the broker coordinates.

Sent to: every broker. A response has only the groups of its broker.

Errors
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE   retry this broker after a backoff
    CLUSTER_AUTHORIZATION_FAILED   the caller sees only groups it may describe, or none
"""

from kohort.protocol.primitives import int16, int32, string
from kohort.protocol.schema import Request, Response, ResponsePart, field


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    states_filter: tuple[str, ...] = field([string], "4+")
    """Only groups in these states; empty means any (KIP-518)."""
    types_filter: tuple[str, ...] = field([string], "5+")
    """Only groups of these types (`classic`, `consumer`, `share`, ...); empty means any (KIP-848)."""


class ListedGroup(ResponsePart):
    group_id: str = field(string, "0+")
    """The group."""
    protocol_type: str = field(string, "0+")
    """The protocol type: `consumer` for consumers; empty for a group that only stores offsets."""
    group_state: str = field(string, "4+", ignorable=True)
    """The group's state: Empty, PreparingRebalance, CompletingRebalance, Stable or Dead. KIP-848 adds Assigning and
    Reconciling."""
    group_type: str = field(string, "5+", ignorable=True)
    """The group's protocol: `classic`, `consumer`, `share`, ..."""


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    groups: tuple[ListedGroup, ...] = field([ListedGroup], "0+")
    """The groups that this broker coordinates."""
