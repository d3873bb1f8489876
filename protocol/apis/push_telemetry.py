"""PushTelemetry (72): pushes the metrics that the broker requested (KIP-714).

Sent to: the broker that responded to GetTelemetrySubscriptions.

Errors
    UNKNOWN_SUBSCRIPTION_ID       the subscription changed: send GetTelemetrySubscriptions at once
    UNSUPPORTED_COMPRESSION_TYPE  send GetTelemetrySubscriptions, and push in an accepted type
    TELEMETRY_TOO_LARGE           more than telemetry_max_bytes: push less, after the interval
    THROTTLING_QUOTA_EXCEEDED     pushed too soon: wait for the push interval
    INVALID_RECORD                fatal: the broker cannot decode the metrics
    INVALID_REQUEST               fatal: the client instance id is invalid, or the push follows a terminating push
"""

from uuid import UUID

from kohort.protocol.primitives import boolean, bytes_, int8, int16, int32, uuid
from kohort.protocol.schema import Request, Response, field


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+"):
    client_instance_id: UUID = field(uuid, "0+")
    """The id that the broker gave the client."""
    subscription_id: int = field(int32, "0+")
    """Names what was subscribed when this was put together."""
    terminating: bool = field(boolean, "0+")
    """True in the last push before the client closes."""
    compression_type: int = field(int8, "0+")
    """The codec of `metrics`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    metrics: bytes = field(bytes_, "0+")
    """OpenTelemetry's MetricsData, version 1, in protobuf."""


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """Milliseconds the request was throttled by a quota. Since KIP-219 the client must wait for them."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
