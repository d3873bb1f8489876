"""Fetch (1): returns record batches from an offset on.

Sent to: each partition's leader, or the preferred read replica for the client's rack (KIP-392). Version 4
adds isolation levels, 7 sessions, 12 flexible fields, 13 topic ids, 16 the new leader's address with the error.

Errors (of the session at the top; by partition)
    OFFSET_OUT_OF_RANGE             before the log start or past the log end: apply the reset policy
    NOT_LEADER_OR_FOLLOWER, LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR
                                    refresh metadata (or `current_leader`), fetch again
    FENCED_LEADER_EPOCH             the client's metadata is stale: refresh, and check for truncation
    UNKNOWN_LEADER_EPOCH            the broker is behind: fetch again
    OFFSET_NOT_AVAILABLE            a new leader does not know its high watermark yet: fetch again
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID   deleted or re-created: refresh metadata
    FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR
                                    open a new session with a full request
    CORRUPT_MESSAGE                 the broker's copy fails its checksum
    UNSUPPORTED_COMPRESSION_TYPE    zstd needs version 10
    OFFSET_MOVED_TO_TIERED_STORAGE  followers only
    TOPIC_AUTHORIZATION_FAILED      fatal
"""

from uuid import UUID

from kohort.protocol.primitives import int8, int16, int32, int64, records, string, uuid
from kohort.protocol.schema import Buffer, Request, RequestPart, Response, ResponsePart, field


class ReplicaState(RequestPart):
    replica_id: int = field(int32, "15+", default=-1)
    """The follower's broker id; -1 from a client."""
    replica_epoch: int = field(int64, "15+", default=-1)
    """The epoch of the follower that sends the request; -1 if unknown."""


class FetchPartition(RequestPart):
    partition: int = field(int32, "0+")
    """The partition's number within its topic."""
    current_leader_epoch: int = field(int32, "9+", default=-1, ignorable=True)
    """The leader epoch in the client's metadata. The broker uses it to detect a stale client or leader (KIP-320)."""
    fetch_offset: int = field(int64, "0+")
    """The offset to read from."""
    last_fetched_epoch: int = field(int32, "12+", default=-1)
    """The epoch of the last record fetched, for the broker's truncation check; -1 where it is unknown."""
    log_start_offset: int = field(int64, "5+", default=-1, ignorable=True)
    """A follower's log start; -1 from a client."""
    partition_max_bytes: int = field(int32, "0+")
    """The maximum number of bytes of this partition in the response."""
    replica_directory_id: UUID = field(uuid, "17+", ignorable=True, tag=0, tagged="17+")
    """The directory of a follower's replica."""
    high_watermark: int = field(int64, "18+", default=2**63 - 1, ignorable=True, tag=1, tagged="18+")
    """The high watermark known to the follower (KIP-1166). If the leader's is higher, it responds at once."""


