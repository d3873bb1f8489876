"""Limits the connections of one thread to one address that have no response yet.

A broker accepts connections one by one. Once its backlog (50 by default) is full, its system drops new ones. They are
repeated after 1, 3 and 7 s, so hundreds of clients of one process would wait that long.
"""

from collections.abc import Callable
from typing import Final

from kohort.network.requests import Endpoint
from kohort.network.transport import Channel

MOST_AT_ONCE: Final = 4
"""Of a thread. A process has at most 8 of them (see `event_loop.py`)."""

EACH_S: Final = 0.02
"""A distant broker may respond late. The next channel waits no longer for it."""

LONGEST_WAIT_S: Final = 3.0
"""A channel waits no longer than if the broker's system had dropped it."""


class ConnectQueue:
    """The channels that connect, and those that wait until one of these has a response. Used by one thread."""

    def __init__(self) -> None:
        self._connecting: dict[Endpoint, set[Channel]] = {}
        self._waiting: dict[Endpoint, dict[Channel, Callable[[], None]]] = {}

    def enter(self, channel: Channel, connect: Callable[[], None]) -> float:
        """Call `connect`, now or later. Returns the longest wait in seconds, after which `wait_no_longer` is due."""
        waiting = self._waiting.setdefault(channel.endpoint, {})
        waiting[channel] = connect
        wait_s = min(len(waiting) * EACH_S, LONGEST_WAIT_S)
        self._go_on(channel.endpoint)
        return wait_s if channel in waiting else 0.0

    def leave(self, channel: Channel) -> None:
        """The channel has a response, or has ended."""
        self._connecting.get(channel.endpoint, set()).discard(channel)
        self._waiting.get(channel.endpoint, {}).pop(channel, None)
        self._go_on(channel.endpoint)

    def wait_no_longer(self, channel: Channel) -> None:
        """Connect a channel that waits."""
        connect = self._waiting[channel.endpoint].pop(channel)
        self._connecting.setdefault(channel.endpoint, set()).add(channel)
        connect()

    def _go_on(self, endpoint: Endpoint) -> None:
        waiting = self._waiting.get(endpoint)
        while waiting and len(self._connecting.get(endpoint, ())) < MOST_AT_ONCE:
            self.wait_no_longer(next(iter(waiting)))
        for channels in (self._connecting, self._waiting):
            if not channels.get(endpoint):
                channels.pop(endpoint, None)
