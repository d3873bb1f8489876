"""ListGroups (16): which groups does this broker coordinate?

Sent to: every broker, for each knows its own groups only.

Errors
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE   retry this broker after a while
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
    """The kind of group: `consumer` for consumers; empty where only offsets are kept."""
    group_state: str = field(string, "4+", ignorable=True)
    """The group's state: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead (classic); Assigning, Reconciling
    (KIP-848)."""
    group_type: str = field(string, "5+", ignorable=True)
    """Which protocol it runs: `classic`, `consumer`, `share`, ..."""


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    groups: tuple[ListedGroup, ...] = field([ListedGroup], "0+")
    """The groups that this broker coordinates."""
