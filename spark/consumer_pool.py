"""Consumers that a Python worker keeps between tasks, so that a small task need not connect and log in first.

One is lent to one reader at a time. A reader that ends well gives its consumer back without an assignment: nothing of
the range is left in it, and no fetch is under way (`Consumer.assign` was told where the range ends). Whatever else
happens, it is closed.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.coordinator_client import Consumer

MOST_IDLE = 4

_idle: "list[tuple[Mapping[str, Any], Consumer]]" = []
_door = threading.Lock()


@contextmanager
def lent(settings: Mapping[str, Any]) -> "Iterator[Consumer]":
    """A consumer of these settings (those of `Consumer`), with nothing assigned. Raises what making one raises."""
    consumer = _taken(settings)
    try:
        yield consumer
        consumer.assign(())
    except BaseException:
        consumer.close()
        raise
    _give_back(settings, consumer)


def _taken(settings: Mapping[str, Any]) -> "Consumer":
    from kohort.coordinator_client import Consumer  # not before it is needed: Spark loads this to check options too

    with _door:
        for number, (kept_for, _) in enumerate(_idle):
            if kept_for == settings:
                return _idle.pop(number)[1]
    return Consumer(**settings)


def _give_back(settings: Mapping[str, Any], consumer: "Consumer") -> None:
    with _door:
        _idle.append((settings, consumer))
        surplus = _idle.pop(0)[1] if len(_idle) > MOST_IDLE else None
    if surplus is not None:
        surplus.close()


def _forget() -> None:
    """In a forked child: what is idle is the parent's."""
    global _door  # a thread of the parent may have held it
    _idle.clear()
    _door = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
