"""Pushes a client's metrics to brokers (KIP-714).

The state machine is in `telemetry_state.py`. No code is loaded and no request is sent unless a broker supports it. A
broker without a metrics plugin does not.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final

from kohort.common import KohortError
from kohort.common.log_context import logger
from kohort.common.named_tuple import NamedTuple
from kohort.network.connection_states import ConnectionStates
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
    from kohort.network.metric_spec import ClientMetrics
    from kohort.network.telemetry.telemetry_state import Push, Telemetry

GET_TELEMETRY_SUBSCRIPTIONS: Final = 71
LAST_PUSH_S: Final = 3.0
"""Time (s) that close waits for the response to the last push."""


class TelemetryContext(NamedTuple):
    """The client whose metrics are pushed.

    `client`: its kind, as in the name of its logger. `enabled`: the setting enable_metrics_push. `chance` returns
    random numbers in [0, 1). `wall_ms` returns the time (ms since the epoch), and `metrics` the metrics at a time
    (monotonic s). `labels` returns KIP-714's client labels that the broker cannot take from the connection; empty ones
    are left out. `notify` wakes a waiting close.
    """

    client: str
    enabled: bool
    request_s: float
    endpoints: ConnectionStates
    chance: Callable[[], float]
    wall_ms: Callable[[], int]
    metrics: "Callable[[float], ClientMetrics]"
    labels: "Callable[[], Mapping[str, str | None]]"
    notify: Callable[[], None]


class TelemetryReporter:
    """Sends the telemetry requests of a client; used under the driver's lock."""

    def __init__(self, context: TelemetryContext) -> None:
        self._context = context
        self._log = logger(f"kohort.{context.client}")
        self._machine: Telemetry | None = None
        self._broker: Endpoint | None = None
        self._limit = inf  # the time until which a close waits for the last push
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
        from kohort.network.telemetry import telemetry_state
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
        if not context.enabled or self._limit != inf:
            return None
        if context.endpoints.offering(GET_TELEMETRY_SUBSCRIPTIONS) is None:
            return None
        from kohort.network.telemetry.telemetry_state import Telemetry

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
                    self._stop(machine, str(error))
                case _:
                    machine.unanswered(now)
            if self._limit != inf:
                self._context.notify()  # close may be waiting for it

        pending = PendingRequest(api, request, done, self._context.request_s)
        return UnsentRequest(purpose, self._broker, pending)

    def _subscribed(self, machine: "Telemetry", response: Any, now: float) -> None:
        from kohort.network.telemetry.otlp import available

        machine.subscription(response, now)
        if machine.stopped:
            self._report(machine.stopped)
        elif machine.subscribed is not None and machine.subscribed.wanted and not available():
            self._stop(
                machine,
                "a broker requests metrics, but OpenTelemetry's library is missing: pip install "
                "kohort[opentelemetry], or set enable_metrics_push to False",
            )

    def _push(self, machine: "Telemetry", push: "Push", now: float) -> UnsentRequest:
        from kohort.network.telemetry import otlp
        from kohort.network.telemetry.telemetry_state import PUSH
        from kohort.protocol.apis.push_telemetry import PushTelemetryRequest

        wants, metrics = push.subscribed, self._context.metrics(now)
        reported_at_ms = max(self._context.wall_ms(), self._since_ms)
        span = otlp.OtlpSpan(self._began_ms, reported_at_ms, None)
        if wants.delta:
            span = otlp.OtlpSpan(self._since_ms, reported_at_ms, dict(self._before))
        about = {name: value for name, value in self._context.labels().items() if value}

        def request(_version: int) -> PushTelemetryRequest:
            # Runs on the driver's thread without the lock, since encoding takes time.
            try:
                data = otlp.payload(
                    metrics, span, wants=wants.wants, about=about, codec=wants.codec, most_bytes=wants.most_bytes
                )
            except KohortError:
                raise
            except Exception as problem:  # an error of the library must not end the client
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
                self._report(machine.stopped)

        return self._request(machine, ConnectionPurpose.TELEMETRY, PUSH, request, responded)

    def _stop(self, machine: "Telemetry", why: str) -> None:
        machine.stop(why)
        self._report(why)

    def _report(self, why: str) -> None:
        self._log.warning("no metrics are pushed to brokers: %s", why)
