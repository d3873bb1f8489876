"""TxnOffsetCommit (28): commits the group's offsets with the transaction.

Sent to: the group's coordinator, after AddOffsetsToTxn (not needed from version 5 on, KIP-890). From version 3 on
the member's generation fences it, as in OffsetCommit (KIP-447).

Errors (by partition)
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, commit again
    ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID   fenced: abort, the partitions may have another owner
    STALE_MEMBER_EPOCH            the same for a group of the consumer protocol (version 6 on)
    GROUP_ID_NOT_FOUND, UNKNOWN_TOPIC_ID   the group or the topic is not there (version 6 on)
    INVALID_PRODUCER_EPOCH, PRODUCER_FENCED   a newer producer instance runs: fatal
    UNKNOWN_TOPIC_OR_PARTITION    not known to the broker yet: commit again
    OFFSET_METADATA_TOO_LARGE, INVALID_COMMIT_OFFSET_SIZE   commit less metadata, or fewer partitions
    TRANSACTION_ABORTABLE         abort the transaction (version 4 on)
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   fatal
"""

from uuid import UUID

from kohort.protocol.primitives import int16, int32, int64, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class TxnOffsetCommitRequestPartition(RequestPart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    committed_offset: int = field(int64, "0+")
    """The next offset to read: one past the last record dealt with."""
    committed_leader_epoch: int = field(int32, "2+", default=-1, ignorable=True)
    """The leader epoch of the last consumed record, for truncation detection (KIP-320); -1 if unknown."""
    committed_metadata: str | None = field(string, "0+", null="0+")
    """Any text of the client's own, kept with the offset."""


class TxnOffsetCommitRequestTopic(RequestPart):
    name: str = field(string, "0-5", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "6+", ignorable=True)
    """The topic's id (KIP-1319)."""
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = field([TxnOffsetCommitRequestPartition], "0+")
    """The partitions, one entry each."""


class TxnOffsetCommitRequest(Request, key=28, versions="0-6", flexible="3+"):
    transactional_id: str = field(string, "0+")
    """The producer's transactional id."""
    group_id: str = field(string, "0+")
    """The group."""
    producer_id: int = field(int64, "0+")
    """The producer's id."""
    producer_epoch: int = field(int16, "0+")
    """The producer's epoch, which fences older instances of the same transactional id."""
    generation_id_or_member_epoch: int = field(int32, "3+", default=-1)
    """The member's generation, or its epoch in the consumer protocol (KIP-848); -1 disables fencing."""
    member_id: str = field(string, "3+", default="")
    """The member id; empty disables fencing."""
    group_instance_id: str | None = field(string, "3+", null="3+", default=None)
    """The group instance id of a static member (KIP-345), or null for a dynamic member."""
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = field([TxnOffsetCommitRequestTopic], "0+")
    """The topics, one entry each."""


class TxnOffsetCommitResponsePartition(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""


class TxnOffsetCommitResponseTopic(ResponsePart):
    name: str = field(string, "0-5", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "6+", ignorable=True)
    """The topic's id (KIP-1319)."""
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = field([TxnOffsetCommitResponsePartition], "0+")
    """The partitions, one entry each."""


class TxnOffsetCommitResponse(Response, key=28, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = field([TxnOffsetCommitResponseTopic], "0+")
    """The topics, one entry each."""
