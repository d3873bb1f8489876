"""Requests that any broker can serve. Each is sent to one broker, and to another if the response is late or lost."""

from collections.abc import Callable, Collection
from typing import Final, Protocol

from kohort.network.connection_states import ConnectionStates
from kohort.network.request_manager import earliest
from kohort.network.requests import (
    ConnectionPurpose,
    Endpoint,
    NoResponse,
    PendingRequest,
    PollResult,
    RequestResult,
    UnsentRequest,
)

ELSEWHERE_S: Final = 2.0
"""After this time without a response a request is also sent to the next broker."""


class Picks(Protocol):
    """Returns the address to send to now, without those of `but`; None if there is none."""

    def __call__(self, now: float, but: Collection[Endpoint] = ()) -> Endpoint | None: ...


class _HedgedRequest:
    """`requested`: the addresses used so far. `waiting`: those without a response yet. None is the driver's choice."""

    __slots__ = ("next_at", "pending", "requested", "until", "waiting")

    def __init__(self, pending: PendingRequest, now: float, next_at: float) -> None:
        self.pending = pending
        self.until = now + pending.timeout_s
        self.next_at = next_at
        self.requested: set[Endpoint] = set()
        self.waiting: set[Endpoint | None] = set()


class HedgedRequests:
    """The hedged requests of one client.

    `patience_s` gives the time (s) to wait before another broker is tried.
    """

    def __init__(
        self,
        endpoints: ConnectionStates,
        pick: Picks,
        patience_s: Callable[[], float],
    ) -> None:
        self._endpoints = endpoints
        self._pick = pick
        self._patience_s = patience_s
        self._hedged: list[_HedgedRequest] = []
        self._unsent: list[UnsentRequest] = []

    def send(self, pending: PendingRequest, now: float) -> None:
        """Send a request that changes nothing, since several brokers may receive it.

        Its `done` gets the first response. It gets a failure once none is outstanding and no address is left to try.
        """
        hedged = _HedgedRequest(pending, now, now + self._patience_s())
        self._hedged.append(hedged)
        self._put(hedged, self._pick(now), now)

    def poll(self, now: float) -> PollResult:
        """Send again, to another broker, what has waited long enough. Returns all requests that are not sent yet."""
        for hedged in [one for one in self._hedged if now >= one.next_at]:
            hedged.next_at = now + self._patience_s()
            endpoint = self._pick(now, hedged.requested) if now < hedged.until else None
            if endpoint is not None:
                for late in hedged.waiting:
                    if late is not None:
                        self._endpoints.late(late)
                self._put(hedged, endpoint, now)
        unsent, self._unsent = tuple(self._unsent), []
        return PollResult(unsent, earliest(now, (one.next_at for one in self._hedged)))

    def _put(self, hedged: _HedgedRequest, endpoint: Endpoint | None, now: float) -> None:
        def done(outcome: RequestResult, when: float) -> None:
            hedged.waiting.discard(endpoint)
            if hedged not in self._hedged:
                return
            if isinstance(outcome, NoResponse):
                if hedged.waiting:
                    return
                if when < hedged.until and (other := self._pick(when, hedged.requested)) is not None:
                    self._put(hedged, other, when)
                    return
            self._hedged.remove(hedged)
            hedged.pending.done(outcome, when)

        hedged.waiting.add(endpoint)
        if endpoint is not None:
            hedged.requested.add(endpoint)
        request = hedged.pending._replace(done=done, timeout_s=hedged.until - now)
        self._unsent.append(UnsentRequest(ConnectionPurpose.CONTROL, endpoint, request))
