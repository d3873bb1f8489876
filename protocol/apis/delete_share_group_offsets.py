"""DeleteShareGroupOffsets (92): deletes the share state of topics from an empty share group (KIP-932).

Sent to: the group's coordinator.

Errors (at the top; by topic)
    NON_EMPTY_GROUP               the group has members
    GROUP_ID_NOT_FOUND            no such group, or a group of another type
    NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS   send FindCoordinator, retry
    UNKNOWN_TOPIC_OR_PARTITION    no such topic, or the group has no state of it
    GROUP_AUTHORIZATION_FAILED    the caller lacks DELETE on the group
    TOPIC_AUTHORIZATION_FAILED    the caller lacks READ on the topic
"""

from uuid import UUID

from kohort.protocol.primitives import int16, int32, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class DeleteShareGroupOffsetsRequestTopic(RequestPart):
    topic_name: str = field(string, "0+")
    """The topic's name."""


class DeleteShareGroupOffsetsRequest(Request, key=92, versions="0", flexible="0+"):
    group_id: str = field(string, "0+")
    """The group."""
    topics: tuple[DeleteShareGroupOffsetsRequestTopic, ...] = field([DeleteShareGroupOffsetsRequestTopic], "0+")
    """The topics, one entry each."""


class DeleteShareGroupOffsetsResponseTopic(ResponsePart):
    topic_name: str = field(string, "0+")
    """The topic's name."""
    topic_id: UUID = field(uuid, "0+")
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or why nothing was deleted."""
    error_message: str | None = field(string, "0+", null="0+", default=None)
    """The error message, or null."""
    responses: tuple[DeleteShareGroupOffsetsResponseTopic, ...] = field([DeleteShareGroupOffsetsResponseTopic], "0+")
    """The topics, one entry each."""
