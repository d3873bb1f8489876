"""What a broker wants to know of its clients, and when it is told (KIP-714): a pure machine.

A client asks for a subscription, pushes at the broker's interval (the first time after a random part of it, so that a
thousand clients do not push at once), asks again when the broker says that the subscription has changed, and pushes a
last time when it closes. Nothing here matters to the client itself: whatever goes wrong ends in silence.
"""

from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Final, NamedTuple
from uuid import UUID

from kohort.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from kohort.protocol.errors import CODES, error_name

ASK: Final = "GetTelemetrySubscriptions"
PUSH: Final = "PushTelemetry"
NO_CLIENT_INSTANCE_ID: Final = UUID(int=0)
DEFAULT_INTERVAL_S: Final = 300.0
"""Where a broker has not said how often, or said nonsense: as often as one does by default."""

SHORTEST_S: Final = 0.1
"""No broker lets its owner ask for more often; one that does is not well."""

CODECS: Final = frozenset(range(1, 5))
"""What we can compress with, by Kafka's numbers; 0 is always taken."""


class NextStep(Enum):
    """What an error leads to."""

    ASK_NOW = "ask for the subscription at once"
    ASK_LATER = "ask for the subscription after the interval"
    STOP = "say nothing more"


ERRORS: Final = {
    CODES["UNKNOWN_SUBSCRIPTION_ID"]: NextStep.ASK_NOW,
    CODES["UNSUPPORTED_COMPRESSION_TYPE"]: NextStep.ASK_NOW,
    CODES["TELEMETRY_TOO_LARGE"]: NextStep.ASK_LATER,
    CODES["THROTTLING_QUOTA_EXCEEDED"]: NextStep.ASK_LATER,
}
"""Any other error would come again: it stops everything."""


class TelemetrySubscription(NamedTuple):
    """The broker's subscription. `codec`: Kafka's number. `wanted`: prefixes of names, "" for all. `delta`: counters as
    differences.
    """

    number: int
    interval_s: float
    codec: int
    most_bytes: int
    delta: bool
    wanted: frozenset[str]

    @classmethod
    def told(cls, answer: GetTelemetrySubscriptionsResponse) -> "TelemetrySubscription":
        """The first codec that we have, in the broker's order."""
        interval_s = answer.push_interval_ms / 1000
        return cls(
            answer.subscription_id,
            max(interval_s, SHORTEST_S) if interval_s > 0 else DEFAULT_INTERVAL_S,
            next((codec for codec in answer.accepted_compression_types if codec in CODECS), 0),
            answer.telemetry_max_bytes if answer.telemetry_max_bytes > 0 else 1 << 20,
            answer.delta_temporality,
            frozenset({""}) if "*" in answer.requested_metrics else frozenset(answer.requested_metrics),
        )

    def wants(self, name: str) -> bool:
        """Whether a metric of this name is to be pushed."""
        # By the name's own prefixes: a broker may request a million of them, and this runs on the driver's thread.
        return any(name[:end] in self.wanted for end in range(len(name) + 1))


class TelemetryRequest(NamedTuple):
    """Ask for the subscription of `client` (zero: one that has no id yet)."""

    client: UUID


class Push(NamedTuple):
    """Push under this subscription; `last`: there will be no other."""

    client: UUID
    subscribed: TelemetrySubscription
    last: bool


class Telemetry:
    """`owed` gives what to send now, if anything; then exactly one of `answered`, `unanswered` and `stop` must follow.

    `chance` gives numbers in [0, 1). Times are monotonic seconds. `stopped`: why nothing is said any more, "" while it
    goes on.
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
        """What to send now."""
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
        """When `owed` should be asked again if nothing happens."""
        return None if self.stopped or self._under_way is not None or self._due == -inf else self._due

    def subscription(self, answer: GetTelemetrySubscriptionsResponse, now: float) -> None:
        """The answer to an `Ask`."""
        self._under_way = None
        if answer.error_code:
            self._refused(ASK, answer.error_code, now)
            return
        if self.client == NO_CLIENT_INSTANCE_ID:
            self.client = answer.client_instance_id
        if self.client == NO_CLIENT_INSTANCE_ID:
            self.stop("the broker gives no id")
            return
        subscribed = self.subscribed = TelemetrySubscription.told(answer)
        if not subscribed.wanted:
            self._due = now + subscribed.interval_s
        elif self._pushed_at is None:
            self._due = now + subscribed.interval_s * (0.5 + self._chance())
        else:
            self._due = max(now, self._pushed_at + subscribed.interval_s)

    def pushed(self, error_code: int, now: float) -> bool:
        """The answer to a `Push`; whether it was taken."""
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
        """No answer will come; another broker may know of other wishes."""
        self._under_way = None
        self._later(now)
        if self._closing:
            self.stopped = "closed"

    def stop(self, why: str) -> None:
        """Say nothing more."""
        self._under_way = None
        self.stopped = self.stopped or why

    def close(self) -> None:
        """The client closes: a last push, if any is wanted, and no more."""
        self._closing = True

    @property
    def _interval_s(self) -> float:
        return self.subscribed.interval_s if self.subscribed is not None else DEFAULT_INTERVAL_S

    def _refused(self, api: str, code: int, now: float) -> None:
        match ERRORS.get(code, NextStep.STOP):
            case NextStep.ASK_NOW if api == PUSH:
                self.subscribed, self._due = self.subscribed and self.subscribed._replace(wanted=frozenset()), now
            case NextStep.ASK_NOW | NextStep.ASK_LATER:
                self._later(now)
            case NextStep.STOP:
                self.stop(f"{api}: {error_name(code)}")

    def _later(self, now: float) -> None:
        self._due = now + self._interval_s
        if self.subscribed is not None:
            self.subscribed = self.subscribed._replace(wanted=frozenset())  # so that it is asked for anew
