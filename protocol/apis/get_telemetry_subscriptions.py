"""GetTelemetrySubscriptions (71): the metrics, interval and format of the client's pushes (KIP-714).

Sent to: any broker. Only brokers with a plugin for client metrics support it.

Errors
    THROTTLING_QUOTA_EXCEEDED     sent before the push interval passed: wait for it
    INVALID_REQUEST               fatal: the client instance id is invalid
    UNSUPPORTED_VERSION           the broker does not accept client metrics
"""

from uuid import UUID

from kohort.protocol.primitives import boolean, int8, int16, int32, string, uuid
from kohort.protocol.schema import Request, Response, field


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+"):
    client_instance_id: UUID = field(uuid, "0+")
    """The client instance id that the broker assigned, which is constant for the client's life; zero in the first
    request."""


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
    client_instance_id: UUID = field(uuid, "0+")
    """The client's new id if the request had none, else zero."""
    subscription_id: int = field(int32, "0+")
    """The id of the current subscription. Every push repeats it."""
    accepted_compression_types: tuple[int, ...] = field([int8], "0+")
    """Compression types that a push may use, in the broker's order of preference; empty means no compression."""
    push_interval_ms: int = field(int32, "0+")
    """Milliseconds between two pushes."""
    telemetry_max_bytes: int = field(int32, "0+")
    """The most bytes that a push may carry."""
    delta_temporality: bool = field(boolean, "0+")
    """True requests counters as the increase since the last push, false as the total since the start."""
    requested_metrics: tuple[str, ...] = field([string], "0+")
    """Prefixes of the requested metric names. An empty list requests none, and an empty prefix or "*" requests all."""
