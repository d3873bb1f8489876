"""A region's coordinator in PostgreSQL, for members on many hosts.

The promises of a store are kept as follows:

* *Isolation.* A transaction locks its group's row before it reads the group's data. Transactions of one region are
  therefore serial, and those of different regions do not interfere.
* *Locks are leases.* A lock that is not acquired in time is an error. The server ends an idle transaction (a frozen or
  isolated host) after the same time, and rolls it back. A connection to a server that does not respond for that long is
  closed.
* *One clock.* Hosts do not share a monotonic clock, so the time is the server's, read with every lock.
* *No polling.* Each write of a region's record sends a NOTIFY. A look at a record without a notification since (LISTEN)
  sends the server no query.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.conninfo import make_conninfo

from kohort.consistent_region.errors import ConfigurationError, CoordinatorUnavailable
from kohort.consistent_region.postgres_session import PostgresSession
from kohort.consistent_region.store import Key, used_over_forks
from kohort.consistent_region.urls import conninfo
from kohort.network._guard import ReentrantLock

CHANNEL: Final = "kohort_region"
TRUSTED_S: Final = 1.0  # trust in the absence of notifications, because a listener that is cut off receives none either
_SETUP_LOCK: Final = 0x6B6F686F7274

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS kohort_region (
    kind text NOT NULL, "group" text NOT NULL, name text NOT NULL, value bytea NOT NULL,
    PRIMARY KEY (kind, "group", name)
);
CREATE TABLE IF NOT EXISTS kohort_region_lock ("group" text PRIMARY KEY);
"""
_LOCK: Final = """
SELECT extract(epoch FROM clock_timestamp())::float8 FROM kohort_region_lock WHERE "group" = %s FOR UPDATE
"""
_GET: Final = """SELECT value FROM kohort_region WHERE kind = %s AND "group" = %s AND name = %s"""
_PUT: Final = """
INSERT INTO kohort_region (kind, "group", name, value) VALUES (%s, %s, %s, %b)
ON CONFLICT (kind, "group", name) DO UPDATE SET value = excluded.value
"""


