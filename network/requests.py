"""Requests that the core hands to the driver, their connection, and the time of the next poll."""

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

from kohort.common import KohortError
from kohort.common.foreign_text import escaped
from kohort.common.named_tuple import NamedTuple

VersionRanges = Mapping[int, tuple[int, int]]


class FinalizedFeatures(NamedTuple):
    """The levels of a cluster's features, by name, and the epoch that grows with every change (KIP-584)."""

    epoch: int
    levels: Mapping[str, int]


NO_FEATURES = FinalizedFeatures(-1, MappingProxyType({}))


class Endpoint(NamedTuple):
    """The address of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{escaped(self.host)}:{self.port}"

    @property
    def place(self) -> dict[str, Any]:
        """The place of an error."""
        return {"host": self.host, "port": self.port}


class BrokerIdentity(NamedTuple):
    """The broker that a client expects at an address, by the metadata (KIP-1242)."""

    cluster_id: str
    node_id: int


class ResponseReceived(NamedTuple):
    """The broker responded with `value`, in `version` of the API."""

    value: Any
    version: int


class SendFailed(NamedTuple):
    """Never sent, and trying again would not help: no common version, values that cannot be carried."""

    error: KohortError


class NoResponse(NamedTuple):
    """Sent or not, no response will come: the connection ended, was refused, or the time was up.

    `called` is False if no connection was tried: a broker that failed is not called again before its back-off ends.
    """

    error: KohortError
    timed_out: bool = False
    called: bool = True


NOTHING_FOLLOWS = b""
"""From a response that `PendingRequest.follow_up` has handled: there is no next request."""
USUAL_BYTES = 4096
"""A larger response is handled in a turn, which bounds the memory of its values."""

RequestResult = ResponseReceived | SendFailed | NoResponse


def was_called(outcome: RequestResult) -> bool:
    """False if no connection was tried, so that metrics count no request."""
    return not isinstance(outcome, NoResponse) or outcome.called


class PendingRequest(NamedTuple):
    """A request on its way. `request`: the typed value, or a function of the version that makes it.

    `done` is called once, by the driver, with the outcome and the time. Without `has_response`, the outcome
    ResponseReceived(None) means that the request was written to the socket.

    `follow_up` is offered each response first, as (frame with its length, version, time), under the driver's lock. It
    handles the response and returns the body of the next request, in the same version. `done` then gets the outcome of
    that request. NOTHING_FOLLOWS: `done` gets none. None: it has changed nothing.
    """

    api: str
    request: Any
    done: Callable[[RequestResult, float], None]
    timeout_s: float
    max_version: int | None = None
    min_version: int | None = None
    follow_up: Callable[[memoryview, int, float], bytes | None] | None = None
    has_response: bool = True


Outcomes = list[tuple[PendingRequest, RequestResult]]
"""Requests that have ended, in the order of their results."""


class AwaitedResponse(NamedTuple):
    """The request of a connection whose response is awaited, and its version. `deadline`: monotonic s."""

    request: PendingRequest
    version: int
    deadline: float


class Stage(Enum):
    """The stage of a connection's setup."""

    OPENING = "opening"  # TCP and TLS: nothing can be written yet
    AUTHENTICATING = "authenticating"  # SASL: everything else waits
    CHECKING_API_VERSIONS = "requesting versions"  # ApiVersions is in flight, everything else waits
    CHECKING_CLUSTER = "requesting the cluster's id"  # Metadata is in flight, everything else waits
    READY = "ready"
    ENDED = "ended"


class ConnectionPurpose(Enum):
    """The connection to a broker that a request uses. The coordinator's is separate (G-02).

    Fetch requests have their own, because a Fetch that waits at the broker delays all requests behind it. Metrics have
    their own, because the broker's metrics plugin may be slow.
    """

    __hash__ = object.__hash__  # that of an Enum is a call of Python, for each request

    CONTROL = "control"
    GROUP = "group"
    DATA = "data"
    TELEMETRY = "telemetry"


class UnsentRequest(NamedTuple):
    """A request, its connection and its address; None means any broker.

    `use_new_connection`: close the existing connection and open a new one.
    """

    purpose: ConnectionPurpose
    endpoint: Endpoint | None
    request: PendingRequest
    use_new_connection: bool = False


class BackgroundJob(NamedTuple):
    """Work that may take long: `run` is called on another thread, and `done` with its result, under the lock.

    The jobs of a client run one at a time. A job that has not begun is dropped when a newer one is handed in.
    """

    thread_name: str
    run: Callable[[], Any]
    done: Callable[[Any], None]


class PollResult(NamedTuple):
    """The driver's work: send `requests` in order, start `job`, poll again.

    `next_poll_at` is the time (monotonic s) of the next poll if nothing happens.
    """

    requests: tuple[UnsentRequest, ...]
    next_poll_at: float | None
    job: BackgroundJob | None = None
