"""Writes the log lines of a thread of drivers on another thread.

Handlers are code of the application. A handler may wait for a client: for the producer that sends the lines, for
instance. While it waits, it holds its own lock. A driver that waited for either would wait for itself.
"""

from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from kohort.common.log_context import keep_lines, write_lines
from kohort.network.promise import Helpers, Promise

if TYPE_CHECKING:
    import logging

MOST_KEPT: Final = 1_000
"""The most lines that are kept. The oldest are dropped if handlers are slower for long."""

PATIENCE_S: Final = 0.2
"""The time that a driver waits for its lines. Usual handlers are done sooner, before a caller is woken."""


class LogWriter:
    """The lines of the thread that makes it, and the thread that writes them."""

    def __init__(self) -> None:
        self._kept: deque[logging.LogRecord] = deque(maxlen=MOST_KEPT)
        keep_lines(self._kept)
        self._helpers: Helpers | None = None
        self._writing: Promise[None] | None = None

    def write(self) -> None:
        """Have the kept lines written. While a handler is busy with earlier ones, they are kept."""
        if self._kept and (self._writing is None or self._writing.done()):
            self._hand_over()

    def end(self) -> None:
        """Have the last lines written, and keep no more."""
        keep_lines(None)
        if self._kept:
            self._hand_over()
        if self._helpers is not None:
            self._helpers.stop()

    def _hand_over(self) -> None:
        if self._helpers is None:
            self._helpers = Helpers(1, "kohort-log")
        lines = list(self._kept)
        self._kept.clear()
        self._writing = self._helpers.start(partial(write_lines, lines))
        with suppress(TimeoutError):
            self._writing.exception(PATIENCE_S)
