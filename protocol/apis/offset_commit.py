"""OffsetCommit (8): commits offsets of the group.

Sent to: the group's coordinator. A committed offset is the *next* offset to read. Version 9 adds KIP-848 groups,
version 10 names topics by id.

Errors (by partition)
    REBALANCE_IN_PROGRESS           not committed: rejoin, and commit again if the partition is still owned
    ILLEGAL_GENERATION              fenced: the partitions may have another owner, do not commit again
    UNKNOWN_MEMBER_ID               fenced: the member is not in the group any more
    FENCED_INSTANCE_ID              another process uses the same group instance id: fatal
    STALE_MEMBER_EPOCH              KIP-848 only: retry with the epoch of the next heartbeat
    GROUP_ID_NOT_FOUND              no such group (version 9 on)
    OFFSET_METADATA_TOO_LARGE       the metadata is longer than the broker allows
    INVALID_COMMIT_OFFSET_SIZE      the whole commit is larger than the broker allows
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID   deleted, or not known to the broker yet
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR     send FindCoordinator, commit again
    COORDINATOR_LOAD_IN_PROGRESS    commit again after a backoff
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
    """The leader epoch of the last consumed record, for truncation detection (KIP-320); -1 if unknown."""
    commit_timestamp: int = field(int64, "1", default=-1)
    """The commit time in ms since the epoch; -1 means the broker's clock."""
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
    """The classic generation or, in a KIP-848 group, the member's epoch; -1 from a client that is not a member."""
    member_id: str = field(string, "1+", ignorable=True)
    """The member id that the coordinator assigned; empty before the first JoinGroup response."""
    group_instance_id: str | None = field(string, "7+", null="7+", default=None)
    """The group instance id of a static member (KIP-345), or null for a dynamic member."""
    retention_time_ms: int = field(int64, "2-4", default=-1, ignorable=True)
    """Milliseconds to keep the offsets; -1 means the broker's setting."""
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
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    topics: tuple[OffsetCommitResponseTopic, ...] = field([OffsetCommitResponseTopic], "0+")
    """The topics, one entry each."""
