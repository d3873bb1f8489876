"""OffsetCommit (8): remember where the group has read to.

Sent to: the group's coordinator. What is committed is the *next* offset to read. Version 9 serves KIP-848 groups,
version 10 names topics by id.

Errors (by partition)
    REBALANCE_IN_PROGRESS           the commit did not count: rejoin, and commit again if still the owner
    ILLEGAL_GENERATION              fenced: the partitions may have a new owner, do not commit again
    UNKNOWN_MEMBER_ID               fenced likewise: the member is not in the group any more
    FENCED_INSTANCE_ID              another process uses the same static name: fatal
    STALE_MEMBER_EPOCH              KIP-848 only: try again with the epoch of the next heartbeat
    GROUP_ID_NOT_FOUND              no such group (version 9 on)
    OFFSET_METADATA_TOO_LARGE       the text is longer than the broker keeps
    INVALID_COMMIT_OFFSET_SIZE      the commit as a whole is larger than the broker keeps
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID   deleted, or not yet known there
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR     find the coordinator, commit again
    COORDINATOR_LOAD_IN_PROGRESS    commit again after a while
    TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED   fatal
"""

from uuid import UUID

from kohort.protocol.primitives import int16, int32, int64, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class OffsetCommitRequestPartition(RequestPart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    committed_offset: int = field(int64, "0+")
    """The next offset to read: one past the last record dealt with."""
    committed_leader_epoch: int = field(int32, "6+", default=-1, ignorable=True)
    """The leader's epoch of the last record consumed, for truncation checks (KIP-320); -1 if unknown."""
    commit_timestamp: int = field(int64, "1", default=-1)
    """When the commit was made, in ms since the epoch; -1 lets the broker say."""
    committed_metadata: str | None = field(string, "0+", null="0+")
    """Any text of the client's own, kept with the offset."""


class OffsetCommitRequestTopic(RequestPart):
    name: str = field(string, "0-9", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "10+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[OffsetCommitRequestPartition, ...] = field([OffsetCommitRequestPartition], "0+")
    """The partitions, one entry each."""


class OffsetCommitRequest(Request, key=8, versions="0-10", flexible="8+"):
    group_id: str = field(string, "0+")
    """The group."""
    generation_id_or_member_epoch: int = field(int32, "1+", default=-1, ignorable=True)
    """The classic generation or, in a KIP-848 group, the member's epoch; -1 commits from outside a group."""
    member_id: str = field(string, "1+", ignorable=True)
    """The member's id as the coordinator gave it; empty before it has one."""
    group_instance_id: str | None = field(string, "7+", null="7+", default=None)
    """The static member's own name (KIP-345), or null for a dynamic member."""
    retention_time_ms: int = field(int64, "2-4", default=-1, ignorable=True)
    """How long to keep the offsets; -1 leaves it to the broker."""
    topics: tuple[OffsetCommitRequestTopic, ...] = field([OffsetCommitRequestTopic], "0+")
    """The topics, one entry each."""


class OffsetCommitResponsePartition(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""


class OffsetCommitResponseTopic(ResponsePart):
    name: str = field(string, "0-9", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "10+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[OffsetCommitResponsePartition, ...] = field([OffsetCommitResponsePartition], "0+")
    """The partitions, one entry each."""


class OffsetCommitResponse(Response, key=8, versions="0-10", flexible="8+"):
    throttle_time_ms: int = field(int32, "3+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    topics: tuple[OffsetCommitResponseTopic, ...] = field([OffsetCommitResponseTopic], "0+")
    """The topics, one entry each."""
