"""Promises, flags and threads that a signal handler raising in the main thread never leaves half done.

`concurrent.futures.Future`, `threading.Event` and `Thread.start` have a `threading.Condition` inside. A handler that
raises while the main thread is in one of its methods can leave it locked, and the other thread waits without end.
"""

import _thread
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any, Generic, TypeVar, TypeVarTuple

from kohort.network._guard import Bell

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


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
        """Set the value, and wake all waiting threads."""
        self._value = value
        self._settle()

    def set_exception(self, error: BaseException) -> None:
        """Give the error, which `result` then raises."""
        self._error = error
        self._settle()

    def end(self, outcome: T | BaseException) -> None:
        """Set the error, or else the value."""
        if isinstance(outcome, BaseException):
            self.set_exception(outcome)
        else:
            self.set_result(outcome)

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Wait for the end: the error, None if there is a value. Raises TimeoutError as `result` does."""
        until = inf if timeout_s is None else monotonic() + timeout_s
        while not self._done:
            if not self._bell.wait(0, until - monotonic()):
                raise TimeoutError("no value in time")
        return self._error

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the value. Raises the error, or TimeoutError after `timeout_s` seconds (None: never)."""
        error = self.exception(timeout_s)
        if error is not None:
            raise error
        return self._value  # type: ignore[return-value]  # it is done, and this is what it was given

    def add_done_callback(self, callback: Callable[["Promise[T]"], object]) -> None:
        """Call `callback(self)` once it is done, on the thread that sets it; at once if it is done."""
        self._callbacks.append(callback)
        if self._done:
            self._call_back()

    def give(self, function: Callable[[*Ts], T], *args: *Ts) -> None:
        """Give what `function` returns or raises."""
        try:
            value = function(*args)
        except BaseException as error:
            self.set_exception(error)
        else:
            self.set_result(value)

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


class Flag:
    """As `threading.Event`, set once."""

    __slots__ = ("_promise",)

    def __init__(self) -> None:
        self._promise: Promise[None] = Promise()

    def is_set(self) -> bool:
        """It was set."""
        return self._promise.done()

    def set(self) -> None:
        """Wake all waiting threads, and call the functions given to `then`."""
        self._promise.set_result(None)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set. Returns False after `timeout_s` seconds."""
        try:
            self._promise.result(timeout_s)
        except TimeoutError:
            return False
        return True

    def then(self, call: Callable[[], object]) -> None:
        """Call once it is set, on the thread that sets it; at once if it is set."""
        self._promise.add_done_callback(lambda _promise: call())


def run_uninterrupted(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call on another thread, where no handler runs, and wait for the value. An interrupt ends the wait only."""
    if threading.current_thread() is not threading.main_thread() or sys.is_finalizing():
        return function(*args)  # a thread that is started now never runs: Python 3.11 starts it without an error
    promise: Promise[T] = Promise()
    try:
        _thread.start_new_thread(promise.give, (function, *args))
    except RuntimeError:  # the interpreter is ending, and starts no more threads
        return function(*args)
    return promise.result()


class Helpers:
    """Threads that run jobs beside each other."""

    def __init__(self, count: int, name: str) -> None:
        from queue import SimpleQueue  # 0.4 ms, which only large batches need

        self._jobs: SimpleQueue[tuple[Promise[Any], Callable[[], Any]] | None] = SimpleQueue()
        self.count = 0  # of threads; without any, jobs run on the caller's thread
        run_uninterrupted(self._start, count, name)

    def _start(self, count: int, name: str) -> None:
        with suppress(RuntimeError):  # the system starts no more threads
            while self.count < count:
                threading.Thread(target=self._run, name=f"{name}_{self.count}", daemon=True).start()
                self.count += 1

    def _run(self) -> None:
        while (one := self._jobs.get()) is not None:
            promise, job = one
            promise.give(job)
            del one, promise, job  # else what it returned lives until the next job

    def start(self, job: Callable[[], T]) -> Promise[T]:
        """Run a job, and return its result as a promise."""
        promise: Promise[T] = Promise()
        if self.count:
            self._jobs.put((promise, job))
        else:
            promise.give(job)
        return promise

    def run(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """The results of the jobs, in order. Raises the error of the first job that raises."""
        return [promise.result() for promise in [self.start(job) for job in jobs]]

    def stop(self) -> None:
        """End the threads after what they have to do."""
        for _ in range(self.count):
            self._jobs.put(None)
