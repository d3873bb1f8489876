"""OffsetFetch (9): returns the group's committed offsets.

Sent to: the group's coordinator. Version 8 adds several groups in one request, version 10 topic ids. A partition
without a commit has offset -1 and no error.

Errors (of the group, from version 2 on, and by partition)
    UNSTABLE_OFFSET_COMMIT          a transactional commit is pending (`require_stable`): retry
    COORDINATOR_LOAD_IN_PROGRESS    retry after a backoff
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR   send FindCoordinator, retry
    UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH        KIP-848 only: rejoin, or retry with the new epoch
    GROUP_ID_NOT_FOUND              no such group
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID   deleted, or not known to the broker yet
    TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED   fatal
"""

from uuid import UUID

from kohort.protocol.primitives import boolean, int16, int32, int64, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class OffsetFetchRequestTopic(RequestPart):
    name: str = field(string, "0-7")
    """The topic's name."""
    partition_indexes: tuple[int, ...] = field([int32], "0-7")
    """The partition numbers."""


class OffsetFetchRequestTopics(RequestPart):
    name: str = field(string, "8-9", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "10+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partition_indexes: tuple[int, ...] = field([int32], "8+")
    """The partition numbers."""


class OffsetFetchRequestGroup(RequestPart):
    group_id: str = field(string, "8+")
    """The group."""
    member_id: str | None = field(string, "9+", null="9+", default=None, ignorable=True)
    """The id of the KIP-848 group member that sends the request, or null."""
    member_epoch: int = field(int32, "9+", default=-1, ignorable=True)
    """The epoch of the KIP-848 group member that sends the request; -1 otherwise."""
    topics: tuple[OffsetFetchRequestTopics, ...] | None = field([OffsetFetchRequestTopics], "8+", null="8+")
    """The requested topics; null means all topics with a committed offset."""


class OffsetFetchRequest(Request, key=9, versions="0-10", flexible="6+"):
    group_id: str = field(string, "0-7")
    """The group."""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = field([OffsetFetchRequestTopic], "0-7", null="2-7")
    """The requested topics; null means all topics with a committed offset."""
    groups: tuple[OffsetFetchRequestGroup, ...] = field([OffsetFetchRequestGroup], "8+")
    """The groups, several at once (KIP-709)."""
    require_stable: bool = field(boolean, "7+", default=False)
    """True returns an error for an offset with a pending transactional commit (KIP-447)."""


class OffsetFetchResponsePartition(ResponsePart):
    partition_index: int = field(int32, "0-7")
    """The partition's number within its topic."""
    committed_offset: int = field(int64, "0-7")
    """The next offset to read; -1 where nothing is committed."""
    committed_leader_epoch: int = field(int32, "5-7", default=-1, ignorable=True)
    """The leader epoch of the last consumed record, for truncation detection (KIP-320); -1 if unknown."""
    metadata: str | None = field(string, "0-7", null="0-7")
    """The text that was committed with the offset."""
    error_code: int = field(int16, "0-7")
    """0, or what went wrong."""


class OffsetFetchResponseTopic(ResponsePart):
    name: str = field(string, "0-7")
    """The topic's name."""
    partitions: tuple[OffsetFetchResponsePartition, ...] = field([OffsetFetchResponsePartition], "0-7")
    """The partitions, one entry each."""


class OffsetFetchResponsePartitions(ResponsePart):
    partition_index: int = field(int32, "8+")
    """The partition's number within its topic."""
    committed_offset: int = field(int64, "8+")
    """The next offset to read; -1 where nothing is committed."""
    committed_leader_epoch: int = field(int32, "8+", default=-1, ignorable=True)
    """The leader epoch of the last consumed record, for truncation detection (KIP-320); -1 if unknown."""
    metadata: str | None = field(string, "8+", null="8+")
    """The text that was committed with the offset."""
    error_code: int = field(int16, "8+")
    """0, or what went wrong."""


class OffsetFetchResponseTopics(ResponsePart):
    name: str = field(string, "8-9", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "10+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[OffsetFetchResponsePartitions, ...] = field([OffsetFetchResponsePartitions], "8+")
    """The partitions, one entry each."""


class OffsetFetchResponseGroup(ResponsePart):
    group_id: str = field(string, "8+")
    """The group."""
    topics: tuple[OffsetFetchResponseTopics, ...] = field([OffsetFetchResponseTopics], "8+")
    """The topics, one entry each."""
    error_code: int = field(int16, "8+", default=0)
    """0, or what is wrong with this group."""


class OffsetFetchResponse(Response, key=9, versions="0-10", flexible="6+"):
    throttle_time_ms: int = field(int32, "3+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    topics: tuple[OffsetFetchResponseTopic, ...] = field([OffsetFetchResponseTopic], "0-7")
    """The topics, one entry each."""
    error_code: int = field(int16, "2-7", default=0, ignorable=True)
    """0, or what is wrong with the group."""
    groups: tuple[OffsetFetchResponseGroup, ...] = field([OffsetFetchResponseGroup], "8+")
    """The groups, several at once (KIP-709)."""