class FetchTopic(RequestPart):
    topic: str = field(string, "0-12", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "13+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[FetchPartition, ...] = field([FetchPartition], "0+")
    """The partitions to fetch, with their offsets."""


class ForgottenTopic(RequestPart):
    topic: str = field(string, "7-12", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "13+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[int, ...] = field([int32], "7+")
    """The partitions to drop."""


class FetchRequest(Request, key=1, versions="0-18", flexible="12+"):
    cluster_id: str | None = field(string, "12+", null="12+", default=None, ignorable=True, tag=0, tagged="12+")
    """The cluster id that the client expects, or null."""
    replica_id: int = field(int32, "0-14", default=-1)
    """The follower's broker id; -1 from a client."""
    replica_state: ReplicaState = field(ReplicaState, "15+", tag=1, tagged="15+")
    """The identity of the follower that sends the request (KIP-903)."""
    max_wait_ms: int = field(int32, "0+")
    """Milliseconds the broker may wait for `min_bytes`."""
    min_bytes: int = field(int32, "0+")
    """The minimum number of bytes in the response, unless `max_wait_ms` passes first."""
    max_bytes: int = field(int32, "3+", default=2**31 - 1, ignorable=True)
    """The maximum number of bytes in the response. The first batch is returned even if it is larger."""
    isolation_level: int = field(int8, "4+", default=0, ignorable=True)
    """0 sees every record, 1 only those of committed transactions (KIP-98)."""
    session_id: int = field(int32, "7+", default=0, ignorable=True)
    """The fetch session's id (KIP-227); 0 opens a session, or means none."""
    session_epoch: int = field(int32, "7+", default=-1, ignorable=True)
    """The session epoch, which grows by one with each request; 0 opens a session, -1 disables it."""
    topics: tuple[FetchTopic, ...] = field([FetchTopic], "0+")
    """The partitions to fetch; in a session only those that changed."""
    forgotten_topics_data: tuple[ForgottenTopic, ...] = field([ForgottenTopic], "7+")
    """The partitions to remove from the session."""
    rack_id: str = field(string, "11+", default="", ignorable=True)
    """The client's rack, from which the leader selects a near replica (KIP-392)."""


class EpochEndOffset(ResponsePart):
    epoch: int = field(int32, "12+", default=-1)
    """The largest epoch that is not above the requested one; -1 if there is none."""
    end_offset: int = field(int64, "12+", default=-1)
    """The end offset of that epoch; -1 if there is none."""


class LeaderIdAndEpoch(ResponsePart):
    leader_id: int = field(int32, "12+", default=-1)
    """The leader's broker id; -1 where it is unknown."""
    leader_epoch: int = field(int32, "12+", default=-1)
    """The leader's epoch; -1 where it is unknown."""


class SnapshotId(ResponsePart):
    end_offset: int = field(int64, "0+", default=-1)
    """One past the last offset in the snapshot."""
    epoch: int = field(int32, "0+", default=-1)
    """The epoch of the snapshot's last record."""


class AbortedTransaction(ResponsePart):
    producer_id: int = field(int64, "4+")
    """The producer's id."""
    first_offset: int = field(int64, "4+")
    """The first offset of the aborted transaction."""


class PartitionData(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    high_watermark: int = field(int64, "0+")
    """One past the last offset that is replicated."""
    last_stable_offset: int = field(int64, "4+", default=-1, ignorable=True)
    """The last stable offset: all transactions below it are committed or aborted; -1 if unknown."""
    log_start_offset: int = field(int64, "5+", default=-1, ignorable=True)
    """The log start offset; -1 if unknown."""
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, "12+", tag=0, tagged="12+")
    """The epoch and end offset after which the fetcher's log diverges: the fetcher must truncate to them."""
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "12+", tag=1, tagged="12+")
    """The partition's current leader, set with NOT_LEADER_OR_FOLLOWER (KIP-951)."""
    snapshot_id: SnapshotId = field(SnapshotId, "12+", tag=2, tagged="12+")
    """The snapshot to load instead, for followers of the metadata log."""
    aborted_transactions: tuple[AbortedTransaction, ...] | None = field(
        [AbortedTransaction], "4+", null="4+", ignorable=True
    )
    """Aborted transactions among the records, in order of first offset. Null unless isolation level 1 was requested."""
    preferred_read_replica: int = field(int32, "11+", default=-1)
    """The broker id of the replica to fetch from instead; -1 for none."""
    records: Buffer | None = field(records, "0+", null="0+")
    """The record batches; the last may be cut short."""


class FetchableTopicResponse(ResponsePart):
    topic: str = field(string, "0-12", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "13+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[PartitionData, ...] = field([PartitionData], "0+")
    """The partitions, one entry each."""


class NodeEndpoint(ResponsePart):
    node_id: int = field(int32, "16+")
    """The broker's id."""
    host: str = field(string, "16+")
    """The name or address to connect to."""
    port: int = field(int32, "16+")
    """The port to connect to."""
    rack: str | None = field(string, "16+", null="16+", default=None)
    """The broker's rack, or null."""


class FetchResponse(Response, key=1, versions="0-18", flexible="12+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "7+", ignorable=True)
    """0, or what is wrong with the session or the request."""
    session_id: int = field(int32, "7+", default=0)
    """The fetch session's id; 0 if the broker keeps no session."""
    responses: tuple[FetchableTopicResponse, ...] = field([FetchableTopicResponse], "0+")
    """The topics, one entry each. In a fetch session only changed topics are present."""
    node_endpoints: tuple[NodeEndpoint, ...] = field([NodeEndpoint], "16+", tag=0, tagged="16+")
    """The addresses of the brokers in `current_leader`, which save a Metadata request (KIP-951)."""
