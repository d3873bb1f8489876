"""Coordinators of groups and transactions, and their look-up by FindCoordinator."""

from collections.abc import Callable
from enum import IntEnum

from kohort.common import KohortError
from kohort.common.named_tuple import NamedTuple
from kohort.network.backoff import FRESH, Backoff
from kohort.network.request_versions import fit
from kohort.network.requests import Endpoint, PendingRequest, RequestResult, ResponseReceived, SendFailed
from kohort.protocol.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.protocol.errors import BrokerError


class CoordinatorKind(IntEnum):
    """The key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def place(self) -> str:
        """The name of the key in errors."""
        return "group" if self is CoordinatorKind.GROUP else "transactional_id"


class CoordinatorNode(NamedTuple):
    """The broker that coordinates the group, as FindCoordinator named it."""

    node_id: int
    endpoint: Endpoint


class LookupFailure(NamedTuple):
    """The error of the last attempt, and the time (monotonic s) of the next one."""

    error: KohortError
    retry_at: float


class _Lookup:
    """The look-up of one coordinator: the result, or the failures so far."""

    __slots__ = ("attempts", "failure", "in_flight", "node")

    def __init__(self) -> None:
        self.node: CoordinatorNode | None = None
        self.in_flight = False
        self.attempts = FRESH
        self.failure: LookupFailure | None = None


def find_coordinator(kind: CoordinatorKind, key: str) -> FindCoordinatorRequest:
    """The request for one coordinator, of any version."""
    return FindCoordinatorRequest(key=key, key_type=int(kind), coordinator_keys=(key,))


def coordinator_partition(group_id: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` for a group. Its leader is the group's coordinator.

    It is Java's String.hashCode over UTF-16 units, then Kafka's Utils.abs. Utils.abs maps Integer.MIN_VALUE to 0.
    Masking the sign instead would give other partitions.
    """
    data = group_id.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(data[::2], data[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFF_FFFF
    signed = code - (1 << 32) if code & 0x8000_0000 else code
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


class CoordinatorFinder:
    """Coordinators, looked up when needed and forgotten when they turn out to be wrong.

    `send_to_any` passes a request to any broker; it fails after `timeout_s`. `chance` returns numbers in [0, 1).
    `refused` is called with errors that no retry cures: a BrokerError, or the reason why the request cannot be sent.
    """

    def __init__(
        self,
        send_to_any: Callable[[PendingRequest, float], None],
        timeout_s: float,
        backoff: Backoff,
        chance: Callable[[], float],
        refused: Callable[[CoordinatorKind, str, KohortError], None],
    ) -> None:
        self._send_to_any = send_to_any
        self._timeout_s = timeout_s
        self._backoff = backoff
        self._chance = chance
        self._refused = refused
        self._lookups: dict[tuple[CoordinatorKind, str], _Lookup] = {}

    def of(self, kind: CoordinatorKind, key: str, now: float) -> CoordinatorNode | None:
        """The coordinator; None while it is being looked up."""
        lookup = self._lookups.setdefault((kind, key), _Lookup())
        if lookup.node is None and not lookup.in_flight and lookup.attempts.may_try(now):
            self._send(kind, key, lookup, now)
        return lookup.node

    def known(self, kind: CoordinatorKind, key: str) -> CoordinatorNode | None:
        """The coordinator, if it was found; no look-up begins."""
        lookup = self._lookups.get((kind, key))
        return None if lookup is None else lookup.node

    def failure(self, kind: CoordinatorKind, key: str) -> LookupFailure | None:
        """The failure of the last attempt, if it failed."""
        lookup = self._lookups.get((kind, key))
        return None if lookup is None else lookup.failure

    def lost(self, endpoint: Endpoint) -> None:
        """Forget a broker that is not the coordinator or was not reached.

        It is looked up again when needed.
        """
        for lookup in self._lookups.values():
            if lookup.node is not None and lookup.node.endpoint == endpoint:
                lookup.node = None

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Keep nothing of a coordinator. An outcome of its look-up that is under way is ignored."""
        self._lookups.pop((kind, key), None)

    def next_poll_at(self) -> list[float | None]:
        """The times (monotonic s) of retries."""
        return [
            one.attempts.not_before for one in self._lookups.values() if one.attempts.failures and not one.in_flight
        ]

    def _send(self, kind: CoordinatorKind, key: str, lookup: _Lookup, now: float) -> None:
        request = find_coordinator(kind, key)

        def done(outcome: RequestResult, when: float) -> None:
            lookup.in_flight = False
            found = _result(outcome, kind, key)
            if isinstance(found, CoordinatorNode):
                lookup.node, lookup.attempts, lookup.failure = found, FRESH, None
                return
            lookup.attempts = lookup.attempts.failed(when, self._backoff, self._chance())
            lookup.failure = LookupFailure(found, lookup.attempts.not_before)
            if isinstance(outcome, SendFailed) or (isinstance(found, BrokerError) and not found.retriable):
                self._refused(kind, key, found)

        lookup.in_flight = True
        self._send_to_any(
            PendingRequest("FindCoordinator", lambda version: fit(request, version), done, self._timeout_s), now
        )


def _result(outcome: RequestResult, kind: CoordinatorKind, key: str) -> CoordinatorNode | KohortError:
    if not isinstance(outcome, ResponseReceived):
        return outcome.error
    response: FindCoordinatorResponse = outcome.value
    one = response.coordinators[0] if response.coordinators else response
    if not one.error_code:
        return CoordinatorNode(one.node_id, Endpoint(one.host, one.port))
    return BrokerError(one.error_code, one.error_message, api="FindCoordinator", **{kind.place: key})
