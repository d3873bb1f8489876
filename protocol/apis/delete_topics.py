"""DeleteTopics (20): delete topics with all their records.

Sent to: any broker of a KRaft cluster (it forwards), the controller of an older one. Version 6 deletes by id too.

Errors (by topic)
    UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID   gone already
    NOT_CONTROLLER                fresh metadata, send to the controller
    REQUEST_TIMED_OUT             it is marked; it will go
    TOPIC_DELETION_DISABLED       the brokers are set not to
    INVALID_REQUEST               a topic named twice, or both by name and id
    THROTTLING_QUOTA_EXCEEDED     wait `throttle_time_ms`, retry (KIP-599)
    UNSUPPORTED_VERSION           the cluster is too old for ids
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
    """How long the broker may take."""


class DeletableTopicResult(ResponsePart):
    name: str | None = field(string, "0+", null="6+")
    """The topic's name; null for an id that is unknown."""
    topic_id: UUID = field(uuid, "6+", ignorable=True)
    """The topic's id, which a deleted and re-created topic does not share with its predecessor."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    error_message: str | None = field(string, "5+", null="5+", default=None, ignorable=True)
    """What went wrong in words, or null."""


class DeleteTopicsResponse(Response, key=20, versions="0-6", flexible="4+"):
    throttle_time_ms: int = field(int32, "1+", ignorable=True)
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    responses: tuple[DeletableTopicResult, ...] = field([DeletableTopicResult], "0+")
    """The topics, one entry each."""
