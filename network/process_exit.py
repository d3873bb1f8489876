"""The interpreter's end: an open consumer leaves its group, and a producer's records get a short time for
acknowledgement.

The group need not wait for the session timeout then.
"""

import atexit
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kohort.network.network_client import Driver


def warn_unclosed(
    kind: str, client_id: str, group: str | None, driver: "Driver[Any]", stop: Callable[[], None] | None = None
) -> None:
    """Warn with ResourceWarning of a client that was not closed, and stop its driver, by `stop` if given. For
    `__del__`.

    It does nothing in a forked child, because the driver belongs to the parent.
    """
    if driver.is_forked:
        return
    of = f" of group {group!r}" if group else ""
    try:
        warnings.warn(f"unclosed {kind} {client_id!r}{of}: call close(), or use `with`", ResourceWarning, stacklevel=2)
    finally:  # warnings may be errors
        _DROPPED.add(driver)
        driver.ended.then(partial(_DROPPED.discard, driver))
        # An interrupt in `start` may leave a driver without a loop, and so without the turn in which `stop` has effect.
        (stop if stop is not None and driver.turns else driver.stop_soon)()


OPEN: "weakref.WeakKeyDictionary[Any, Callable[[Any, float], object]]" = weakref.WeakKeyDictionary()
"""The clients to be closed at the interpreter's end, each with a function that closes it within a time (s)."""

_DROPPED: "set[Driver[Any]]" = set()
"""The drivers of clients that were dropped unclosed, until they have ended."""

EXIT_S = 5.0
LEAST_EXIT_S: Final = 0.5
"""A client gets this time, though others have used `EXIT_S`. Records and heartbeats of all went on meanwhile."""
TERMINATED: Final = 143  # 128 + SIGTERM, as in a shell


@atexit.register
def _close_all() -> None:
    until = time.monotonic() + EXIT_S
    for client, close in list(OPEN.items()):
        try:
            close(client, max(until - time.monotonic(), LEAST_EXIT_S))
        except KeyboardInterrupt:
            raise
        except BaseException:  # a callback may raise SystemExit, and other clients are closed all the same
            continue
    until = max(until, time.monotonic() + LEAST_EXIT_S)  # for all together, since they end side by side
    for driver in list(_DROPPED):
        if not driver.is_forked:
            driver.ended.wait(until - time.monotonic())


@contextmanager
def on_sigterm(act: Callable[[], object]) -> Iterator[None]:
    """SIGTERM calls `act` while this is open, on the main thread only. On other threads signals are not handled.

    A forked child handles SIGTERM as before. Else nothing but SIGKILL could end it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    import signal

    owner = os.getpid()

    def handle(number: int, _frame: object) -> None:
        if os.getpid() == owner:
            act()
            return
        signal.signal(number, signal.SIG_DFL if before is None else before)
        signal.raise_signal(number)

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        if before is not None:  # it was not set by Python, which cannot set it again
            signal.signal(signal.SIGTERM, before)


def exit_on_sigterm() -> AbstractContextManager[None]:
    """SIGTERM exits with the code 143 while this is open, as `on_sigterm`. `with` blocks of the main thread end."""
    return on_sigterm(lambda: sys.exit(TERMINATED))
