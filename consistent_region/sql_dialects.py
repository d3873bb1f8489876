"""Differences between SQLite and PostgreSQL, as a sink of rows needs them."""

import os
import sqlite3
from typing import Any, Final, Protocol

from kohort.consistent_region.errors import ConfigurationError
from kohort.consistent_region.store import file_at
from kohort.consistent_region.urls import conninfo, veiled

_SETUP_LOCK: Final = 0x6B6F686F7275
_WAIT_S: Final = 30
_IDLE_S: Final = 10  # shorter, so that an owner that stands still does not end the next one, which waits for its rows
# Lost connections, too many connections, a server that stops or starts, sessions that it ended since they were idle,
# and transactions that lost against others.
_PASSING: Final = ("08", "25P03", "53300", "57P01", "57P02", "57P03", "57P05", "40001", "40P01")

_OF_STATEMENTS: Final = ("22", "23", "42601")  # data exceptions, violated constraints, and syntax errors
_SYNTAX: Final = ("syntax error", "incomplete input", "unrecognized token")


class Dialect(Protocol):
    """One kind of database, and its driver."""

    mark: str
    """The placeholder of a value in a statement."""
    begin: str
    """Begins a transaction that may write."""
    setup: tuple[str, ...]
    """The first statement of a transaction that makes tables."""
    row_lock: str
    """At the end of a SELECT, has others wait for its rows."""

    def connect(self, url: str) -> Any:
        """A connection without transactions of its own accord. Raises the driver's error, or ConfigurationError."""

    def prepare(self, connection: Any, patience_s: float) -> None:
        """Prepare the next transaction. End the connection if a response takes `patience_s` longer than the longest
        wait for a lock.

        Raises the driver's error if what is written would be in no database that others can open.
        """

    def errors(self) -> type[Exception]:
        """All that the driver raises."""

    def passes(self, error: Exception) -> bool:
        """True for an error of a database that restarts or is away: the same transaction may succeed later."""

    def refuses(self, error: Exception) -> bool:
        """True for an error that no set-up cures: a constraint, a value that its column cannot hold, wrong syntax, or a
        wrong number of values."""

    def statements(self, script: str) -> list[str]:
        """Split several statements into the pieces that `execute` takes at once."""

    def check(self, value: Any) -> None:
        """Raise ValueError or TypeError for a JSON value, other than an object, that no column can hold."""


class _SqliteConnection(sqlite3.Connection):
    path = ""
    file: tuple[int, int] | None = None


class _Sqlite:
    mark = "?"
    begin = "BEGIN IMMEDIATE"
    setup: tuple[str, ...] = ()
    row_lock = ""

    def connect(self, url: str) -> sqlite3.Connection:
        path = url.removeprefix("sqlite:///")
        connection = sqlite3.connect(
            path, isolation_level=None, timeout=_WAIT_S, check_same_thread=False, factory=_SqliteConnection
        )
        connection.execute("PRAGMA synchronous=FULL")
        connection.path = path
        connection.file = file_at(path)
        return connection

    def prepare(self, connection: "_SqliteConnection", patience_s: float) -> None:
        # SQLite notices it by itself, except in a WAL database.
        if file_at(connection.path) != connection.file:
            raise sqlite3.OperationalError("the file was unlinked or replaced while it was open")

    def errors(self) -> type[Exception]:
        return sqlite3.Error

    def passes(self, error: Exception) -> bool:
        return False  # the driver waits for locks by itself, and a file has no server that restarts

    def refuses(self, error: Exception) -> bool:
        if isinstance(error, sqlite3.OperationalError):  # its code does not differ from that of a missing table
            return any(text in str(error) for text in _SYNTAX)
        return isinstance(error, sqlite3.IntegrityError | sqlite3.DataError | sqlite3.ProgrammingError)

    def statements(self, script: str) -> list[str]:
        statements, begun = [], ""
        for piece in script.split(";"):
            begun += piece + ";"
            if sqlite3.complete_statement(begun):
                statements.append(begun)
                begun = ""
        return [one for one in (*statements, begun) if one.strip(" \t\r\n;")]

    def check(self, value: Any) -> None:
        if isinstance(value, list | tuple):
            raise TypeError(f"{type(value).__name__} is no column's value")
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError("SQLite's integers have 64 bits")


class _Postgres:
    mark = "%s"
    begin = "BEGIN"
    # If two sessions create a table at the same moment, one fails even with IF NOT EXISTS.
    setup: tuple[str, ...] = (f"SELECT pg_advisory_xact_lock({_SETUP_LOCK})",)
    row_lock = " FOR UPDATE"

    def connect(self, url: str) -> Any:
        _psycopg()
        from kohort.consistent_region.postgres_session import PostgresSession

        limits = f"-c lock_timeout={_WAIT_S}s -c idle_in_transaction_session_timeout={_IDLE_S}s"
        waits = {"connect_timeout": 10, "options": limits}
        return PostgresSession.connect(**{**waits, **conninfo(url)}, autocommit=True)

    def prepare(self, connection: Any, patience_s: float) -> None:
        connection.limit_s = _WAIT_S + patience_s

    def errors(self) -> type[Exception]:
        found: type[Exception] = _psycopg().Error
        return found

    def passes(self, error: Exception) -> bool:
        state = getattr(error, "sqlstate", None)
        if state is None:  # no server responded
            return isinstance(error, _psycopg().OperationalError)
        return str(state).startswith(_PASSING)

    def refuses(self, error: Exception) -> bool:
        state = getattr(error, "sqlstate", None)
        if state is None:  # psycopg's own error: the number of values is not that of the placeholders
            return isinstance(error, _psycopg().ProgrammingError)
        return str(state).startswith(_OF_STATEMENTS)

    def statements(self, script: str) -> list[str]:
        return [script] if script.strip() else []

    def check(self, value: Any) -> None:
        if isinstance(value, str) and "\0" in value:
            raise ValueError("PostgreSQL's text holds no NUL")


SQLITE: Final[Dialect] = _Sqlite()
POSTGRES: Final[Dialect] = _Postgres()
_BY_SCHEME: Final = {"sqlite": SQLITE, "postgresql": POSTGRES, "postgres": POSTGRES}


def dialect_of(url: str) -> tuple[Dialect, str]:
    """The dialect of `sqlite:///PATH` or `postgresql://...`, and the URL with an absolute path.

    Raises ConfigurationError for another URL.
    """
    if not isinstance(url, str):
        raise ConfigurationError(f"the url of a database is text, not {type(url).__name__}", setting="url")
    found = _BY_SCHEME.get(url.partition(":")[0])
    path = url.removeprefix("sqlite:///")
    # SQLite would take an empty path, too: for a database that ends with its connection.
    if found is None or (found is SQLITE and path in ("", ":memory:", url)):
        raise ConfigurationError(f"unknown database {veiled(url)!r}", hint='use "sqlite:///PATH" or "postgresql://..."')
    # A handler may change the working directory.
    return found, f"sqlite:///{os.path.abspath(path)}" if found is SQLITE else url


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as problem:
        raise ConfigurationError(
            "a postgresql:// sink needs psycopg", hint='pip install "kohort[postgres]"'
        ) from problem
    return psycopg
