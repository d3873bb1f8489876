"""Logging context: every log line of a client names it, in the record's fields and at the line's end.

A filter on each logger adds missing fields, so a format string may always name them. A thread sets its client once
(`set_log_context`), and a line may name more fields (`extra=`). Nothing is printed unless the application configures
logging. A process that has not imported `logging` has no handlers. So kohort does not import it either, which would be
a tenth of a consumer's start.

A driver's thread keeps its lines (`keep_lines`), and another thread writes them. Handlers and filters are code of the
application. A driver's thread does not wait for the lock of `logging` either. `dictConfig` holds it while it calls the
constructors of handlers.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    import logging

LogContext = Callable[[], Mapping[str, object]]

FIELDS: Final[Mapping[str, object]] = {
    "client_id": "",
    "transactional_id": "",
    "group": "",
    "member": "",
    "generation": -1,
    "topic": "",
    "partition": -1,
    "event": "",
}
"""The fields of every record, with their values for "none"."""

SHOWN: Final = ("client_id", "transactional_id", "group", "member", "generation")
"""Fields that are also appended to the text if set. Texts that concern a topic or partition name it themselves."""

LOGGERS: Final = (
    "kohort.consumer",
    "kohort.driver",
    "kohort.connections",
    "kohort.producer",
    "kohort.share_consumer",
    "kohort.workers",
    "kohort.transform",
    "kohort.region",
    "kohort.spark.stream",
    "kohort.assignors.sticky",
    "kohort.assignors.weighted",
)

_here = threading.local()


def set_log_context(fields: LogContext) -> None:
    """Sets the logging context of the calling thread. `fields` returns them."""
    _here.fields = fields


def keep_lines(kept: "deque[logging.LogRecord] | None") -> None:
    """Have the lines of the calling thread kept there, from now on. Nothing is called for them. None: no longer."""
    _here.kept = kept


def write_lines(lines: "Iterable[logging.LogRecord]") -> None:
    """Write lines that were kept. What a handler raises is printed, as by handlers of `logging`."""
    import logging

    kept = getattr(_here, "kept", None)
    keep_lines(None)  # the thread may be the one that kept them, if the system starts no other
    try:
        for line in lines:
            try:
                logging.getLogger(line.name).handle(line)
            except Exception:
                if logging.raiseExceptions:
                    import traceback  # `logging` has imported it

                    traceback.print_exc()
    finally:
        keep_lines(kept)


def logger(name: str) -> "logging.Logger":
    """The logger of that name, which drops all lines until the process has imported `logging`."""
    return cast("logging.Logger", _Logger(name))


class _Logger:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        if "logging" not in sys.modules:
            return _drop
        return getattr(_prepared()[self._name], method)


def _drop(*_line: object, **_fields: object) -> None:
    """Drop a log line."""


class ContextFilter:
    """Lets every record pass that is not kept, with all `FIELDS` and with `SHOWN` in its text."""

    def filter(self, record: "logging.LogRecord") -> bool:
        self._complete(record)
        kept: deque[logging.LogRecord] | None = getattr(_here, "kept", None)
        if kept is not None:
            kept.append(record)
        return kept is None

    def _complete(self, record: "logging.LogRecord") -> None:
        here: Mapping[str, object] = getattr(_here, "fields", dict)()
        for name, none in FIELDS.items():
            if not hasattr(record, name):
                setattr(record, name, here.get(name, none))
        named = [(name, getattr(record, name)) for name in SHOWN]
        text = " ".join(f"{name}={value}" for name, value in named if value != FIELDS[name])
        try:
            message = record.getMessage()
        except Exception:  # the handler's failure is logging's matter, and must not end a driver
            return
        if not text or message.endswith(f"[{text}]"):
            return
        if isinstance(record.args, tuple) and record.args:
            record.msg, record.args = f"{record.msg} [%s]", (*record.args, text)
        else:
            record.msg, record.args = "%s [%s]", (message, text)


def prepare() -> None:
    """Prepare the loggers, if the process has imported `logging`. Later lines take no lock of that module."""
    if "logging" in sys.modules:
        _prepared()


@cache
def _prepared() -> "Mapping[str, logging.Logger]":
    """All `LOGGERS`, with the filter before those of the application."""
    import logging

    logging.getLogger("kohort").addHandler(logging.NullHandler())
    shared, found = ContextFilter(), {name: logging.getLogger(name) for name in LOGGERS}
    for one in found.values():
        one.filters.insert(0, shared)
        one.isEnabledFor = partial(_is_enabled, one)  # type: ignore[method-assign]
    return found


def _is_enabled(logger: "logging.Logger", level: int) -> bool:
    """As the method of `logging`, which takes a lock for the first line of a level."""
    return not logger.disabled and logger.manager.disable < level >= logger.getEffectiveLevel()


prepare()
