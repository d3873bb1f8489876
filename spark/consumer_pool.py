"""Consumers that a Python worker keeps between tasks, so that a small task need not connect and log in first.

A consumer has one reader at a time. A reader without an error returns its consumer without an assignment. Then no
records are buffered and no fetch is in flight, because `Consumer.assign` had the end of the range. After an error the
consumer is closed.
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
    """A consumer with these settings (those of `Consumer`) and no assignment. Raises the errors of `Consumer()`."""
    consumer = _taken(settings)
    try:
        yield consumer
        consumer.assign(())
    except BaseException:
        consumer.close()
        raise
    with _door:
        _idle.append((settings, consumer))
        surplus = _idle.pop(0)[1] if len(_idle) > MOST_IDLE else None
    if surplus is not None:
        surplus.close()


def _taken(settings: Mapping[str, Any]) -> "Consumer":
    from kohort.coordinator_client import Consumer  # Spark also imports this module to check options

    with _door:
        for number, (kept_for, _) in enumerate(_idle):
            if kept_for == settings:
                return _idle.pop(number)[1]
    return Consumer(**settings)


def _forget() -> None:
    """Empty the pool in a forked child. The idle consumers belong to the parent."""
    global _door  # a thread of the parent may hold the lock
    _idle.clear()
    _door = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
