"""OffsetFetch (9): where had the group read to?

Sent to: the group's coordinator. From version 8 on several groups at once, version 10 names topics by id. A partition
without a commit is no error: its offset is -1.

Errors (of the group, from version 2 on, and by partition)
    UNSTABLE_OFFSET_COMMIT          a transaction on this offset is undecided (`require_stable`): retry
    COORDINATOR_LOAD_IN_PROGRESS    retry after a while
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR   find the coordinator, retry
    UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH        KIP-848 only: rejoin, or retry with the new epoch
    GROUP_ID_NOT_FOUND              no such group
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID   deleted, or not yet known there
    TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED   fatal
"""

from uuid import UUID

from kohort.protocol.primitives import boolean, int16, int32, int64, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class OffsetFetchRequestTopic(RequestPart):
    name: str = field(string, "0-7")
    """The topic's name."""
    partition_indexes: tuple[int, ...] = field([int32], "0-7")
    """The partitions asked for."""


class OffsetFetchRequestTopics(RequestPart):
    name: str = field(string, "8-9", ignorable=True)
    """The topic's name."""
    topic_id: UUID = field(uuid, "10+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partition_indexes: tuple[int, ...] = field([int32], "8+")
    """The partitions asked for."""


class OffsetFetchRequestGroup(RequestPart):
    group_id: str = field(string, "8+")
    """The group."""
    member_id: str | None = field(string, "9+", null="9+", default=None, ignorable=True)
    """The asking member of a KIP-848 group, or null."""
    member_epoch: int = field(int32, "9+", default=-1, ignorable=True)
    """The asking member's epoch in a KIP-848 group; -1 outside."""
    topics: tuple[OffsetFetchRequestTopics, ...] | None = field([OffsetFetchRequestTopics], "8+", null="8+")
    """The topics asked for; null means every one with a committed offset."""


class OffsetFetchRequest(Request, key=9, versions="0-10", flexible="6+"):
    group_id: str = field(string, "0-7")
    """The group."""
    topics: tuple[OffsetFetchRequestTopic, ...] | None = field([OffsetFetchRequestTopic], "0-7", null="2-7")
    """The topics asked for; null means every one with a committed offset."""
    groups: tuple[OffsetFetchRequestGroup, ...] = field([OffsetFetchRequestGroup], "8+")
    """The groups, several at once (KIP-709)."""
    require_stable: bool = field(boolean, "7+", default=False)
    """Whether an offset with an open transaction on it is answered with an error instead (KIP-447)."""


class OffsetFetchResponsePartition(ResponsePart):
    partition_index: int = field(int32, "0-7")
    """The partition's number within its topic."""
    committed_offset: int = field(int64, "0-7")
    """The next offset to read; -1 where nothing is committed."""
    committed_leader_epoch: int = field(int32, "5-7", default=-1, ignorable=True)
    """The leader's epoch of the last record consumed, for truncation checks (KIP-320); -1 if unknown."""
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
    """The leader's epoch of the last record consumed, for truncation checks (KIP-320); -1 if unknown."""
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
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    topics: tuple[OffsetFetchResponseTopic, ...] = field([OffsetFetchResponseTopic], "0-7")
    """The topics, one entry each."""
    error_code: int = field(int16, "2-7", default=0, ignorable=True)
    """0, or what is wrong with the group."""
    groups: tuple[OffsetFetchResponseGroup, ...] = field([OffsetFetchResponseGroup], "8+")
    """The groups, several at once (KIP-709)."""
