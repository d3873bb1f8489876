"""Waiting with a limit in asyncio, for the clients that an event loop uses."""

import asyncio
import contextlib
from collections.abc import Callable


class TimedEvent:
    """An `asyncio.Event` of which `wait` has a limit.

    An interrupt may leave a waiter and its timer behind, which then do nothing. The end of an `asyncio.timeout` is a
    coroutine of its own: where an interrupt skips that, the task is cancelled when the time is over.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: set[asyncio.Future[bool]] = set()

    def set(self) -> None:
        """Wake all that wait."""
        self._is_set = True
        for waiter in tuple(self._waiters):
            _settle(waiter, True)

    def clear(self) -> None:
        """Let `wait` wait again."""
        self._is_set = False

    async def wait(self, timeout_s: float) -> bool:
        """Wait until it is set. Returns False after `timeout_s` seconds."""
        if self._is_set:
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(timeout_s, _settle, waiter, False)
        try:
            self._waiters.add(waiter)
            return await waiter
        finally:
            timer.cancel()
            self._waiters.discard(waiter)


def _settle(waiter: asyncio.Future[bool], value: bool) -> None:
    if not waiter.done():
        waiter.set_result(value)


def call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Call a function soon, on the loop's thread. From any thread."""
    with contextlib.suppress(RuntimeError):  # the loop may have been closed under a consumer that was not
        loop.call_soon_threadsafe(call)
