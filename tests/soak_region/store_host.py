"""Whoever the coordinator's store depends on, and how it is taken away."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from kohort.testing import RealPostgres

_HOLDER: Final = """
import sqlite3, sys, time
store = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
store.execute("PRAGMA cache_size=1")  # so that what it writes reaches the file long before the end of the transaction
store.execute("BEGIN IMMEDIATE")
store.execute("UPDATE kohort_region SET value = randomblob(length(value))")
print("held", flush=True)
time.sleep(600)
"""


class StoreHost(Protocol):
    """`kill` and `stop` take the store away; what they return gives it back."""

    @property
    def url(self) -> str: ...
    def kill(self) -> Callable[[], None]: ...
    def stop(self) -> Callable[[], None]: ...
    def close(self) -> None: ...


class SqliteHost:
    """A file has no host process but those that write it: one of them dies in the middle of a transaction that spoils
    everything, or holds the lock of one for longer than anybody waits."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "region.db"
        self._holders: list[subprocess.Popen[str]] = []

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def kill(self) -> Callable[[], None]:
        self._hold().kill()
        return lambda: None

    def stop(self) -> Callable[[], None]:
        holder = self._hold()
        os.kill(holder.pid, signal.SIGSTOP)
        return holder.kill

    def close(self) -> None:
        for holder in self._holders:
            holder.kill()
            holder.wait()
            if holder.stdout is not None:
                holder.stdout.close()

    def _hold(self) -> "subprocess.Popen[str]":
        holder = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(self.path)], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._holders.append(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n", "the store could not be taken hold of"
        return holder


class PostgresHost:
    """A PostgreSQL server: killed with all its sessions, or frozen with them."""

    def __init__(self) -> None:
        self._server = RealPostgres(durable=True)
        self._server.__enter__()
        self.url = self._server.fresh()

    def kill(self) -> Callable[[], None]:
        self._server.kill()
        return self._server.start

    def stop(self) -> Callable[[], None]:
        self._server.pause()
        return self._server.resume

    def close(self) -> None:
        self._server.__exit__(None, None, None)
