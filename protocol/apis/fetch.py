"""Fetch (1): the records from here on.

Sent to: each partition's leader, or the replica that the leader prefers for the asker's rack (KIP-392). Version 4
brings isolation levels, 7 sessions, 12 flexible fields, 13 topic ids, 16 the new leader's address with the error.

Errors (of the session at the top; by partition)
    OFFSET_OUT_OF_RANGE             before the log's start or past its end: the reset policy decides
    NOT_LEADER_OR_FOLLOWER, LEADER_NOT_AVAILABLE, REPLICA_NOT_AVAILABLE, KAFKA_STORAGE_ERROR
                                    fresh metadata (or `current_leader`), fetch again
    FENCED_LEADER_EPOCH             the client's metadata is old: refresh, and check for truncation
    UNKNOWN_LEADER_EPOCH            the broker is behind: fetch again
    OFFSET_NOT_AVAILABLE            a new leader still finds its end: fetch again
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID   deleted or re-created: fresh metadata
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
    """The asking broker's id; -1 for a client."""
    replica_epoch: int = field(int64, "15+", default=-1)
    """The asking broker's epoch; -1 where it is unknown."""


class FetchPartition(RequestPart):
    partition: int = field(int32, "0+")
    """The partition's number within its topic."""
    current_leader_epoch: int = field(int32, "9+", default=-1, ignorable=True)
    """The leader's epoch as the client knows it, so that a stale leader or client is noticed (KIP-320)."""
    fetch_offset: int = field(int64, "0+")
    """The offset to read from."""
    last_fetched_epoch: int = field(int32, "12+", default=-1)
    """The epoch of the last record fetched, for the broker's truncation check; -1 where it is unknown."""
    log_start_offset: int = field(int64, "5+", default=-1, ignorable=True)
    """A follower's log start; -1 from a client."""
    partition_max_bytes: int = field(int32, "0+")
    """How many bytes of this partition to answer with at most."""
    replica_directory_id: UUID = field(uuid, "17+", ignorable=True, tag=0, tagged="17+")
    """The directory of a follower's replica."""
    high_watermark: int = field(int64, "18+", default=2**63 - 1, ignorable=True, tag=1, tagged="18+")
    """The high watermark that a follower knows, so that the leader need not wait to tell it again (KIP-1166)."""


class FetchTopic(RequestPart):
    topic: str = field(string, "0-12", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "13+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[FetchPartition, ...] = field([FetchPartition], "0+")
    """Which partitions, and from where."""


class ForgottenTopic(RequestPart):
    topic: str = field(string, "7-12", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "13+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[int, ...] = field([int32], "7+")
    """The partitions to drop."""


class FetchRequest(Request, key=1, versions="0-18", flexible="12+"):
    cluster_id: str | None = field(string, "12+", null="12+", default=None, ignorable=True, tag=0, tagged="12+")
    """The cluster that the asker believes to talk to, or null."""
    replica_id: int = field(int32, "0-14", default=-1)
    """The asking broker's id; -1 for a client."""
    replica_state: ReplicaState = field(ReplicaState, "15+", tag=1, tagged="15+")
    """Who asks, when it is a broker (KIP-903)."""
    max_wait_ms: int = field(int32, "0+")
    """How long to wait until `min_bytes` are there."""
    min_bytes: int = field(int32, "0+")
    """How many bytes to wait for."""
    max_bytes: int = field(int32, "3+", default=2**31 - 1, ignorable=True)
    """How many bytes to answer with at most; the first batch comes even if it is larger."""
    isolation_level: int = field(int8, "4+", default=0, ignorable=True)
    """0 sees every record, 1 only those of committed transactions (KIP-98)."""
    session_id: int = field(int32, "7+", default=0, ignorable=True)
    """The fetch session (KIP-227); 0 opens one, or stands for none."""
    session_epoch: int = field(int32, "7+", default=-1, ignorable=True)
    """The session's epoch: counts up by one a request; 0 starts afresh, -1 does without a session."""
    topics: tuple[FetchTopic, ...] = field([FetchTopic], "0+")
    """What to fetch; in a session only what changed."""
    forgotten_topics_data: tuple[ForgottenTopic, ...] = field([ForgottenTopic], "7+")
    """What to drop from the session."""
    rack_id: str = field(string, "11+", default="", ignorable=True)
    """The asker's rack, so that a near replica can be named (KIP-392)."""


class EpochEndOffset(ResponsePart):
    epoch: int = field(int32, "12+", default=-1)
    """The greatest epoch not above the asker's; -1 where there is none."""
    end_offset: int = field(int64, "12+", default=-1)
    """Where that epoch ends; -1 where there is none."""


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
    """Where in the partition the aborted transaction begins."""


class PartitionData(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    high_watermark: int = field(int64, "0+")
    """One past the last offset that is replicated."""
    last_stable_offset: int = field(int64, "4+", default=-1, ignorable=True)
    """One past the last offset whose transactions are all decided; -1 where it is unknown."""
    log_start_offset: int = field(int64, "5+", default=-1, ignorable=True)
    """The first offset that the log still has; -1 where it is unknown."""
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, "12+", tag=0, tagged="12+")
    """Where the asker's log parted from the leader's: truncate to there."""
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, "12+", tag=1, tagged="12+")
    """Who leads the partition now, told to a client that asked the wrong broker (KIP-951)."""
    snapshot_id: SnapshotId = field(SnapshotId, "12+", tag=2, tagged="12+")
    """The snapshot to load instead, for followers of the metadata log."""
    aborted_transactions: tuple[AbortedTransaction, ...] | None = field(
        [AbortedTransaction], "4+", null="4+", ignorable=True
    )
    """Aborted transactions among the records, by where they began; null unless isolation level 1 was asked for."""
    preferred_read_replica: int = field(int32, "11+", default=-1)
    """The broker to fetch from instead; -1 for the one that answers."""
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
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "7+", ignorable=True)
    """0, or what is wrong with the session or the request."""
    session_id: int = field(int32, "7+", default=0)
    """The session that the broker keeps; 0 where it keeps none."""
    responses: tuple[FetchableTopicResponse, ...] = field([FetchableTopicResponse], "0+")
    """The topics, one entry each; in a session only those with news."""
    node_endpoints: tuple[NodeEndpoint, ...] = field([NodeEndpoint], "16+", tag=0, tagged="16+")
    """Where the brokers named under `current_leader` are, so that no metadata round is needed (KIP-951)."""
