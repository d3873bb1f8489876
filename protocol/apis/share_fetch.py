"""ShareFetch (78): acquires records of a share group, and carries acknowledgements (KIP-932).

Sent to: each partition's leader. The request has no offsets, because the leader selects the records. Version 2 adds the
acquire mode (KIP-1206) and renewals (KIP-1222). Version 0 is the early-access form.

Errors (of the session at the top; by partition for the fetch and, apart from it, for the acknowledgement)
    SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH   open a new session; unsent acknowledgements are void
    SHARE_SESSION_LIMIT_REACHED   the broker has no room for a session: retry with epoch 0
    INVALID_RECORD_STATE          the acknowledgement had no effect: the records are not acquired by this member
    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, KAFKA_STORAGE_ERROR   refresh metadata (or `current_leader`)
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID   deleted, or not known to the broker yet: refresh metadata
    COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   the partition's share state is not loaded: fetch again
    CORRUPT_MESSAGE               the broker's copy fails its checksum
    UNSUPPORTED_VERSION           share groups are disabled on this cluster: fatal
    INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   fatal
"""

from uuid import UUID

from kohort.protocol.apis.share_acknowledge import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint
from kohort.protocol.primitives import boolean, int8, int16, int32, int64, records, string, uuid
from kohort.protocol.schema import Buffer, Request, RequestPart, Response, ResponsePart, field


class FetchPartition(RequestPart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    partition_max_bytes: int = field(int32, "0")
    """The maximum number of bytes of this partition in the response; 0 to acknowledge only."""
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = field([AcknowledgementBatch], "0+")
    """The acknowledgements, in order of offset."""


class FetchTopic(RequestPart):
    topic_id: UUID = field(uuid, "0+")
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[FetchPartition, ...] = field([FetchPartition], "0+")
    """The partitions to add to the session, or to acknowledge records of."""


class ForgottenTopic(RequestPart):
    topic_id: UUID = field(uuid, "0+")
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[int, ...] = field([int32], "0+")
    """The partitions to drop."""


class ShareFetchRequest(Request, key=78, versions="0-2", flexible="0+"):
    group_id: str | None = field(string, "0+", null="0+", default=None)
    """The group."""
    member_id: str | None = field(string, "0+", null="0+")
    """The member's id."""
    share_session_epoch: int = field(int32, "0+")
    """The session epoch, which grows by one with each request; 0 opens a session, -1 closes it."""
    max_wait_ms: int = field(int32, "0+")
    """Milliseconds the broker may wait for `min_bytes`."""
    min_bytes: int = field(int32, "0+")
    """The minimum number of bytes in the response, unless `max_wait_ms` passes first."""
    max_bytes: int = field(int32, "0+", default=2**31 - 1)
    """The maximum number of bytes in the response."""
    max_records: int = field(int32, "1+")
    """The maximum number of acquired records. In acquire mode 0 the broker exceeds it up to the end of a batch."""
    batch_size: int = field(int32, "1+")
    """The preferred number of records in one range of acquired records."""
    share_acquire_mode: int = field(int8, "2+", default=0, ignorable=True)
    """0 acquires up to the end of a batch, 1 at most `max_records` (KIP-1206)."""
    is_renew_ack: bool = field(boolean, "2+", default=False)
    """True permits renewals among the acknowledgements (KIP-1222)."""
    topics: tuple[FetchTopic, ...] = field([FetchTopic], "0+")
    """The partitions to add to the session, or to acknowledge records of."""
    forgotten_topics_data: tuple[ForgottenTopic, ...] = field([ForgottenTopic], "0+")
    """The partitions to remove from the session."""


class AcquiredRecords(ResponsePart):
    first_offset: int = field(int64, "0+")
    """The first acquired offset."""
    last_offset: int = field(int64, "0+")
    """The last acquired offset, inclusive."""
    delivery_count: int = field(int16, "0+")
    """The number of acquisitions of these records, with this one."""


class PartitionData(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    error_code: int = field(int16, "0+")
    """0, or why the fetch failed."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message of the fetch, or null."""
    acknowledge_error_code: int = field(int16, "0+")
    """0, or why the acknowledgements had no effect."""
    acknowledge_error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message of the acknowledgements, or null."""
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "0+")
    """The partition's current leader. It has a meaning only with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH."""
    records: Buffer | None = field(records, "0+", null="0")
    """Whole record batches, which may have records that are not acquired."""
    acquired_records: tuple[AcquiredRecords, ...] = field([AcquiredRecords], "0+")
    """The acquired ranges, in order of offset."""


class ShareFetchableTopicResponse(ResponsePart):
    topic_id: UUID = field(uuid, "0+")
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[PartitionData, ...] = field([PartitionData], "0+")
    """The partitions, one entry each."""


class ShareFetchResponse(Response, key=78, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or why the whole request failed."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""
    acquisition_lock_timeout_ms: int = field(int32, "1+")
    """Milliseconds for which the acquired records are locked; 0 with an error."""
    responses: tuple[ShareFetchableTopicResponse, ...] = field([ShareFetchableTopicResponse], "0+")
    """The topics, one entry each. A partition without changes is absent."""
    node_endpoints: tuple[NodeEndpoint, ...] = field([NodeEndpoint], "0+")
    """The addresses of the current leaders in the response (KIP-951)."""
