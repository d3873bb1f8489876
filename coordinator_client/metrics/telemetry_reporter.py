"""Pushes a consumer's metrics to brokers (KIP-714).

The state machine is in `telemetry_state.py`. No code is loaded and no request is sent unless a broker supports it. A
broker without a metrics plugin does not.
"""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, Final

from kohort.common import KohortError
from kohort.common.log_context import logger
from kohort.coordinator_client.consumer_config import ConsumerConfig
from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.network.request_manager import earliest
from kohort.network.requests import (
    ConnectionPurpose,
    Endpoint,
    PendingRequest,
    PollResult,
    RequestResult,
    ResponseReceived,
    SendFailed,
    UnsentRequest,
)

if TYPE_CHECKING:
    from kohort.coordinator_client.metrics.metrics_table import ConsumerMetrics
    from kohort.coordinator_client.metrics.telemetry_state import Push, Telemetry

log = logger("kohort.consumer")

GET_TELEMETRY_SUBSCRIPTIONS: Final = 71
LAST_PUSH_S: Final = 3.0
"""Time (s) that close waits for the response to the last push."""


class TelemetryReporter:
    """Sends the telemetry requests of a consumer; used under the driver's lock.

    `metrics` returns the metrics at a time (monotonic s).
    """

    def __init__(self, context: ConsumerContext, metrics: "Callable[[float], ConsumerMetrics]") -> None:
        self._context = context
        self._metrics = metrics
        self._machine: Telemetry | None = None
        self._broker: Endpoint | None = None
        self._limit = inf
        self._began_ms = 0
        self._since_ms = 0
        self._before: dict[str, float] = {}

    def poll(self, now: float) -> PollResult:
        """Return the request that is due."""
        machine = self._machine or self._begun()
        if machine is None:
            return PollResult((), None)
        if now >= self._limit and not machine.stopped:
            machine.stop("closed")
            self._context.notify()  # close waits for it
        requests = self._due(machine, now)
        limit = None if self.ended or self._limit == inf else self._limit
        return PollResult(requests, earliest(now, (machine.next_poll_at(), limit)))

    def _due(self, machine: "Telemetry", now: float) -> tuple[UnsentRequest, ...]:
        owed = machine.next_request(now)
        if owed is None:
            return ()
        from kohort.coordinator_client.metrics import telemetry_state
        from kohort.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest

        if isinstance(owed, telemetry_state.Push):
            return (self._push(machine, owed, now),)
        self._broker = self._context.endpoints.offering(GET_TELEMETRY_SUBSCRIPTIONS) or self._broker
        request = self._request(
            machine,
            ConnectionPurpose.CONTROL,
            telemetry_state.SUBSCRIBE,
            GetTelemetrySubscriptionsRequest(client_instance_id=owed.client),
            lambda response, when: self._subscribed(machine, response, when),
        )
        return (request,)

    def close(self, now: float, deadline: float) -> None:
        """Send a last push, if one is requested.

        Its response is awaited until the deadline, at most 3 s.
        """
        self._limit = min(deadline, now + LAST_PUSH_S)
        if self._machine is not None:
            self._machine.close()
            if self._machine.subscribed is None or not self._machine.subscribed.wanted:
                self._machine.stop("closed")

    @property
    def ended(self) -> bool:
        """True if close need not wait for telemetry."""
        return self._machine is None or bool(self._machine.stopped)

    # --- inner

    def _begun(self) -> "Telemetry | None":
        context = self._context
        if not context.config.enable_metrics_push or self._limit != inf:
            return None
        if context.endpoints.offering(GET_TELEMETRY_SUBSCRIPTIONS) is None:
            return None
        from kohort.coordinator_client.metrics.telemetry_state import Telemetry

        self._machine = Telemetry(context.chance)
        self._began_ms = self._since_ms = context.wall_ms()
        return self._machine

    def _request(
        self, machine: "Telemetry", purpose: ConnectionPurpose, api: str, request: Any, responded: Any
    ) -> UnsentRequest:
        def done(outcome: RequestResult, now: float) -> None:
            match outcome:
                case ResponseReceived(value):
                    responded(value, now)
                case SendFailed(error):
                    _stop(machine, str(error))
                case _:
                    machine.unanswered(now)
            if self._context.closing():
                self._context.notify()  # close may be waiting for it

        pending = PendingRequest(api, request, done, self._context.request_s)
        return UnsentRequest(purpose, self._broker, pending)

    def _subscribed(self, machine: "Telemetry", response: Any, now: float) -> None:
        from kohort.coordinator_client.metrics.otlp import available

        machine.subscription(response, now)
        if machine.stopped:
            _report(machine.stopped)
        elif machine.subscribed is not None and machine.subscribed.wanted and not available():
            _stop(
                machine,
                "a broker requests metrics, but OpenTelemetry's library is missing: pip install "
                "kohort[opentelemetry], or set enable_metrics_push to False",
            )

    def _push(self, machine: "Telemetry", push: "Push", now: float) -> UnsentRequest:
        from kohort.coordinator_client.metrics import otlp
        from kohort.coordinator_client.metrics.telemetry_state import PUSH
        from kohort.protocol.apis.push_telemetry import PushTelemetryRequest

        wants, metrics = push.subscribed, self._metrics(now)
        reported_at_ms = max(self._context.wall_ms(), self._since_ms)
        span = otlp.OtlpSpan(self._began_ms, reported_at_ms, None)
        if wants.delta:
            span = otlp.OtlpSpan(self._since_ms, reported_at_ms, dict(self._before))
        about = _about(self._context.config, metrics)

        def request(_version: int) -> PushTelemetryRequest:
            # Runs on the driver's thread without the lock, since encoding takes time.
            try:
                data = otlp.payload(
                    metrics, span, wants=wants.wants, about=about, codec=wants.codec, most_bytes=wants.most_bytes
                )
            except KohortError:
                raise
            except Exception as problem:  # an error of the library must not end the consumer
                raise KohortError(f"metrics cannot be encoded: {problem}") from problem
            return PushTelemetryRequest(
                client_instance_id=push.client,
                subscription_id=wants.number,
                terminating=push.last,
                compression_type=wants.codec,
                metrics=data,
            )

        def responded(response: Any, when: float) -> None:
            if machine.pushed(response.error_code, when):
                if wants.delta:
                    self._since_ms, self._before = reported_at_ms, otlp.counters(metrics)
            elif machine.stopped:
                _report(machine.stopped)

        return self._request(machine, ConnectionPurpose.TELEMETRY, PUSH, request, responded)


def _stop(machine: "Telemetry", why: str) -> None:
    machine.stop(why)
    _report(why)


def _report(why: str) -> None:
    log.warning("no metrics are pushed to brokers: %s", why)


def _about(config: ConsumerConfig, metrics: "ConsumerMetrics") -> dict[str, str]:
    """KIP-714's client labels that the broker cannot take from the connection."""
    labels = {
        "client_rack": config.rack,
        "group_id": config.group,
        "group_instance_id": config.group_instance_id,
        "group_member_id": metrics.member_id,
    }
    return {name: value for name, value in labels.items() if value}
