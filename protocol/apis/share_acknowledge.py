"""ShareAcknowledge (79): acknowledges acquired records without a fetch (KIP-932).

Sent to: each partition's leader, in the session that acquired the records. Version 2 adds renewals (KIP-1222). Version
0 is the early-access form.

Errors (of the session at the top; by partition)
    SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH   open a new session; the acknowledgements are void
    INVALID_RECORD_STATE          no effect: the records are not acquired by this member
    INVALID_REQUEST               the ranges overlap or are out of order, or an offset was never acquired
    NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH   no effect: the records are available again
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID   the topic was deleted, or the leader lost its share state
    COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   the state could not be written: retry
    GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   fatal
"""

from uuid import UUID

from kohort.protocol.primitives import boolean, int8, int16, int32, int64, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class AcknowledgementBatch(RequestPart):
    first_offset: int = field(int64, "0+")
    """The first offset of the range."""
    last_offset: int = field(int64, "0+")
    """The last offset of the range, inclusive."""
    acknowledge_types: tuple[int, ...] = field([int8], "0+")
    """One type for the range, or one for each offset: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""


class AcknowledgePartition(RequestPart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = field([AcknowledgementBatch], "0+")
    """The acknowledgements, in order of offset."""


class AcknowledgeTopic(RequestPart):
    topic_id: UUID = field(uuid, "0+")
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[AcknowledgePartition, ...] = field([AcknowledgePartition], "0+")
    """The partitions, one entry each."""


class ShareAcknowledgeRequest(Request, key=79, versions="0-2", flexible="0+"):
    group_id: str | None = field(string, "0+", null="0+", default=None)
    """The group."""
    member_id: str | None = field(string, "0+", null="0+")
    """The member's id."""
    share_session_epoch: int = field(int32, "0+")
    """The session epoch, which grows by one with each request; -1 closes the session."""
    is_renew_ack: bool = field(boolean, "2+", default=False)
    """True permits renewals among the acknowledgements (KIP-1222)."""
    topics: tuple[AcknowledgeTopic, ...] = field([AcknowledgeTopic], "0+")
    """The topics with records to acknowledge."""


class LeaderIdAndEpoch(ResponsePart):
    leader_id: int = field(int32, "0+")
    """The leader's broker id; -1 where it is unknown."""
    leader_epoch: int = field(int32, "0+")
    """The leader's epoch."""


class PartitionData(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    error_code: int = field(int16, "0+")
    """0, or why the acknowledgements had no effect."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "0+")
    """The partition's current leader. It has a meaning only with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH."""


class ShareAcknowledgeTopicResponse(ResponsePart):
    topic_id: UUID = field(uuid, "0+")
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[PartitionData, ...] = field([PartitionData], "0+")
    """The partitions of the request, one entry each."""


class NodeEndpoint(ResponsePart):
    node_id: int = field(int32, "0+")
    """The broker's id."""
    host: str = field(string, "0+")
    """The broker's host name or address."""
    port: int = field(int32, "0+")
    """The broker's port."""
    rack: str | None = field(string, "0+", null="0+", default=None)
    """The broker's rack, or null."""


class ShareAcknowledgeResponse(Response, key=79, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or why the whole request failed."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""
    acquisition_lock_timeout_ms: int = field(int32, "2+", ignorable=True)
    """Milliseconds for which renewed records are locked."""
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = field([ShareAcknowledgeTopicResponse], "0+")
    """The topics of the request, one entry each."""
    node_endpoints: tuple[NodeEndpoint, ...] = field([NodeEndpoint], "0+")
    """The addresses of the current leaders in the response (KIP-951)."""
