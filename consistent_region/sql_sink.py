"""Rows in an SQL database, exactly once: SQLite or PostgreSQL."""

import json
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from kohort.consistent_region.effects import CommitId, SinkPlace
from kohort.consistent_region.errors import ConfigurationError, FencedError, RegionError
from kohort.consistent_region.urls import conninfo, veiled

_NOTES: Final = """CREATE TABLE IF NOT EXISTS kohort_sink (
    region TEXT NOT NULL, consumer_group TEXT NOT NULL, member TEXT NOT NULL, sink TEXT NOT NULL, owner TEXT NOT NULL,
    run TEXT NOT NULL, number BIGINT NOT NULL, PRIMARY KEY (region, consumer_group, member, sink))"""
_WHO: Final = ("region", "consumer_group", "member", "sink")

NO_RUN: Final = ""
_SETUP_LOCK: Final = 0x6B6F686F7275
_WAITS: Final = {"connect_timeout": 10, "options": "-c lock_timeout=30s"}


class SqlSink:
    """Statements that a handler collects with `execute`, run in one transaction with each checkpoint.

        sink = SqlSink("sqlite:///bills.db", schema="CREATE TABLE IF NOT EXISTS paid (name TEXT, amount INTEGER)")
        def handle(record, state):
            sink.execute("INSERT INTO paid VALUES (?, ?)", (record.key.decode(), 5))

    `url`: `sqlite:///PATH`, or `postgresql://...` (needs psycopg; its placeholders are %s). Values of a statement are
    what JSON holds: text, numbers, true, false, none. `schema`: statements that are run at each start. The database
    keeps one row a member and sink in `kohort_sink`: the commit that it has seen last, which is what makes a commit
    idempotent, and who opened it last, so that no process before that one commits any more. Who cannot connect in 10 s,
    or waits for a lock for 30 s, is refused, unless `url` says otherwise.

    Raises ConfigurationError for another URL and for values that cannot be kept; RegionError, from the driver's error,
    if the database refuses: the member ends, and its next life commits what is owed.
    """

    def __init__(self, url: str, *, schema: str = "") -> None:
        scheme = url.partition(":")[0]
        if not url.startswith("sqlite:///") and scheme not in ("postgresql", "postgres"):
            raise ConfigurationError(f"unknown database {veiled(url)!r}", hint='"sqlite:///PATH" or "postgresql://..."')
        self._url = url
        self._mark = "?" if scheme == "sqlite" else "%s"
        self._schema = schema
        self._collected: list[tuple[str, list[Any]]] = []
        self._connection: Any = None
        self._place: SinkPlace | None = None
        self._owner = ""

    def execute(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Have a statement run when the checkpoint that this record comes into is complete."""
        if isinstance(values, str | bytes | Mapping):  # of which a list would be letters, numbers, or names
            raise ConfigurationError(
                f"a statement's values are a sequence, not {type(values).__name__}", hint="in the order of placeholders"
            )
        self._collected.append((statement, list(values)))

    def open(self, place: SinkPlace) -> None:
        self._place = place
        self._owner = uuid.uuid4().hex
        row = (
            f"INSERT INTO kohort_sink ({', '.join(_WHO)}, owner, run, number) VALUES ({', '.join([self._mark] * 7)}) "
            f"ON CONFLICT ({', '.join(_WHO)}) DO UPDATE SET owner = excluded.owner"
        )
        # Two who make a table at the same moment are not both heard, even if it may be there.
        alone = () if self._mark == "?" else (f"SELECT pg_advisory_xact_lock({_SETUP_LOCK})",)
        statements = [(one, ()) for one in (*alone, _NOTES, *self._statements())]
        self._run([*statements, (row, (*self._who, self._owner, NO_RUN, 0))])

    def pre_commit(self) -> bytes:
        if not self._collected:
            return b""
        try:
            for _statement, values in self._collected:
                for value in values:
                    self._check(value)
            return json.dumps(self._collected, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError) as problem:
            raise ConfigurationError(
                f"a statement's values are what JSON and the database hold: {problem}"
            ) from problem

    def commit(self, prepared: bytes, at: CommitId) -> int:
        statements = [(text, tuple(values)) for text, values in json.loads(prepared or b"[]")]
        number = self._run(statements, at)
        self._collected.clear()
        return number

    def abort(self) -> None:
        self._collected.clear()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- inner

    def _check(self, value: Any) -> None:
        """Raises ValueError for what no commit could carry out: found there, it would end every life of the member."""
        sqlite = self._mark == "?"
        if isinstance(value, dict) or (sqlite and isinstance(value, list | tuple)):
            raise ValueError(f"{type(value).__name__} is no column's value")
        if isinstance(value, str):
            value.encode()
            if not sqlite and "\0" in value:
                raise ValueError("PostgreSQL's text holds no NUL")
        elif sqlite and isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError("SQLite's integers have 64 bits")

    def _run(self, statements: Sequence[tuple[str, Sequence[Any]]], at: CommitId | None = None) -> int:
        """Run them in one transaction; with `at`, only if that commit is not noted, and with a note of it."""
        who = self._who
        number = 0
        try:
            connection = self._opened()
            cursor = connection.cursor()
            try:
                cursor.execute("BEGIN IMMEDIATE" if self._mark == "?" else "BEGIN")
                noted = 0 if at is None else self._noted(cursor, at)
                if at is not None and noted >= at.number:
                    number = noted
                else:
                    for text, values in statements:
                        cursor.execute(text, *([values] if values else []))  # without values, % is a per cent sign
                    if at is not None:
                        self._note(cursor, at)
                        number = at.number
                cursor.execute("COMMIT")
            except BaseException:
                with suppress(self._errors()):  # it may be over, or the connection gone: that is not what went wrong
                    cursor.execute("ROLLBACK")
                raise
            finally:
                cursor.close()
        except self._errors() as problem:
            self.close()  # whatever state it is in; the next call opens another
            raise RegionError(
                f"the sink's database refused: {problem}",
                hint="nothing of it is visible; started again, the member commits it",
                **dict(zip(_WHO, who, strict=True)),
            ) from problem
        return number

    @property
    def _who(self) -> tuple[str, str, str, str]:
        assert self._place is not None, "open() comes first"
        return self._place.names

    @property
    def _ours(self) -> str:
        return " AND ".join(f"{name} = {self._mark}" for name in _WHO)

    def _statements(self) -> list[str]:
        """Of the schema; psycopg takes several at once."""
        if self._mark != "?":
            return [self._schema] if self._schema.strip() else []
        statements, begun = [], ""
        for piece in self._schema.split(";"):
            begun += piece + ";"
            if sqlite3.complete_statement(begun):
                statements.append(begun)
                begun = ""
        return [one for one in (*statements, begun) if one.strip(" \t\r\n;")]

    def _noted(self, cursor: Any, at: CommitId) -> int:
        """The number of the last commit of this run, 0 before the first. Its row is locked: a process that is not quite
        dead waits.

        Raises FencedError if the sink has been opened since we did: after an operator went back, a process before that
        one could be about a commit with the number of its next, which would then count as done.
        """
        lock = "" if self._mark == "?" else " FOR UPDATE"
        asked = f"SELECT owner, run, number FROM kohort_sink WHERE {self._ours}{lock}"
        owner, run, number = cursor.execute(asked, self._who).fetchone() or ("", NO_RUN, 0)
        if owner != self._owner:
            raise FencedError(
                "a later process of this member has opened the sink", hint="stop this one",
                **dict(zip(_WHO, self._who, strict=True)),
            )  # fmt: skip
        return int(number) if run == at.run else 0

    def _note(self, cursor: Any, at: CommitId) -> None:
        noted = f"UPDATE kohort_sink SET run = {self._mark}, number = {self._mark} WHERE {self._ours}"
        cursor.execute(noted, (at.run, at.number, *self._who))

    def _opened(self) -> Any:
        if self._connection is None:
            if self._mark == "?":
                self._connection = sqlite3.connect(
                    self._url.removeprefix("sqlite:///"), isolation_level=None, timeout=30.0, check_same_thread=False
                )
                self._connection.execute("PRAGMA synchronous=FULL")
            else:
                psycopg = _psycopg()
                self._connection = psycopg.connect(**{**_WAITS, **conninfo(self._url)}, autocommit=True)
        return self._connection

    def _errors(self) -> type[Exception]:
        return sqlite3.Error if self._mark == "?" else _psycopg().Error


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError as problem:
        raise ConfigurationError(
            "a postgresql:// sink needs psycopg", hint='pip install "kohort[postgres]"'
        ) from problem
    return psycopg
