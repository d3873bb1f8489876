"""GetTelemetrySubscriptions (71): which of its metrics should this client push, how often, and in what form (KIP-714)?

Sent to: any broker; only those with a plugin that takes clients' metrics offer it.

Errors
    THROTTLING_QUOTA_EXCEEDED     asked again too soon: wait for the push interval
    INVALID_REQUEST               fatal: the broker does not like the client's id
    UNSUPPORTED_VERSION           the broker takes no metrics from clients
"""

from uuid import UUID

from kohort.protocol.primitives import boolean, int8, int16, int32, string, uuid
from kohort.protocol.schema import Request, Response, field


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+"):
    client_instance_id: UUID = field(uuid, "0+")
    """The id that the client was given, which it keeps for its life; zero in its first request."""


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    client_instance_id: UUID = field(uuid, "0+")
    """The client's new id if the request had none, else zero."""
    subscription_id: int = field(int32, "0+")
    """Names what is subscribed now; every push repeats it."""
    accepted_compression_types: tuple[int, ...] = field([int8], "0+")
    """Codecs that a push may use, in the broker's order of preference; without one, none."""
    push_interval_ms: int = field(int32, "0+")
    """How long to wait between two pushes."""
    telemetry_max_bytes: int = field(int32, "0+")
    """The most bytes that a push may carry."""
    delta_temporality: bool = field(boolean, "0+")
    """Whether counters are told as what was added since the last push, instead of since the start."""
    requested_metrics: tuple[str, ...] = field([string], "0+")
    """Prefixes of the names that are wanted; none: nothing is; an empty one, or "*": everything is."""
