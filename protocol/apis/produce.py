"""Produce (0): appends record batches.

Sent to: each partition's leader. With `acks=0` there is no response. Versions 0 to 2 have message sets,
version 3 and later have record batches. Version 13 names topics by id.

Errors (by partition)
    NOT_LEADER_OR_FOLLOWER, LEADER_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
                                    refresh metadata (or `current_leader`), send again
    NOT_ENOUGH_REPLICAS             not written: send again
    NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT   perhaps written: a retry may duplicate the records
    CORRUPT_MESSAGE                 damaged in transit: send again
    MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE   split the batch, or fail it
    INVALID_RECORD, INVALID_TIMESTAMP          `record_errors` lists the invalid records
    INVALID_REQUIRED_ACKS           acks is not -1, 0 or 1
    UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_COMPRESSION_TYPE   the format is too new for this version or topic
    OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID   idempotent producers only
    INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS,
    TRANSACTION_ABORTABLE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED                   transactional producers only
    TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED                       fatal
"""

from typing import TYPE_CHECKING
from uuid import UUID

from kohort.protocol.primitives import int16, int32, int64, records, string, uuid
from kohort.protocol.schema import Buffer, Request, RequestPart, Response, ResponsePart, field

if TYPE_CHECKING:
    from kohort.fastpath._memory import Pieces


class PartitionProduceData(RequestPart):
    index: int = field(int32, "0+")
    """The partition's number within its topic."""
    records: "Buffer | Pieces | None" = field(records, "0+", null="0+")
    """The record batches to append."""


class TopicProduceData(RequestPart):
    name: str = field(string, "0-12", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "13+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partition_data: tuple[PartitionProduceData, ...] = field([PartitionProduceData], "0+")
    """The partitions to write to."""


class ProduceRequest(Request, key=0, versions="0-13", flexible="9+"):
    transactional_id: str | None = field(string, "3+", null="3+", default=None)
    """The producer's transactional id, or null outside transactions."""
    acks: int = field(int16, "0+")
    """Replicas that must have the records before the response: 0 none (no response is sent), 1 the leader, -1 all in
    sync."""
    timeout_ms: int = field(int32, "0+")
    """Milliseconds the leader waits for its followers."""
    topic_data: tuple[TopicProduceData, ...] = field([TopicProduceData], "0+")
    """The topics to write to."""


class BatchIndexAndErrorMessage(ResponsePart):
    batch_index: int = field(int32, "8+")
    """The index of the record within its batch, from 0."""
    batch_index_error_message: str | None = field(string, "8+", null="8+", default=None)
    """The error message of the record, or null."""


class LeaderIdAndEpoch(ResponsePart):
    leader_id: int = field(int32, "10+", default=-1)
    """The leader's broker id; -1 where it is unknown."""
    leader_epoch: int = field(int32, "10+", default=-1)
    """The leader's epoch; -1 where it is unknown."""


class PartitionProduceResponse(ResponsePart):
    index: int = field(int32, "0+")
    """The partition's number within its topic."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    base_offset: int = field(int64, "0+")
    """The offset that the first record got."""
    log_append_time_ms: int = field(int64, "2+", default=-1, ignorable=True)
    """The broker's append time in ms if the topic uses LogAppendTime; -1 otherwise."""
    log_start_offset: int = field(int64, "5+", default=-1, ignorable=True)
    """The log start offset; -1 if unknown."""
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = field([BatchIndexAndErrorMessage], "8+", ignorable=True)
    """The records for which the batch was refused (KIP-467)."""
    error_message: str | None = field(string, "8+", null="8+", default=None, ignorable=True)
    """The error message, or null."""
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "10+", tag=0, tagged="10+")
    """The partition's current leader, set with NOT_LEADER_OR_FOLLOWER (KIP-951)."""


class TopicProduceResponse(ResponsePart):
    name: str = field(string, "0-12", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "13+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partition_responses: tuple[PartitionProduceResponse, ...] = field([PartitionProduceResponse], "0+")
    """The partitions, one entry each."""


class NodeEndpoint(ResponsePart):
    node_id: int = field(int32, "10+")
    """The broker's id."""
    host: str = field(string, "10+")
    """The name or address to connect to."""
    port: int = field(int32, "10+")
    """The port to connect to."""
    rack: str | None = field(string, "10+", null="10+", default=None)
    """The broker's rack, or null."""


class ProduceResponse(Response, key=0, versions="0-13", flexible="9+"):
    responses: tuple[TopicProduceResponse, ...] = field([TopicProduceResponse], "0+")
    """The topics, one entry each. In a fetch session only changed topics are present."""
    throttle_time_ms: int = field(int32, "1+", default=0, ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    node_endpoints: tuple[NodeEndpoint, ...] = field([NodeEndpoint], "10+", tag=0, tagged="10+")
    """The addresses of the brokers in `current_leader`, which save a Metadata request (KIP-951)."""
