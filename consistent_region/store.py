"""A coordinator's storage: a few named values, changed in transactions.

A store is independent of regions. A transaction sees the last committed one, is serial, is durable when it ends, and
has no effect if it does not.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final, Protocol
from weakref import WeakSet

from kohort.common.named_tuple import NamedTuple
from kohort.common.private_files import opener
from kohort.consistent_region.errors import ConfigurationError, CoordinatorUnavailable, RegionError, StoreLost
from kohort.network._guard import ReentrantLock


class Key(NamedTuple):
    """`kind` is "region", "manifest" or "state"; `name` a number or digest within the group, "" for the region."""

    kind: str
    group: str
    name: str = ""


class StoreTransaction(Protocol):
    """A store from inside a transaction."""

    def get(self, key: Key) -> bytes | None:
        """The value of a key, or None."""

    def put(self, key: Key, value: bytes) -> None:
        """Set the value of a key."""

    def delete(self, key: Key) -> None:
        """Remove a key, if it is there."""

    def names(self, kind: str, group: str) -> list[str]:
        """The names of all keys of this kind in a group, sorted."""

    def groups(self) -> list[str]:
        """The groups that have a region, sorted."""


class Store(Protocol):
    """Opens transactions. Those of `read` may run in parallel. Raises CoordinatorUnavailable."""

    def transaction(self) -> AbstractContextManager[StoreTransaction]:
        """Open a transaction that reads and writes. An exception within rolls it back."""

    def read(self) -> AbstractContextManager[StoreTransaction]:
        """Open a transaction that reads."""

    def close(self) -> None:
        """Release connections and files."""

    def clock(self) -> float:
        """Return seconds of a clock that all users of the store share. It never goes back while in use."""

    def changed(self, group: str, known: bytes) -> bool:
        """True if the region's record may differ from `known`, which was read. False only if it is the same."""


class MemoryStore:
    """For members that are threads of one process, and for tests. Gone with the process."""

    def __init__(self) -> None:
        self._values: dict[Key, bytes] = {}
        self._lock = ReentrantLock()

    @contextmanager
    def transaction(self) -> Iterator["MemoryStore"]:
        """A transaction under the store's lock. An exception within rolls it back."""
        with self._lock.hold():
            before = dict(self._values)
            try:
                yield self
            except BaseException:
                self._values = before
                raise

    @contextmanager
    def read(self) -> Iterator["MemoryStore"]:
        """A view under the store's lock."""
        with self._lock.hold():
            yield self

    def get(self, key: Key) -> bytes | None:
        """The value of a key, or None. Raises no error."""
        return self._values.get(key)

    def put(self, key: Key, value: bytes) -> None:
        """Set the value of a key. Raises no error."""
        self._values[key] = value

    def delete(self, key: Key) -> None:
        """Remove a key, if it is there. Raises no error."""
        self._values.pop(key, None)

    def names(self, kind: str, group: str) -> list[str]:
        """The names of all keys of this kind in a group, sorted. Raises no error."""
        return sorted(key.name for key in self._values if (key.kind, key.group) == (kind, group))

    def groups(self) -> list[str]:
        """The groups that have a region, sorted."""
        return sorted(key.group for key in self._values if key.kind == "region")

    def clock(self) -> float:
        """The monotonic clock of the process (s)."""
        return time.monotonic()

    def changed(self, group: str, known: bytes) -> bool:
        """Always true. Raises no error."""
        return True  # a look costs no more than a check

    def close(self) -> None:
        """Nothing to do."""


class _Forked(Protocol):
    lock: ReentrantLock

    def before_fork(self) -> None: ...


_FORKED: Final[WeakSet[_Forked]] = WeakSet()
_FORKING: Final = threading.local()


def used_over_forks(store: _Forked) -> None:
    """Hold `store.lock` during each fork, since a child has no thread that would release it.

    `before_fork` is called under the lock.
    """
    _FORKED.add(store)


def _before_fork() -> None:
    _FORKING.held = held = []
    for store in sorted(_FORKED, key=id):
        held.append(store.lock.hold())
        store.before_fork()


def _after_fork() -> None:
    for hold in _FORKING.held:
        hold.release()
    del _FORKING.held


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


REOPENED_AFTER_S: Final = 0.005

_SCHEMA: Final = """CREATE TABLE IF NOT EXISTS kohort_region (
    kind TEXT NOT NULL, "group" TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (kind, "group", name)
) WITHOUT ROWID"""
_OF_KEY: Final = 'kind = ? AND "group" = ? AND name = ?'
_FIND_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'kohort_region'"


