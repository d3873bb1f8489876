"""Rows in an SQL database, exactly once: SQLite or PostgreSQL."""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from kohort.common.foreign_text import parsed_json
from kohort.common.log_context import logger
from kohort.consistent_region.effects import CommitId, SinkPlace
from kohort.consistent_region.errors import ConfigurationError, FencedError, RegionError
from kohort.consistent_region.settings import check_positive
from kohort.consistent_region.sql_dialects import dialect_of

log = logger("kohort.region")

_NOTES: Final = """CREATE TABLE IF NOT EXISTS kohort_sink (
    region TEXT NOT NULL, consumer_group TEXT NOT NULL, member TEXT NOT NULL, sink TEXT NOT NULL, owner TEXT NOT NULL,
    run TEXT NOT NULL, number BIGINT NOT NULL, PRIMARY KEY (region, consumer_group, member, sink))"""
_WHO: Final = ("region", "consumer_group", "member", "sink")

NO_RUN: Final = ""
RETRY_TIMEOUT_S: Final = 60.0
RETRIED_AFTER_S: Final = 0.2


class SqlSink:
    """Statements that a handler collects with `execute`, run in one transaction with each checkpoint.

        sink = SqlSink("sqlite:///bills.db", schema="CREATE TABLE IF NOT EXISTS paid (name TEXT, amount INTEGER)")
        def handle(record, state):
            sink.execute("INSERT INTO paid VALUES (?, ?)", (record.key.decode(), 5))

    `url`: `sqlite:///PATH`, or `postgresql://...` (needs psycopg, with %s as placeholder). Values of a statement are
    JSON scalars: text, numbers, true, false, null. `schema`: statements that run at each start.

    The database has one row for each member and sink in `kohort_sink`. It has the last commit, which makes commits
    idempotent, and the last opener, which fences older processes. Connecting times out after 10 s and a lock after 30
    s, unless `url` has other values. A commit waits up to `retry_timeout_s` for a database that restarts or is away.

    Raises ConfigurationError for another URL and for invalid values. If the database rejects a commit, it raises
    RegionError from the driver's error: the member ends, and its next process commits the pending statements.
    """

    def __init__(self, url: str, *, schema: str = "", retry_timeout_s: float = RETRY_TIMEOUT_S) -> None:
        check_positive("retry_timeout_s", retry_timeout_s)
        self._retry_timeout_s = retry_timeout_s
        self._url = url
        self._dialect = dialect_of(url)
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
        marks = ", ".join([self._dialect.mark] * 7)
        row = (
            f"INSERT INTO kohort_sink ({', '.join(_WHO)}, owner, run, number) VALUES ({marks}) "
            f"ON CONFLICT ({', '.join(_WHO)}) DO UPDATE SET owner = excluded.owner"
        )
        tables = (*self._dialect.setup, _NOTES, *self._dialect.statements(self._schema))
        self._run([*((one, ()) for one in tables), (row, (*self._who, self._owner, NO_RUN, 0))])

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
        statements = [(text, tuple(values)) for text, values in parsed_json(prepared or b"[]")]
        number = self._retried(statements, at)
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
        """Raise ValueError or TypeError for values that no commit could write. They would end every process of the
        member."""
        if isinstance(value, dict):
            raise TypeError("dict is no column's value")
        if isinstance(value, str):
            value.encode()
        self._dialect.check(value)

    def _retried(self, statements: Sequence[tuple[str, Sequence[Any]]], at: CommitId) -> int:
        """As `_run`, again and again while the database is away. The note makes a repetition harmless."""
        until = time.monotonic() + self._retry_timeout_s
        while True:
            try:
                return self._run(statements, at)
            except RegionError as error:
                cause = error.__cause__
                if not isinstance(cause, Exception) or not self._dialect.passes(cause) or time.monotonic() >= until:
                    raise
                log.warning("the sink's database is away, and waited for: %s", cause)
            time.sleep(RETRIED_AFTER_S)

    def _run(self, statements: Sequence[tuple[str, Sequence[Any]]], at: CommitId | None = None) -> int:
        """Run statements in one transaction. With `at`, run them only if that commit is not noted, and note it."""
        who = self._who
        number = 0
        try:
            connection = self._opened()
            cursor = connection.cursor()
            try:
                cursor.execute(self._dialect.begin)
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
                # It may be over, or the connection gone: that is not what went wrong.
                with suppress(self._dialect.errors()):
                    cursor.execute("ROLLBACK")
                raise
            finally:
                cursor.close()
        except self._dialect.errors() as problem:
            self.close()  # in an unknown state, so the next call opens another connection
            raise RegionError(
                f"the sink's database rejected the commit: {problem}",
                hint="start the member again: it commits the pending statements",
                **dict(zip(_WHO, who, strict=True)),
            ) from problem
        return number

    @property
    def _who(self) -> tuple[str, str, str, str]:
        assert self._place is not None, "open() comes first"
        return self._place.names

    @property
    def _ours(self) -> str:
        return " AND ".join(f"{name} = {self._dialect.mark}" for name in _WHO)

    def _noted(self, cursor: Any, at: CommitId) -> int:
        """Return the number of the last commit of this run, 0 before the first.

        The row is locked, so that an older process waits. Raises FencedError if another process has opened the sink
        since. After an operator went back, an older process could commit the number of the next commit, which would
        then count as done.
        """
        asked = f"SELECT owner, run, number FROM kohort_sink WHERE {self._ours}{self._dialect.row_lock}"
        owner, run, number = cursor.execute(asked, self._who).fetchone() or ("", NO_RUN, 0)
        if owner != self._owner:
            raise FencedError(
                "a later process of this member has opened the sink",
                hint="stop this one",
                **dict(zip(_WHO, self._who, strict=True)),
            )
        return int(number) if run == at.run else 0

    def _note(self, cursor: Any, at: CommitId) -> None:
        mark = self._dialect.mark
        noted = f"UPDATE kohort_sink SET run = {mark}, number = {mark} WHERE {self._ours}"
        cursor.execute(noted, (at.run, at.number, *self._who))

    def _opened(self) -> Any:
        if self._connection is None:
            self._connection = self._dialect.connect(self._url)
        return self._connection
