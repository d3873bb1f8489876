"""Processes for handlers, which end with the process that started them."""

import os
import pickle
import signal
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any

from kohort.fastpath import Record
from kohort.network.arguments import not_awaited

_run_stopped: Any = None  # in a process, the number that it shares with its run


def handler_processes(count: int) -> tuple[Executor, Any]:
    """A pool of processes, and a number that they share: once it is not 0, no handler begins.

    They are spawned, because a forked child of a process with threads may wait for ever.
    """
    context = get_context("spawn")
    stopped = context.RawValue("b", 0)  # no Event: a process that dies inside it would keep its lock
    return ProcessPoolExecutor(count, context, _begin, (stopped,)), stopped


def check_handler(handler: Callable[[Record], object]) -> None:
    """Raises TypeError for a handler that no other process can import. Each of its records would be a failure."""
    try:
        pickle.dumps(handler)
    except Exception as problem:
        raise TypeError(
            f"with processes=True, the handler is a function of a module, not {handler!r}: {problem}"
        ) from problem


def _begin(stopped: Any) -> None:
    """Leave signals to the run, which ends its handlers in order, and end with its process."""
    global _run_stopped
    _run_stopped = stopped
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="kohort-parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def call_in_process(handler: Callable[[Record], object], record: Record) -> TypeError | None:
    """Call a handler; see `run.call`. An error that the parent cannot make from its pickle would break the pool."""
    if _run_stopped.value:  # the pool has taken the call, so that the parent cannot cancel it
        raise BrokenExecutor("the run has stopped")
    try:
        return not_awaited(handler(record), "handler")
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise RuntimeError(f"{error!r}, which cannot be pickled") from None
        raise
