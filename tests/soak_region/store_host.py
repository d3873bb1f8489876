"""The processes that the coordinator's store depends on, and the ways to take them away."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from kohort.testing import RealPostgres

_HOLDER: Final = """
import os, sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=120)
store.execute("PRAGMA cache_size=1")  # so that what it writes reaches the file long before the end of the transaction
store.execute("BEGIN IMMEDIATE")
store.execute("UPDATE kohort_region SET value = randomblob(length(value))")
os.kill(os.getpid(), int(sys.argv[2]))
"""


class StoreHost(Protocol):
    """`kill` and `stop` take the store away; what they return gives it back. `rows_url`: a database for sinks."""

    @property
    def url(self) -> str: ...
    @property
    def rows_url(self) -> str: ...
    def kill(self) -> Callable[[], None]: ...
    def stop(self) -> Callable[[], None]: ...
    def close(self) -> None: ...


class SqliteHost:
    """A file has no host process but those that write it. One of them dies in the middle of a transaction that
    spoils everything, or holds its lock for longer than any process waits."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "region.db"
        self._holders: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def rows_url(self) -> str:
        return f"sqlite:///{self.path.with_name('rows.db')}"

    def kill(self) -> Callable[[], None]:
        self._hold(signal.SIGKILL)
        return lambda: None

    def stop(self) -> Callable[[], None]:
        return self._hold(signal.SIGSTOP).kill

    def close(self) -> None:
        for holder in self._holders:
            holder.kill()
            assert holder.wait() == -signal.SIGKILL, "the store could not be taken hold of"

    def _hold(self, then: signal.Signals) -> "subprocess.Popen[bytes]":
        """Does not wait for it: a member that is stopped may have the lock, and the caller is to wake it."""
        command = [sys.executable, "-c", _HOLDER, str(self.path), str(int(then))]
        holder = subprocess.Popen(command, start_new_session=True)
        self._holders.append(holder)
        return holder


class PostgresHost:
    """A PostgreSQL server: killed with all its sessions, or frozen with them."""

    def __init__(self) -> None:
        self._server = RealPostgres(durable=True)
        self._server.__enter__()
        self.url = self._server.fresh()
        self.rows_url = self._server.fresh()

    def kill(self) -> Callable[[], None]:
        self._server.kill()
        return self._server.start

    def stop(self) -> Callable[[], None]:
        self._server.pause()
        return self._server.resume

    def close(self) -> None:
        self._server.__exit__(None, None, None)
