"""DeleteTopics (20): deletes topics with all their records.

Sent to: any broker of a KRaft cluster (it forwards), or the controller of a ZooKeeper cluster. Version 6 adds ids.

Errors (by topic)
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID   already deleted
    NOT_CONTROLLER                refresh metadata, send to the controller
    REQUEST_TIMED_OUT             marked for deletion, but not deleted yet
    TOPIC_DELETION_DISABLED       delete.topic.enable is false
    INVALID_REQUEST               a topic is named twice, or by both name and id
    THROTTLING_QUOTA_EXCEEDED     wait `throttle_time_ms`, retry (KIP-599)
    UNSUPPORTED_VERSION           the cluster does not support topic ids
    TOPIC_AUTHORIZATION_FAILED    fatal
"""

from uuid import UUID

from kohort.protocol.primitives import int16, int32, string, uuid
from kohort.protocol.schema import Request, RequestPart, Response, ResponsePart, field


class DeleteTopicState(RequestPart):
    name: str | None = field(string, "6+", null="6+", default=None)
    """The topic's name, or null when named by id."""
    topic_id: UUID = field(uuid, "6+")
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""


class DeleteTopicsRequest(Request, key=20, versions="0-6", flexible="4+"):
    topics: tuple[DeleteTopicState, ...] = field([DeleteTopicState], "6+")
    """The topics to delete, each by name or by id."""
    topic_names: tuple[str, ...] = field([string], "0-5", ignorable=True)
    """The topics to delete, by name."""
    timeout_ms: int = field(int32, "0+")
    """Milliseconds the broker may take."""


class DeletableTopicResult(ResponsePart):
    name: str | None = field(string, "0+", null="6+")
    """The topic's name; null for an id that is unknown."""
    topic_id: UUID = field(uuid, "6+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """The error message, or null."""


class DeleteTopicsResponse(Response, key=20, versions="0-6", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    responses: tuple[DeletableTopicResult, ...] = field([DeletableTopicResult], "0+")
    """The topics, one entry each."""
