"""State machine of KIP-714 telemetry: subscription, pushes and their times. No I/O.

The client requests a subscription and pushes at the broker's interval. The first push is after a random part of the
interval, so that many clients do not push at once. When the broker reports a changed subscription, the client requests
it again. It pushes a last time when it closes. Errors never affect the client itself.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from math import inf
from typing import Final
from uuid import UUID

from kohort.common.named_tuple import NamedTuple
from kohort.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from kohort.protocol.errors import ErrorCode, error_name

SUBSCRIBE: Final = "GetTelemetrySubscriptions"
PUSH: Final = "PushTelemetry"
NO_CLIENT_INSTANCE_ID: Final = UUID(int=0)
DEFAULT_INTERVAL_S: Final = 300.0
"""Push interval before a broker has sent one, or if it is invalid: Kafka's default."""

SHORTEST_S: Final = 0.1
"""Lower bound of the push interval; brokers do not allow a smaller one."""

CODECS: Final = frozenset(range(1, 5))
"""Supported codecs, by Kafka's numbers; 0 (none) is always accepted."""


class NextStep(Enum):
    """The action after an error."""

    SUBSCRIBE_NOW = "request the subscription at once"
    SUBSCRIBE_LATER = "request the subscription after the interval"
    STOP = "send no more requests"


ERRORS: Final[Mapping[int, NextStep]] = {
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: NextStep.SUBSCRIBE_NOW,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: NextStep.SUBSCRIBE_NOW,
    ErrorCode.TELEMETRY_TOO_LARGE: NextStep.SUBSCRIBE_LATER,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: NextStep.SUBSCRIBE_LATER,
}
"""Errors after which telemetry continues. Any other error is permanent and stops it."""


class TelemetrySubscription(NamedTuple):
    """The broker's subscription.

    `codec`: Kafka's codec number. `wanted`: prefixes of metric names, "" for all. `delta`: true for counters as
    differences.
    """

    number: int
    interval_s: float
    codec: int
    most_bytes: int
    delta: bool
    wanted: frozenset[str]

    @classmethod
    def reported(cls, response: GetTelemetrySubscriptionsResponse) -> "TelemetrySubscription":
        """The subscription in a response, with the first supported codec in the broker's order."""
        interval_s = response.push_interval_ms / 1000
        return cls(
            response.subscription_id,
            max(interval_s, SHORTEST_S) if interval_s > 0 else DEFAULT_INTERVAL_S,
            next((codec for codec in response.accepted_compression_types if codec in CODECS), 0),
            response.telemetry_max_bytes if response.telemetry_max_bytes > 0 else 1 << 20,
            response.delta_temporality,
            frozenset({""}) if "*" in response.requested_metrics else frozenset(response.requested_metrics),
        )

    def wants(self, name: str) -> bool:
        """True if a metric of this name is to be pushed."""
        # Looks up prefixes of the name, since a broker may request very many, and this runs on the driver's thread.
        return any(name[:end] in self.wanted for end in range(len(name) + 1))


class TelemetryRequest(NamedTuple):
    """A request for the subscription of `client` (zero if it has no id yet)."""

    client: UUID


class Push(NamedTuple):
    """A push under this subscription; `last`: no other follows."""

    client: UUID
    subscribed: TelemetrySubscription
    last: bool


class Telemetry:
    """State machine of one client's telemetry.

    `next_request` returns the request to send now, if any. Exactly one of `subscription`, `pushed`, `unanswered` and
    `stop` must follow. `chance` returns random numbers in [0, 1). Times are monotonic seconds. `stopped` is the reason
    why no more requests are sent, "" while they are.
    """

    def __init__(self, chance: Callable[[], float]) -> None:
        self.client = NO_CLIENT_INSTANCE_ID
        self.subscribed: TelemetrySubscription | None = None
        self.stopped = ""
        self._chance = chance
        self._due = -inf
        self._pushed_at: float | None = None
        self._under_way: TelemetryRequest | Push | None = None
        self._closing = False

    def next_request(self, now: float) -> TelemetryRequest | Push | None:
        """The request to send now, if any."""
        if self.stopped or self._under_way is not None:
            return None
        push = self.subscribed is not None and bool(self.subscribed.wanted)
        if self._closing and not push:
            self.stopped = "closed"
            return None
        if now < self._due and not self._closing:
            return None
        if push:
            assert self.subscribed is not None
            self._under_way = Push(self.client, self.subscribed, self._closing)
        else:
            self._under_way = TelemetryRequest(self.client)
        return self._under_way

    def next_poll_at(self) -> float | None:
        """The time (monotonic s) of the next request."""
        return None if self.stopped or self._under_way is not None or self._due == -inf else self._due

    def subscription(self, response: GetTelemetrySubscriptionsResponse, now: float) -> None:
        """Handle the response to a `TelemetryRequest`."""
        self._under_way = None
        if response.error_code:
            self._refused(SUBSCRIBE, response.error_code, now)
            return
        if self.client == NO_CLIENT_INSTANCE_ID:
            self.client = response.client_instance_id
        if self.client == NO_CLIENT_INSTANCE_ID:
            self.stop("the broker gives no id")
            return
        subscribed = self.subscribed = TelemetrySubscription.reported(response)
        if not subscribed.wanted:
            self._due = now + subscribed.interval_s
        elif self._pushed_at is None:
            self._due = now + subscribed.interval_s * (0.5 + self._chance())
        else:
            self._due = max(now, self._pushed_at + subscribed.interval_s)

    def pushed(self, error_code: int, now: float) -> bool:
        """Handle the response to a `Push`; returns True if it was accepted."""
        push, self._under_way = self._under_way, None
        self._pushed_at = now
        if isinstance(push, Push) and push.last:
            self.stopped = "closed"
        elif error_code:
            self._refused(PUSH, error_code, now)
        else:
            self._due = now + self._interval_s
        return not error_code

    def unanswered(self, now: float) -> None:
        """Handle a lost request. The subscription is requested again, since another broker may have another one."""
        self._under_way = None
        self._later(now)
        if self._closing:
            self.stopped = "closed"

    def stop(self, why: str) -> None:
        """Send no more requests."""
        self._under_way = None
        self.stopped = self.stopped or why

    def close(self) -> None:
        """Send a last push, if metrics are requested, and nothing after it."""
        self._closing = True

    @property
    def _interval_s(self) -> float:
        return self.subscribed.interval_s if self.subscribed is not None else DEFAULT_INTERVAL_S

    def _refused(self, api: str, code: int, now: float) -> None:
        match ERRORS.get(code, NextStep.STOP):
            case NextStep.SUBSCRIBE_NOW if api == PUSH:
                self.subscribed, self._due = self.subscribed and self.subscribed._replace(wanted=frozenset()), now
            case NextStep.SUBSCRIBE_NOW | NextStep.SUBSCRIBE_LATER:
                self._later(now)
            case NextStep.STOP:
                self.stop(f"{api}: {error_name(code)}")

    def _later(self, now: float) -> None:
        self._due = now + self._interval_s
        if self.subscribed is not None:
            self.subscribed = self.subscribed._replace(wanted=frozenset())  # so that it is requested again
