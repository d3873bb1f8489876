"""At the interpreter's end: a consumer that was not closed leaves, so that its group need not wait for it, and what a
producer sent gets a little time to be acknowledged."""

import atexit
import contextlib
import weakref
from typing import Protocol


class Closable(Protocol):
    """What is to be closed, in so much time."""

    def close(self, timeout_s: float) -> None: ...


OPEN: "weakref.WeakSet[Closable]" = weakref.WeakSet()
EXIT_S = 5.0


@atexit.register
def _close_all() -> None:
    for one in list(OPEN):
        with contextlib.suppress(Exception):
            one.close(EXIT_S)
