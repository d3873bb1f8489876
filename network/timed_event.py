"""Waiting with a limit in asyncio, for the clients that an event loop uses."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kohort.network.errors import IllegalState

if TYPE_CHECKING:
    from kohort.network.network_client import Driver


class TimedEvent:
    """An `asyncio.Event` of which `wait` has a limit. All waits are in one event loop.

    The waits share a timer, which outlasts them: most waits end long before it, and so need none of their own. An
    interrupt may leave a waiter or the timer behind, which then do nothing. The end of an `asyncio.timeout` is a
    coroutine of its own: where an interrupt skips that, the task is cancelled when the time is over.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._waiters: dict[asyncio.Future[bool], float] = {}  # with the end of each wait, by the loop's clock
        self._timer: asyncio.TimerHandle | None = None

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
        now = loop.time()
        until = now + timeout_s
        try:
            self._waiters[waiter] = until
            if self._timer is None or not now < self._timer.when() <= until:
                self._arm(loop, until)
            return await waiter
        finally:
            self._waiters.pop(waiter, None)

    def _arm(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        # The new timer comes first: an interrupt in between leaves two, of which one does nothing.
        before, self._timer = self._timer, loop.call_at(at, self._expire, loop)
        if before is not None:
            before.cancel()

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the waits whose time is over, and wait for the next end."""
        now, later = loop.time(), []
        for waiter, until in tuple(self._waiters.items()):
            if until <= now:
                _settle(waiter, False)
            else:
                later.append(until)
        if later:
            self._arm(loop, min(later))


def _settle(waiter: asyncio.Future[bool], value: bool) -> None:
    if not waiter.done():
        waiter.set_result(value)


def call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Call a function soon, on the loop's thread. From any thread."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:  # the loop may have been closed under a consumer that was not
        return


async def stopped(driver: "Driver[Any]", loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
    """Stop a driver, and wait for its end, at most so long."""
    over = TimedEvent()
    driver.stop_soon()
    driver.ended.then(partial(call_in, loop, over.set))
    if await over.wait(timeout_s):
        driver.stop(1.0)  # its thread has nothing left to do


def other_loop(client: str) -> IllegalState:
    """The error of a call in another event loop than that of the client."""
    return IllegalState(
        f"an {client} belongs to the event loop that it was made in", hint="make one in the loop that uses it"
    )


def check_loop(loop: asyncio.AbstractEventLoop, client: str) -> None:
    """Raise IllegalState in another event loop than `loop`, whose tasks alone the client wakes."""
    if asyncio.get_running_loop() is not loop:
        raise other_loop(client)
