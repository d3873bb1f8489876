"""Handlers for processes, which import this module: each notes its record, with its process, in a file."""

import os
import signal
import threading
import time
from pathlib import Path

from kohort.fastpath import Record


def note(record: Record) -> None:
    """The value is the path of a folder, in which a file is made: offset, process."""
    Path(os.fsdecode(record.value or b""), f"{record.offset}-{os.getpid()}").touch()


def fail_first(record: Record) -> None:
    """Fail on the first attempt, with an error that the parent gets."""
    once = Path(os.fsdecode(record.value or b""), f"failed-{record.offset}")
    if not once.exists():
        once.touch()
        raise ValueError(f"offset {record.offset}")
    note(record)


def note_and_return_a_lock(record: Record) -> object:
    """Note the record. What is returned cannot be sent to the parent."""
    note(record)
    return threading.Lock()


async def nothing() -> None:
    """A coroutine that no process awaits."""


def return_a_coroutine(_record: Record) -> object:
    """Return what only `run_async` awaits."""
    return nothing()


def die(record: Record) -> None:
    """End the process as if the system had killed it."""
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def linger(record: Record) -> None:
    """Note the start, and work until the process is ended."""
    note(record)
    time.sleep(600)


class Unpicklable(Exception):
    """Its pickle has one argument, and it needs two."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"{reason} at {offset}")


def fail_unpicklably(record: Record) -> None:
    """Fail with an error that the parent cannot make from its pickle."""
    raise Unpicklable(record.offset, "failed")


def die_idle(record: Record) -> None:
    """Note the record, and end the process once it is idle."""
    threading.Timer(0.3, os._exit, (1,)).start()
    note(record)


def wait_for_the_end(record: Record) -> None:
    """Note the record, and wait until the folder has a file `go`."""
    note(record)
    go = Path(os.fsdecode(record.value or b""), "go")
    while not go.exists():
        time.sleep(0.01)