class PostgresStore:
    """A store for many processes on many hosts. `url`: as for libpq,
    `postgresql://user:password@host:5432/database?...`.

    Missing tables are created; with `create=False` they raise ConfigurationError at the first transaction. `timeout_s`
    limits every wait for the server: connecting, a lock, a response. A connection belongs to the process that opened
    it, and a forked child opens its own. It must be a session of its own: a pooler that shares sessions between
    transactions breaks LISTEN.

    A server on another host is reached by TLS, unless the URL or the environment has another `sslmode`. The default,
    `require`, does not check the certificate. `sslmode=verify-full` with `sslrootcert` does.

    Raises ConfigurationError for a URL that libpq cannot read.
    """

    def __init__(self, url: str, *, timeout_s: float = 5.0, create: bool = True) -> None:
        given = conninfo(url)
        self.where = " ".join(f"{name}={given[name]}" for name in ("host", "port", "dbname") if given.get(name))
        given = {**given, "connect_timeout": max(round(timeout_s), 2), "application_name": "kohort"}
        self._conninfo = make_conninfo("", **given)
        self._timeout_s = timeout_s
        self._create = create
        self.lock = ReentrantLock()
        self._connection: PostgresSession | None = None
        self._listener: PostgresSession | None = None
        self._pid = -1
        self._locked: set[str] = set()
        self._writing = False
        self._ahead_s = 0.0  # the difference of the server's clock to the local monotonic clock
        self._clock_known = False
        self._news = 0  # how many notifications have come
        self._news_of: dict[str, int] = {}
        self._began_at = (0, 0.0)
        self._read_at: dict[str, tuple[int, float, bytes]] = {}
        used_over_forks(self)

    @contextmanager
    def transaction(self) -> Iterator["PostgresStore"]:
        with self._used("BEGIN ISOLATION LEVEL READ COMMITTED", writing=True):
            yield self

    @contextmanager
    def read(self) -> Iterator["PostgresStore"]:
        with self._used("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", writing=False):
            yield self

    def get(self, key: Key) -> bytes | None:
        row = self._locking(key.group).execute(_GET, key, binary=True).fetchone()
        if row is None:
            return None
        value = bytes(row[0])
        if key.kind == "region":
            self._read_at[key.group] = (*self._began_at, value)
        return value

    def put(self, key: Key, value: bytes) -> None:
        connection = self._locking(key.group)
        connection.execute(_PUT, (*key, value))
        if key.kind == "region":
            self._read_at.pop(key.group, None)  # the cached read is older than this write
            connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, _payload(key.group)))

    def delete(self, key: Key) -> None:
        self._locking(key.group).execute(
            'DELETE FROM kohort_region WHERE kind = %s AND "group" = %s AND name = %s', key
        )

    def names(self, kind: str, group: str) -> list[str]:
        rows = self._locking(group).execute(
            'SELECT name FROM kohort_region WHERE kind = %s AND "group" = %s ORDER BY name COLLATE "C"', (kind, group)
        )
        return [row[0] for row in rows]

    def groups(self) -> list[str]:
        rows = self._session().execute(
            """SELECT "group" FROM kohort_region WHERE kind = 'region' ORDER BY "group" COLLATE "C" """
        )
        return [row[0] for row in rows]

    def clock(self) -> float:
        """Seconds as the server counts them, and so every host."""
        if not self._clock_known:
            with self.lock.hold(), self._reported():
                row = self._session().execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
                assert row is not None
                self._set_clock(row[0])
        return time.monotonic() + self._ahead_s

    def changed(self, group: str, known: bytes) -> bool:
        """True if the region's record may differ from `known`. It sends no query."""
        with self.lock.hold():
            news, at, read = self._read_at.get(group, (-1, 0.0, b""))
            # Another user of the store may have read a newer record than the caller.
            if read != known or time.monotonic() >= at + TRUSTED_S or self._pid != os.getpid():
                return True
            try:
                self._listen()
            except psycopg.Error:
                self._drop_listener()
                return True
            return self._news_of.get(_payload(group), 0) > news

    def close(self) -> None:
        with self.lock.hold():
            self._drop()
            self._drop_listener()

    def before_fork(self) -> None:
        """Keep the connections: a forked child opens its own. Raises no error."""

    # --- inner

    @contextmanager
    def _used(self, begin: str, *, writing: bool) -> Iterator[None]:
        with self.lock.hold(), self._reported():
            try:
                self._listen()  # notifications from now on concern readers from now on
            except psycopg.Error:
                self._drop_listener()
            self._began_at = (self._news, time.monotonic())
            connection = self._begun(begin)
            self._locked, self._writing = set(), writing
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                self._roll_back(connection)
                raise

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as problem:
            (reason, *_) = str(problem).splitlines() or [type(problem).__name__]
            raise CoordinatorUnavailable(
                f"the coordinator's database failed: {reason}",
                hint="retry; the write has no effect, unless only its response was lost",
                where=self.where,
            ) from problem

    def _begun(self, begin: str) -> "PostgresSession":
        """In a transaction. A connection that has died since it was last used is replaced: nothing was sent on it."""
        if self._connection is not None and self._pid == os.getpid():
            try:
                self._connection.execute(begin)
            except psycopg.OperationalError:
                self._drop()
            else:
                return self._connection
        connection = self._session()
        connection.execute(begin)
        return connection

    def _roll_back(self, connection: "PostgresSession") -> None:
        self._read_at.clear()  # what this transaction read may be what it wrote, and did not keep
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            self._drop()

    def _locking(self, group: str) -> "PostgresSession":
        """Return the session. Within a writing transaction, it holds the group's lock."""
        connection = self._session()
        if not self._writing or group in self._locked:
            return connection
        row = connection.execute(_LOCK, (group,)).fetchone()
        if row is None:
            connection.execute('INSERT INTO kohort_region_lock ("group") VALUES (%s) ON CONFLICT DO NOTHING', (group,))
            row = connection.execute(_LOCK, (group,)).fetchone()
        assert row is not None
        self._set_clock(row[0])
        self._locked.add(group)
        return connection

    def _set_clock(self, server_s: float) -> None:
        self._ahead_s = server_s - time.monotonic()
        self._clock_known = True

    def _session(self) -> "PostgresSession":
        if self._connection is None or self._pid != os.getpid():
            self._forget_if_forked()
            connection = self._connected()
            try:
                self._make_tables(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _make_tables(self, connection: "PostgresSession") -> None:
        found = connection.execute("SELECT to_regclass('kohort_region'), to_regclass('kohort_region_lock')").fetchone()
        if found is not None and None not in found:
            return
        if not self._create:
            raise ConfigurationError(
                "the database has no region", hint="name the coordinator that the members use", where=self.where
            )
        with connection.transaction():  # even with IF NOT EXISTS, by two at once it is an error
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SETUP_LOCK,))
            connection.execute(_SCHEMA)

    def _listen(self) -> None:
        """Receive notifications. Opens the listener if there is none."""
        self._forget_if_forked()
        if self._listener is None:
            listener = self._connected()
            listener.execute(f"LISTEN {CHANNEL}")
            self._listener = listener
            self._read_at.clear()  # notifications before this LISTEN were not received
        for received in self._listener.notifies(timeout=0):
            self._news += 1
            self._news_of[received.payload] = self._news

    def _connected(self) -> "PostgresSession":
        session = PostgresSession.connect(self._conninfo, autocommit=True)
        session.limit_s = 2 * self._timeout_s
        limit_ms = round(self._timeout_s * 1000)
        try:
            for name in ("lock_timeout", "idle_in_transaction_session_timeout"):
                session.execute(f"SET {name} = {limit_ms}")
            session.execute(f"SET statement_timeout = {limit_ms + limit_ms // 2}")  # so that a lock is named as one
            # Weaker than this, what was committed might be gone after a crash of the server.
            session.execute(
                "SELECT set_config('synchronous_commit', 'on', false) "
                "WHERE current_setting('synchronous_commit') = 'off'"
            )
        except BaseException:
            session.close()
            raise
        return session

    def _forget_if_forked(self) -> None:
        if self._pid != os.getpid():
            # The parent's sockets are not to be used, nor closed in its name.
            for session in (self._connection, self._listener):
                if session is not None:
                    _INHERITED.append(session)
            self._connection = self._listener = None
            self._read_at.clear()
            self._pid = os.getpid()

    def _drop(self) -> None:
        if self._connection is not None and self._pid == os.getpid():
            self._connection.close()
        self._connection = None

    def _drop_listener(self) -> None:
        if self._listener is not None and self._pid == os.getpid():
            self._listener.close()
        self._listener = None


_INHERITED: Final[list[psycopg.Connection[Any]]] = []


def _payload(group: str) -> str:
    """Return a group's name within the 8000 bytes of a notification. Groups with an equal payload only cause extra
    looks."""
    return group[:500]
