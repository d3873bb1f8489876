"""GetTelemetrySubscriptions (71), version 0: an id for a client without one, and an empty subscription (KIP-714).

Offered only if a test names it in `versions`, as brokers without a plugin for metrics do not. A test that wants
metrics alters the response.
"""

import uuid

from kohort.protocol.apis.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kohort.testing.fake_broker.handler_context import Work

KEY = 71
VERSIONS = (0, 0)
SUBSCRIPTION_ID = 1
_NO_INSTANCE = uuid.UUID(int=0)
_ZSTD, _LZ4, _GZIP, _SNAPPY = 4, 3, 1, 2


async def handle(work: Work, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    is_new = request.client_instance_id == _NO_INSTANCE
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=uuid.uuid5(uuid.NAMESPACE_URL, f"client/{work.call.number}") if is_new else _NO_INSTANCE,
        subscription_id=SUBSCRIPTION_ID,
        accepted_compression_types=(_ZSTD, _LZ4, _GZIP, _SNAPPY),
        push_interval_ms=300_000,
        telemetry_max_bytes=1 << 20,
        delta_temporality=True,
    )
