"""PushTelemetry (72): the metrics that a broker has asked for (KIP-714).

Sent to: the broker that GetTelemetrySubscriptions was asked of.

Errors
    UNKNOWN_SUBSCRIPTION_ID       what is subscribed has changed: ask at once
    UNSUPPORTED_COMPRESSION_TYPE  ask what the broker accepts, and push that
    TELEMETRY_TOO_LARGE           more than telemetry_max_bytes: push less, after the interval
    THROTTLING_QUOTA_EXCEEDED     pushed too soon: wait for the push interval
    INVALID_RECORD                fatal: the broker cannot read what was pushed
    INVALID_REQUEST               fatal: the broker does not like the client's id, or a push after the last one
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
    """Whether the client is closing, and this is its last push."""
    compression_type: int = field(int8, "0+")
    """The codec of `metrics`: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    metrics: bytes = field(bytes_, "0+")
    """OpenTelemetry's MetricsData, version 1, in protobuf."""


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = field(int32, "0+")
    """How long the broker held this answer back, or wants the client to wait, because of a quota."""
    error_code: int = field(int16, "0+")
    """0, or what went wrong."""
