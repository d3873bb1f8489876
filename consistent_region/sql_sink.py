"""Rows in an SQL database, exactly once: SQLite or PostgreSQL."""

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Final, Literal, get_args

from kohort.common.foreign_text import parsed_json
from kohort.common.log_context import logger
from kohort.consistent_region.effects import DueEffects, SinkPlace, TaskTerm
from kohort.consistent_region.errors import ConfigurationError, FencedError, RegionError, SinkUnavailable
from kohort.consistent_region.setting_checks import check_positive
from kohort.consistent_region.sql_dialects import dialect_of
from kohort.consistent_region.tasks import TaskId
from kohort.consistent_region.witness import NO_COMMIT, Witness

log = logger("kohort.region")

# A statement that is wrong in itself would end each next owner of its task as well, also with a mended handler. A
# missing table is an error of the set-up: it ends the member, and its statements are sound.
OnRefused = Literal["raise", "dead_letters"]
_NOTES: Final = """CREATE TABLE IF NOT EXISTS kohort_task (
    region TEXT NOT NULL, consumer_group TEXT NOT NULL, task TEXT NOT NULL, sink TEXT NOT NULL,
    owner TEXT NOT NULL, term BIGINT NOT NULL, lineage TEXT NOT NULL, sequence BIGINT NOT NULL,
    PRIMARY KEY (region, consumer_group, task, sink))"""
_DEAD: Final = """CREATE TABLE IF NOT EXISTS kohort_dead_letters (
    region TEXT NOT NULL, consumer_group TEXT NOT NULL, task TEXT NOT NULL, sink TEXT NOT NULL,
    lineage TEXT NOT NULL, sequence BIGINT NOT NULL, statement TEXT NOT NULL, statement_values TEXT NOT NULL,
    cause TEXT NOT NULL)"""
