"""A value that the driver's thread gives and a caller waits for.

`concurrent.futures.Future` has a `threading.Condition` inside. A signal handler that raises while the main thread waits
for it can leave that locked, and the driver's thread would then wait for it without end.
"""

from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Generic, TypeVar

from kohort.fastpath._guard import Bell

T = TypeVar("T")


class Promise(Generic[T]):
    """One value or one error, set once."""

    __slots__ = ("_bell", "_callbacks", "_done", "_error", "_value")

    def __init__(self) -> None:
        self._bell = Bell()
        self._callbacks: deque[Callable[[Promise[T]], object]] = deque()
        self._done = False
        self._error: BaseException | None = None
        self._value: T | None = None

    def done(self) -> bool:
        """It has its value or its error."""
        return self._done

    def set_result(self, value: T) -> None:
        """Give the value; wake all that wait."""
        self._value = value
        self._settle()

    def set_exception(self, error: BaseException) -> None:
        """Give the error, which `result` then raises."""
        self._error = error
        self._settle()

    def exception(self) -> BaseException | None:
        """The error of a promise that is done; None if it has a value."""
        return self._error

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the value. Raises the error, or TimeoutError after `timeout_s` seconds (None: never)."""
        until = inf if timeout_s is None else monotonic() + timeout_s
        while not self._done:
            if not self._bell.wait(0, until - monotonic()):
                raise TimeoutError("no value in time")
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # it is done, and this is what it was given

    def add_done_callback(self, callback: Callable[["Promise[T]"], object]) -> None:
        """Call `callback(self)` once it is done, on the thread that sets it; at once if it is done."""
        self._callbacks.append(callback)
        if self._done:
            self._call_back()

    def _settle(self) -> None:
        self._done = True
        self._bell.ring()
        self._call_back()

    def _call_back(self) -> None:
        while self._callbacks:  # both threads may be here: each callback is taken once
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                return
            callback(self)
