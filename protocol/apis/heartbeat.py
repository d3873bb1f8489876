"""Heartbeat (12): still here; is there news?

Sent to: the group's coordinator, every heartbeat interval while the member is in a generation.

Errors
    REBALANCE_IN_PROGRESS        the news: give back what must be given back, and join again
    ILLEGAL_GENERATION           the group went on without this member: its partitions are lost, join again
    UNKNOWN_MEMBER_ID            the member was given up: its partitions are lost, join again with an empty id
    FENCED_INSTANCE_ID           another process uses the same static name: fatal
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE   find the coordinator again, stay a member
    COORDINATOR_LOAD_IN_PROGRESS stay a member, try again after a while
    GROUP_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.primitives import int16, int32, string
from kohort.protocol.schema import Request, Response, field


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    group_id: str = field(string, "0+")
    """The group."""
    generation_id: int = field(int32, "0+")
    """The generation that the member believes to be in."""
    member_id: str = field(string, "0+")
    """The member's id as the coordinator gave it; empty before it has one."""
    group_instance_id: str | None = field(string, "3+", null="3+", default=None)
    """The static member's own name (KIP-345), or null for a dynamic member."""


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