_KEY: Final = ("region", "consumer_group", "task", "sink")
_OF_TASK: Final = " AND ".join(f"{name} = ?" for name in _KEY)
_READ: Final = f"SELECT owner, term, lineage, sequence FROM kohort_task WHERE {_OF_TASK}"
_NOTE: Final = f"UPDATE kohort_task SET lineage = ?, sequence = ? WHERE {_OF_TASK}"
_PUT_ASIDE: Final = "INSERT INTO kohort_dead_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_TAKE: Final = f"""INSERT INTO kohort_task ({", ".join(_KEY)}, owner, term, lineage, sequence)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT ({", ".join(_KEY)})
    DO UPDATE SET owner = excluded.owner, term = excluded.term
    WHERE kohort_task.owner <> excluded.owner OR kohort_task.term < excluded.term"""
RETRY_TIMEOUT_S: Final = 60.0
RETRIED_AFTER_S: Final = 0.2


class SqlSink:
    """Statements that a handler collects with `execute`, run in one transaction with each checkpoint.

        sink = SqlSink("sqlite:///bills.db", schema="CREATE TABLE IF NOT EXISTS paid (name TEXT, amount INTEGER)")
        def handle(record, state):
            sink.execute("INSERT INTO paid VALUES (?, ?)", (record.key.decode(), 5))

    `url`: `sqlite:///PATH`, or `postgresql://...` (needs psycopg, with %s as placeholder). Values of a statement are
    JSON scalars: text, numbers, true, false, null. `schema`: statements that run at each start.

    The database has one row for each task and sink in `kohort_task`. It has the checkpoint of the last commit, which
    makes commits idempotent, and the last owner, which fences older ones. Connecting times out after 10 s and a lock
    after 30 s. PostgreSQL ends a transaction in which the process stands still for 10 s. `url` may have other values. A
    commit waits up to `retry_timeout_s` for a database that restarts. A server that does not respond to a statement for
    30 s longer than that is given up, except by those of `schema`.

    `on_refused`: the reaction to a statement that the database refuses for its data, such as a violated constraint.
    Wrong syntax and a wrong number of values count as such. With "raise" the member ends, and so does each next owner
    of the task, until the database accepts the statement. With "dead_letters" the statement becomes a row of
    `kohort_dead_letters` in the same transaction, with its values and the cause, and the others are carried out. A
    constraint that is checked at the end of a transaction always raises. `refused_total` counts such rows.

    Raises ConfigurationError for another URL and for invalid values. If the database rejects a commit, it raises
    RegionError from the driver's error, and SinkUnavailable if the database does not respond. It raises FencedError if
    another region with the same names, on another cluster, writes to the database. The member ends, and the next owner
    commits the pending statements. A member that starts does not wait for the database.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "",
        retry_timeout_s: float = RETRY_TIMEOUT_S,
        on_refused: OnRefused = "raise",
    ) -> None:
        check_positive("retry_timeout_s", retry_timeout_s)
        if on_refused not in get_args(OnRefused):
            raise ConfigurationError(
                f"unknown on_refused {on_refused!r}", hint=" or ".join(get_args(OnRefused)), setting="on_refused"
            )
        self.refused_total = 0
        self.latest_term = 0  # in a row of the last `take`
        self._retry_timeout_s = retry_timeout_s
        self._patience_s = retry_timeout_s
        self._on_refused = on_refused
        self._dialect, self._url = dialect_of(url)
        if not isinstance(schema, str):
            raise ConfigurationError(f"schema is text, not {type(schema).__name__}", setting="schema")
        self._schema = schema
        self._collected: dict[TaskId, list[tuple[str, list[Any]]]] = {}
        self._selected: list[tuple[str, list[Any]]] = []
        self._connection: Any = None
        self._place: SinkPlace | None = None
        self._terms: dict[TaskId, TaskTerm] = {}
        self._statement = ""  # the last one that a commit executed

    def execute(self, statement: str, values: Sequence[Any] = ()) -> None:
        """Have a statement run when the checkpoint that this record comes into is complete."""
        if not isinstance(statement, str):
            raise ConfigurationError(f"a statement is text, not {type(statement).__name__}")
        if "\0" in statement:
            raise ConfigurationError("a statement holds no NUL")
        if isinstance(values, str | bytes | Mapping):  # of which a list would be letters, numbers, or names
            raise ConfigurationError(
                f"a statement's values are a sequence, not {type(values).__name__}", hint="in the order of placeholders"
            )
        self._selected.append((statement, list(values)))

    def open(self, place: SinkPlace) -> None:
        """Connect, and run `schema`. Raises RegionError or SinkUnavailable from the driver's error."""
        self._place = place
        notes = (_NOTES,) if self._on_refused == "raise" else (_NOTES, _DEAD)
        tables = (*self._dialect.setup, *notes, *self._dialect.statements(self._schema))
        self._patience_s = inf  # `schema` may make the index of a large table
        try:
            self._transact(lambda cursor: [cursor.execute(one) for one in tables])
        finally:
            self._patience_s = self._retry_timeout_s

    def take(self, tasks: Collection[TaskId], term: TaskTerm) -> Mapping[TaskId, Witness]:
        """Write this owner into the row of each task, which fences older owners. Raises RegionError."""
        found: dict[TaskId, Witness] = {}

        def take(cursor: Any) -> None:
            self.latest_term = 0
            for task in sorted(tasks):
                self._run(cursor, _TAKE, *self._key(task), *term, *NO_COMMIT)
                owner, note = self._noted(cursor, task)
                self.latest_term = max(self.latest_term, owner.number)
                if note != NO_COMMIT:
                    found[task] = note

        self._retried(take)
        self._terms |= dict.fromkeys(tasks, term)
        return found

    def select(self, task: TaskId) -> None:
        """Collect the next statements for this task. Raises no error."""
        self._selected = self._collected.setdefault(task, [])

    def pre_commit(self, task: TaskId) -> bytes:
        """The collected statements of a task as JSON.

        Raises ConfigurationError for text that no database holds, and for a value that no column holds.
        """
        if not (collected := self._collected.get(task)):
            return b""
        try:
            written = json.dumps(collected, separators=(",", ":"), allow_nan=False)
            for statement, values in collected:
                for value in (statement, *values):
                    self._check(value)
            return written.encode()
        except (TypeError, ValueError) as problem:
            raise ConfigurationError(
                f"a statement and its values are what JSON and the database hold: {problem}"
            ) from problem

    def commit(self, due: Sequence[DueEffects], at: Witness) -> None:
        """Run the statements of all tasks in one transaction, unless they are done. Raises RegionError."""
        try:
            self._retried(lambda cursor: self._carry_out(cursor, due, at, None))
        except RegionError as error:
            cause = error.__cause__
            if self._on_refused == "raise" or not isinstance(cause, Exception) or not self._dialect.refuses(cause):
                raise
        else:
            return
        put_aside: list[str] = []

        def carry_out(cursor: Any) -> None:
            put_aside.clear()
            self._carry_out(cursor, due, at, put_aside)

        self._retried(carry_out)
        self.refused_total += len(put_aside)
        if put_aside:
            log.warning("%d statements are now dead letters: %s", len(put_aside), put_aside[0])

    def abort(self, task: TaskId) -> None:
        """Forget the collected statements of a task. Raises no error."""
        if (collected := self._collected.get(task)) is not None:
            collected.clear()

    def close(self) -> None:
        """Close the connection to the database."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- inner

    def _carry_out(self, cursor: Any, due: Sequence[DueEffects], at: Witness, put_aside: list[str] | None) -> None:
        """Execute statements. `put_aside` gets the causes of those that become dead letters, unless it is None."""
        for task, prepared, _offsets in due:
            owner, note = self._noted(cursor, task)
            ours = self._terms.get(task)
            # These effects would be lost: the owner in the database does not know this checkpoint, or is over.
            if owner.lineage != at.lineage:
                hint = "regions that share a database need names of their own, also on other clusters"
                raise self._unowned("another region as the owner of the task, or none", hint, task)
            if ours is not None and owner.number < ours.number:
                hint = "an older copy took its place, which may lack effects of earlier checkpoints"
                raise self._unowned("an earlier owner of the task", hint, task)
            if owner != ours:
                log.info("task %s has another owner, which commits checkpoint %d", task, at.sequence)
            elif not note.covers(at):
                for text, values in (one for segment in prepared for one in parsed_json(segment)):
                    if put_aside is None:
                        self._execute(cursor, text, values)
                    elif (cause := self._refusal(cursor, text, values)) is not None:
                        self._run(cursor, _PUT_ASIDE, *self._key(task), *at, text, json.dumps(values), cause)
                        put_aside.append(cause)
                self._run(cursor, _NOTE, *at, *self._key(task))

    def _unowned(self, found: str, hint: str, task: TaskId) -> FencedError:
        return FencedError(
            f"the sink's database has {found}", hint=hint, **dict(zip(_KEY, self._key(task), strict=True))
        )

    def _run(self, cursor: Any, statement: str, *values: Any) -> Any:
        """Execute a statement of this module, whose placeholders are those of SQLite."""
        return cursor.execute(statement.replace("?", self._dialect.mark), values)

    def _execute(self, cursor: Any, text: str, values: list[Any]) -> None:
        self._statement = text
        cursor.execute(text, *([tuple(values)] if values else []))  # without values, % is a per cent sign

    def _refusal(self, cursor: Any, text: str, values: list[Any]) -> str | None:
        """Execute a statement. Returns the cause if it is refused, which takes no other with it."""
        cause = None
        cursor.execute("SAVEPOINT kohort")
        try:
            self._execute(cursor, text, values)
        except self._dialect.errors() as problem:
            if not self._dialect.refuses(problem):
                raise
            cursor.execute("ROLLBACK TO SAVEPOINT kohort")
            cause = str(problem)
        cursor.execute("RELEASE SAVEPOINT kohort")
        return cause

    def _check(self, value: Any) -> None:
        """Raise ValueError or TypeError for values that no commit could write. They would end every process of the
        member."""
        if isinstance(value, dict):
            raise TypeError("dict is no column's value")
        if isinstance(value, str):
            value.encode()
        self._dialect.check(value)
        if isinstance(value, list | tuple):  # an array
            for one in value:
                self._check(one)

    def _retried(self, work: Callable[[Any], object]) -> None:
        """As `_transact`, again and again while the database is away. Notes make a repetition harmless."""
        until = time.monotonic() + self._retry_timeout_s
        while True:
            try:
                return self._transact(work)
            except SinkUnavailable as error:
                if time.monotonic() >= until:
                    raise
                log.warning("the sink's database is away, and waited for: %s", error.__cause__)
            time.sleep(RETRIED_AFTER_S)

    def _transact(self, work: Callable[[Any], object]) -> None:
        """Run `work` with a cursor in one transaction. Raises RegionError, SinkUnavailable from the driver's error."""
        self._statement = ""
        try:
            cursor = self._opened().cursor()
            try:
                cursor.execute(self._dialect.begin)
                work(cursor)
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
            assert self._place is not None, "open() comes first"
            put_aside = 'on_refused="dead_letters" puts such effects aside and goes on'
            again = "start the member again: the next owner commits the pending statements"
            away = self._dialect.passes(problem)
            raise (SinkUnavailable if away else RegionError)(
                f"the sink's database {'does not respond' if away else 'rejected the transaction'}: {problem}",
                hint=put_aside if self._dialect.refuses(problem) else again,
                region=self._place.region,
                consumer_group=self._place.group,
                sink=self._place.sink,
                statement=self._statement or None,
            ) from problem

    def _key(self, task: TaskId) -> tuple[str, str, str, str]:
        assert self._place is not None, "open() comes first"
        return self._place.names(task)

    def _noted(self, cursor: Any, task: TaskId) -> tuple[TaskTerm, Witness]:
        """Return the owner of a task and its last commit. The row is locked, so that another owner waits."""
        row = self._run(cursor, _READ + self._dialect.row_lock, *self._key(task)).fetchone()
        found = row or ("", 0, *NO_COMMIT)
        return TaskTerm(*found[:2]), Witness(*found[2:])

    def _opened(self) -> Any:
        if self._connection is None:
            self._connection = self._dialect.connect(self._url)
        self._dialect.prepare(self._connection, self._patience_s)
        return self._connection
