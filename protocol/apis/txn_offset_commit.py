"""TxnOffsetCommit (28): commit the group's offsets when my transaction commits.

Sent to: the group's coordinator, after AddOffsetsToTxn (from version 5 on it does both, KIP-890). From version 3 on the
member's generation fences it as it does OffsetCommit (KIP-447).

Errors (by partition)
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   find the coordinator, commit again
    ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID   fenced: abort, the partitions have another owner
    INVALID_PRODUCER_EPOCH, PRODUCER_FENCED   a newer instance runs: stop
    UNKNOWN_TOPIC_OR_PARTITION    not yet known there: commit again
    OFFSET_METADATA_TOO_LARGE, INVALID_COMMIT_OFFSET_SIZE   commit less text, or fewer partitions
    TRANSACTION_ABORTABLE         abort and begin anew (version 4 on)
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   fatal
"""

from kohort.protocol.primitives import int16, int32, int64, string
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class TxnOffsetCommitRequestPartition(RequestPart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    committed_offset: int = field(int64, "0+")
    """The next offset to read: one past the last record dealt with."""
    committed_leader_epoch: int = field(int32, "2+", default=-1, ignorable=True)
    """The leader's epoch of the last record consumed, for truncation checks (KIP-320); -1 if unknown."""
    committed_metadata: str | None = field(string, "0+", null="0+")
    """Any text of the client's own, kept with the offset."""


class TxnOffsetCommitRequestTopic(RequestPart):
    name: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = field([TxnOffsetCommitRequestPartition], "0+")
    """The partitions, one entry each."""


class TxnOffsetCommitRequest(Request, key=28, versions="0-5", flexible="3+"):
    transactional_id: str = field(string, "0+")
    """The producer's transactional id."""
    group_id: str = field(string, "0+")
    """The group."""
    producer_id: int = field(int64, "0+")
    """The producer's id."""
    producer_epoch: int = field(int16, "0+")
    """The producer's epoch, which fences older instances of the same transactional id."""
    generation_id: int = field(int32, "3+", default=-1)
    """The member's generation; -1 does without fencing."""
    member_id: str = field(string, "3+", default="")
    """The member's id; empty does without fencing."""
    group_instance_id: str | None = field(string, "3+", null="3+", default=None)
    """The static member's own name (KIP-345), or null for a dynamic member."""
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = field([TxnOffsetCommitRequestTopic], "0+")
    """The topics, one entry each."""


class TxnOffsetCommitResponsePartition(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""


class TxnOffsetCommitResponseTopic(ResponsePart):
    name: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = field([TxnOffsetCommitResponsePartition], "0+")
    """The partitions, one entry each."""


class TxnOffsetCommitResponse(Response, key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(int32, "0+")
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = field([TxnOffsetCommitResponseTopic], "0+")
    """The topics, one entry each."""
