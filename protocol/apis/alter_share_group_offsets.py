"""AlterShareGroupOffsets (91): sets the start offsets of an empty share group (KIP-932).

Sent to: the group's coordinator, which creates a missing group. A partition's leader reads the new state when its last
share session of the group has ended.

Errors (at the top; by partition)
    NON_EMPTY_GROUP               the group has members
    GROUP_ID_NOT_FOUND            the group is of another type
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, retry
    UNKNOWN_TOPIC_OR_PARTITION    no such partition; the others are altered
    GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED   the caller lacks READ
"""

from uuid import UUID

from kohort.protocol.primitives import int16, int32, int64, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class AlterShareGroupOffsetsRequestPartition(RequestPart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    start_offset: int = field(int64, "0+")
    """The new start offset."""


class AlterShareGroupOffsetsRequestTopic(RequestPart):
    topic_name: str = field(string, "0+")
    """The topic's name."""
    partitions: tuple[AlterShareGroupOffsetsRequestPartition, ...] = field(
        [AlterShareGroupOffsetsRequestPartition], "0+"
    )
    """The partitions, one entry each."""


class AlterShareGroupOffsetsRequest(Request, key=91, versions="0", flexible="0+"):
    group_id: str = field(string, "0+")
    """The group."""
    topics: tuple[AlterShareGroupOffsetsRequestTopic, ...] = field([AlterShareGroupOffsetsRequestTopic], "0+")
    """The topics, one entry each."""


class AlterShareGroupOffsetsResponsePartition(ResponsePart):
    partition_index: int = field(int32, "0+")
    """The partition's number within its topic."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""


class AlterShareGroupOffsetsResponseTopic(ResponsePart):
    topic_name: str = field(string, "0+")
    """The topic's name."""
    topic_id: UUID = field(uuid, "0+")
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    partitions: tuple[AlterShareGroupOffsetsResponsePartition, ...] = field(
        [AlterShareGroupOffsetsResponsePartition], "0+"
    )
    """The partitions, one entry each."""


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or why nothing was altered."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""
    responses: tuple[AlterShareGroupOffsetsResponseTopic, ...] = field([AlterShareGroupOffsetsResponseTopic], "0+")
    """The topics, one entry each."""
