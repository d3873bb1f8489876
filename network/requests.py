"""The core's output for the driver: requests, their connections, and the time of the next poll."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from kohort.common import KohortError
from kohort.common.foreign_text import escaped
from kohort.coordinator_client.group.leader_assignment import PlanOrder

VersionRanges = Mapping[int, tuple[int, int]]


class Endpoint(NamedTuple):
    """The address of a broker's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{escaped(self.host)}:{self.port}"


class ResponseReceived(NamedTuple):
    """The broker answered with `value`, in `version` of the API."""

    value: Any
    version: int


class SendFailed(NamedTuple):
    """Never sent, and trying again would not help: no common version, values that cannot be carried."""

    error: KohortError


class NoResponse(NamedTuple):
    """Sent or not, no answer will come: the connection ended, was refused, or the time was up."""

    error: KohortError
    timed_out: bool = False


RequestResult = ResponseReceived | SendFailed | NoResponse


class PendingRequest(NamedTuple):
    """A request on its way. `request`: the typed value, or a function of the version that makes it.

    `done` is called once, by the driver, with the outcome and the time.
    """

    api: str
    request: Any
    done: Callable[[RequestResult, float], None]
    timeout_s: float
    max_version: int | None = None


class ConnectionPurpose(Enum):
    """The purposes of a broker's connections. The coordinator has its own (G-02), and so do fetches: a Fetch that waits
    at the broker holds up everything behind it. Metrics would too, if the plugin that takes them is slow."""

    CONTROL = "control"
    GROUP = "group"
    DATA = "data"
    TELEMETRY = "telemetry"


class UnsentRequest(NamedTuple):
    """A request, the connection it goes by, and where that leads; None: any broker. `renew`: by a new connection, while
    the one that is there is closed."""

    purpose: ConnectionPurpose
    endpoint: Endpoint | None
    request: PendingRequest
    use_new_connection: bool = False


class PollResult(NamedTuple):
    """The work of the driver: send `requests` in order, run `plan` on another thread, and poll again at `next_poll_at`
    (s, monotonic) if nothing happens."""

    requests: tuple[UnsentRequest, ...]
    next_poll_at: float | None
    plan: PlanOrder | None = None
