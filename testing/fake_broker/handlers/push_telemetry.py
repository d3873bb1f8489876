"""PushTelemetry (72), version 0: takes what is pushed under the one subscription there is, and keeps nothing (KIP-714).

Offered only where a test names it in `versions`. What was pushed is in the calls.
Not done: throttling.
"""

import uuid

from kohort.protocol.apis.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers.get_telemetry_subscriptions import SUBSCRIPTION_ID

KEY = 72
VERSIONS = (0, 0)


async def handle(work: Work, request: PushTelemetryRequest) -> PushTelemetryResponse:
    if request.client_instance_id == uuid.UUID(int=0):
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_REQUEST)
    known = request.subscription_id == SUBSCRIPTION_ID
    return PushTelemetryResponse(error_code=ErrorCode.NONE if known else ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