def file_at(path: str | Path) -> tuple[int, int] | None:
    """The device and inode of the file at a path; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class SqliteStore:
    """A store in one file, for many processes of a host. With WAL and synchronous=FULL a commit survives a power cut.

    A connection belongs to the process that opened it. A fork closes it, and parent and child open their own. An open
    file that was unlinked or replaced is noticed at the next transaction, which raises StoreLost. So is the file
    `PATH-wal`, which has the last commits. `create=False` changes no file that is not a store: its first transaction
    raises ConfigurationError.
    """

    _creating: ClassVar = ReentrantLock()

    def __init__(self, path: str | Path, *, timeout_s: float = 5.0, create: bool = True) -> None:
        self.path = Path(path).absolute()  # a handler may change the working directory
        self._create = create
        self._timeout_s = timeout_s
        self.lock = ReentrantLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = -1
        self._opened_files: object = None
        if str(path) in ("", ":memory:"):
            raise ConfigurationError("an SQLite coordinator needs a file", hint='use coordinator="sqlite:///PATH"')
        used_over_forks(self)

    @contextmanager
    def transaction(self) -> Iterator["SqliteStore"]:
        """A transaction that holds the file's write lock. Raises CoordinatorUnavailable and StoreLost."""
        with self._used("BEGIN IMMEDIATE"):
            yield self

    @contextmanager
    def read(self) -> Iterator["SqliteStore"]:
        """A transaction that reads one state of the file. Raises CoordinatorUnavailable and StoreLost."""
        with self._used("BEGIN"):
            yield self

    def get(self, key: Key) -> bytes | None:
        """The value of a key, or None."""
        row = self._open().execute(f"SELECT value FROM kohort_region WHERE {_OF_KEY}", key).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, key: Key, value: bytes) -> None:
        """Set the value of a key. Raises RegionError for one of more than 1 GB, SQLite's limit."""
        try:
            self._open().execute(
                'INSERT OR REPLACE INTO kohort_region (kind, "group", name, value) VALUES (?, ?, ?, ?)', (*key, value)
            )
        except (sqlite3.DataError, OverflowError) as problem:  # no later try would end otherwise
            raise RegionError(
                f"SQLite stores no value of {len(value)} bytes: {problem}",
                hint="take checkpoints more often: a snapshot has all effects since the last one",
                **key._asdict(),
            ) from problem

    def delete(self, key: Key) -> None:
        """Remove a key, if it is there."""
        self._open().execute(f"DELETE FROM kohort_region WHERE {_OF_KEY}", key)

    def names(self, kind: str, group: str) -> list[str]:
        """The names of all keys of this kind in a group, sorted."""
        rows = self._open().execute(
            'SELECT name FROM kohort_region WHERE kind = ? AND "group" = ? ORDER BY name', (kind, group)
        )
        return [row[0] for row in rows]

    def groups(self) -> list[str]:
        """The groups that have a region, sorted."""
        rows = self._open().execute("SELECT \"group\" FROM kohort_region WHERE kind = 'region' ORDER BY 1")
        return [row[0] for row in rows]

    def clock(self) -> float:
        """The monotonic clock of the host (s)."""
        return time.monotonic()  # one for all processes of a host

    def changed(self, group: str, known: bytes) -> bool:
        """Always true."""
        return True  # a look costs no more than a check

    def close(self) -> None:
        """Close the connection, if this process opened it."""
        with self.lock.hold():
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def before_fork(self) -> None:
        """Close the connection, unless this thread is in a transaction. Raises no error.

        In a forked child, SQLite would count the locks of its parent as its own. The parent would then unlink the log
        of the child, and a third process would damage the file.
        """
        if self._connection is not None and not self._connection.in_transaction:
            self.close()

    @contextmanager
    def _used(self, begin: str) -> Iterator[None]:
        with self.lock.hold():
            try:
                connection = self._open()
                self._check_file()
                is_outer = not connection.in_transaction  # else a signal handler uses the store of its own thread
                try:
                    connection.execute(begin)
                    yield
                    connection.execute("COMMIT")
                except BaseException:
                    if is_outer and connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except (sqlite3.Error, UnicodeDecodeError) as problem:  # SQLite's text may quote a damaged file
                raise CoordinatorUnavailable(
                    f"the coordinator's store failed: {problem}",
                    hint="check for a full disk, and for a locked or damaged file; the write has no effect",
                    path=self.path,
                ) from problem

    def _open(self) -> sqlite3.Connection:
        if self._connection is None or self._pid != os.getpid():
            self._connection = None
            connection = self._opened()
            self._opened_files, self._pid = self._files, os.getpid()
            self._connection = connection
        return self._connection

    @property
    def _files(self) -> tuple[object, object]:
        return file_at(self.path), file_at(f"{self.path}-wal")

    def _check_file(self) -> None:
        if self._files != self._opened_files:
            # The connection would go on in a file that no later process can open.
            raise StoreLost(
                "the coordinator's file was unlinked or replaced while it was open",
                hint="restore the file from a current copy, then start all members again",
                path=self.path,
            )

    def _opened(self) -> sqlite3.Connection:
        until = time.monotonic() + self._timeout_s
        if self._create:
            # States of members are in it, so only its owner may read it. SQLite would apply the umask. A file that is
            # there is not opened: each close ends the locks of all connections of this process to it (POSIX).
            with suppress(OSError), self._creating.hold(), open(self.path, "xb", opener=opener):
                pass
        where = str(self.path) if self._create else f"{self.path.as_uri()}?mode=rw"
        connection = sqlite3.connect(
            where, timeout=self._timeout_s, isolation_level=None, check_same_thread=False, uri=not self._create
        )
        try:
            while not self._is_set_up(connection, until):
                time.sleep(REOPENED_AFTER_S)
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_set_up(self, connection: sqlite3.Connection, until: float) -> bool:
        """Set up the connection. False if it must be tried again."""
        try:
            if not self._create and not connection.execute(_FIND_TABLE).fetchall():
                raise ConfigurationError(
                    "the file has no region", hint="name the coordinator that the members use", path=self.path
                )
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(_SCHEMA)
        except sqlite3.OperationalError as problem:
            # The change to WAL is refused at once while another opens the file: SQLite's own timeout is not for it.
            if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
            return False
        return True
