"""SIGTERM, for as long as something runs that has to end in order."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_sigterm(act: Callable[[], object]) -> Iterator[None]:
    """SIGTERM calls `act` while this is open, on the main thread; elsewhere signals are somebody else's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: act())
    try:
        yield
    finally:
        if before is not None:  # it was not set by Python, which cannot set it again
            signal.signal(signal.SIGTERM, before)
