"""The protocol of the parts of a client that send requests, and functions that poll several of them."""

from collections.abc import Iterable
from typing import Protocol

from kohort.network.requests import PollResult, UnsentRequest


class RequestManager(Protocol):
    """A part of a client that sends requests. It is used under the driver's lock."""

    def poll(self, now: float) -> PollResult:
        """Handle what is due at `now` (monotonic s)."""
        ...


def earliest(now: float, times: Iterable[float | None]) -> float | None:
    """The earliest time after `now`.

    A time that has passed is left out. It had no request to send, and would make the driver spin.
    """
    first = None
    for one in times:
        if one is not None and one > now and (first is None or one < first):
            first = one
    return first


def poll_all(managers: Iterable[RequestManager], now: float) -> PollResult:
    """Poll each, in order. Returns all their requests and the earliest time."""
    requests: tuple[UnsentRequest, ...] = ()
    times: list[float | None] = []
    for one in managers:
        due, next_poll_at, _job = one.poll(now)
        requests += due
        times.append(next_poll_at)
    return PollResult(requests, earliest(now, times))
