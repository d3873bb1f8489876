"""Logging context: every log line of a client names it, in the record's fields and at the line's end.

A filter on each logger adds missing fields, so a format string may always name them. A thread sets its client once
(`speaks_for`), and a line may name more fields (`extra=`). Nothing is printed unless the application configures
logging.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

Who = Callable[[], Mapping[str, object]]

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
    "kohort.assignors.sticky",
    "kohort.assignors.weighted",
)

_here = threading.local()


def speaks_for(who: Who) -> None:
    """Sets the logging context of the calling thread. `who` returns the fields."""
    _here.who = who


class WhoFilter(logging.Filter):
    """Lets every record pass, with all `FIELDS` and with `SHOWN` in its text."""

    def filter(self, record: logging.LogRecord) -> bool:
        who: Mapping[str, object] = getattr(_here, "who", dict)()
        for name, none in FIELDS.items():
            if not hasattr(record, name):
                setattr(record, name, who.get(name, none))
        named = [(name, getattr(record, name)) for name in SHOWN]
        text = " ".join(f"{name}={value}" for name, value in named if value != FIELDS[name])
        try:
            message = record.getMessage()
        except Exception:  # the handler's failure is logging's matter, and must not end a driver
            return True
        if not text or message.endswith(f"[{text}]"):
            return True
        if isinstance(record.args, tuple) and record.args:
            record.msg, record.args = f"{record.msg} [%s]", (*record.args, text)
        else:
            record.msg, record.args = "%s [%s]", (message, text)
        return True


def _prepare() -> None:
    logging.getLogger("kohort").addHandler(logging.NullHandler())
    shared = WhoFilter()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(shared)


_prepare()
