"""Writes the log lines of a thread of drivers on another thread.

Handlers are code of the application. A handler may wait for a client: for the producer that sends the lines, for
instance. While it waits, it holds its own lock. A driver that waited for either would wait for itself.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kohort.common.log_context import write_lines
from kohort.network.promise import Helpers, Promise

if TYPE_CHECKING:
    import logging
    from collections import deque
    from collections.abc import Iterator

PATIENCE_S: Final = 0.2
"""The time that a driver waits for its lines. Usual handlers are done sooner, before a caller is woken."""


class LogWriter:
    """The thread that writes the lines that are in `kept`."""

    def __init__(self, kept: "deque[logging.LogRecord]") -> None:
        self._kept = kept
        self._helpers = Helpers(1, "kohort-log")
        self._writing: Promise[None] | None = None

    def write(self) -> None:
        """Have the kept lines written. While a handler is busy with earlier ones, they are kept and follow them."""
        if self._writing is None or self._writing.done():
            self._start()

    def end(self) -> None:
        """Have the last lines written."""
        if self._kept:
            self._start()
        self._helpers.stop()

    def _start(self) -> None:
        self._writing = self._helpers.start(self._write)
        with suppress(TimeoutError):
            self._writing.exception(PATIENCE_S)

    def _write(self) -> None:
        write_lines(self._lines())

    def _lines(self) -> "Iterator[logging.LogRecord]":
        with suppress(IndexError):
            while True:
                yield self._kept.popleft()
