"""The access of a user's threads to the core of a client."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from kohort.network.network_client import Driven, Driver
from kohort.network.promise import Promise

LONGEST_WAIT_S: Final = 1.0
"""Interval at which a waiting call checks that the driver is running."""

T = TypeVar("T")
C = TypeVar("C", bound=Driven)


class ClientHandle(Generic[C]):
    """Reads and changes a core, and waits for it.

    A signal handler may raise in the main thread after each call. So the driver's thread makes the changes. Every
    method raises ForkError in a forked child, in which the lock may be held for ever.
    """

    def __init__(self, driver: Driver[C]) -> None:
        self._driver = driver

    @property
    def core(self) -> C:
        """The core, which is read under the lock only."""
        return self._driver.core

    def check(self) -> None:
        """Raises KohortError if the driver has ended by a defect."""
        self._driver.check_same_process()
        self._driver.check()

    def call(self, change: Callable[[C], T]) -> T:
        """Have the driver change the core; returns the value of `change`, or raises its error."""
        self._driver.check_same_process()
        return self._driver.execute(change)

    def add(self, change: Callable[[C], T]) -> T:
        """As `call`, for a change that adds commits, and changes nothing else."""
        self._driver.check_same_process()
        return self._driver.execute(change, adds=True)

    def read(self, look: Callable[[C], T]) -> T:
        """The value of `look`, which changes nothing, under the lock."""
        self._driver.check_same_process()
        return self._driver.lock.run(look, self._driver.core)

    def wait_for(
        self, look: Callable[[], T | None], timeout_s: float, before_wait: Callable[[C], object] | None = None
    ) -> T | None:
        """The first value of `look` that is not None; None after `timeout_s` seconds.

        `look` is called under the lock after every update. The driver calls `before_wait` before each wait.
        """
        driver = self._driver
        driver.check_same_process()
        until: float | None = None
        while True:
            seen = driver.bell.rings
            found = driver.lock.run(look)
            if found is not None:
                return found
            driver.check()
            if before_wait is not None:
                driver.execute(before_wait)
            now = driver.now()
            if until is None:
                until = now + timeout_s
            if now >= until:
                return None
            driver.bell.wait(seen, min(until - now, LONGEST_WAIT_S))

    def result(self, promise: Promise[T], timeout_s: float) -> T:
        """The value of a promise that the driver's thread keeps. Raises its error, or TimeoutError."""
        driver = self._driver
        until = driver.now() + timeout_s
        while not promise.done():
            self.check()
            left = until - driver.now()
            with suppress(TimeoutError):
                promise.exception(min(left, LONGEST_WAIT_S))
            if left <= 0:
                break
        return promise.result(0.0)
