"""State that a region keeps consistent: it can be snapshotted, restored, and reset to its initial state."""

import sqlite3
from typing import Final, Protocol, runtime_checkable

from kohort.common.foreign_text import parsed_json
from kohort.consistent_region.errors import ResetFailedError
from kohort.consistent_region.manifest import canonical, plain_positions, read_positions
from kohort.consistent_region.offsets import Positions


class StateHandle(Protocol):
    """The interface of a task's state. All calls come on the thread of `run`, never while the handler runs.

    `offsets` belong to the state: store them with it in one write, or ignore them. A snapshot must be complete: after
    `restore` of it, the state is the same.
    """

    def snapshot(self, offsets: Positions) -> bytes:
        """Return the whole state as bytes. An exception raised here ends the member."""

    def restore(self, snapshot: bytes, offsets: Positions) -> None:
        """Replace the state by that of a snapshot. Raise ResetFailedError for bytes that are no snapshot of it."""

    def reset_initial(self) -> None:
        """Make the state that of a task without records."""


@runtime_checkable
class CheckpointListener(Protocol):
    """A state with a callback for the completion of the checkpoint that holds its last snapshot.

    The callback may be missed. A state that died or went back before it is restored from that checkpoint, and must
    infer the completion. A KohortError in the callback ends the member.
    """

    def completed(self) -> None:
        """The checkpoint with the last snapshot is complete."""


_OFFSETS: Final = "CREATE TABLE kohort_offsets (positions TEXT NOT NULL)"


class SqliteState:
    """An SQLite database in memory. The handler writes through `connection` to tables that `schema` creates.

    A snapshot is the whole database with the offsets in a table of its own. They are written in the transaction with
    the handler's last writes, and `restore` rejects a snapshot with other offsets than the checkpoint's. Offsets of
    topics that an operator had forgotten are not in the checkpoint, and are not compared.
    """

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.connection = self._new()

    def snapshot(self, offsets: Positions) -> bytes:
        """Commit, and return the whole database in SQLite's file format. Raises sqlite3.Error."""
        self.connection.execute("DELETE FROM kohort_offsets")
        self.connection.execute("INSERT INTO kohort_offsets VALUES (?)", (_text(offsets),))
        self.connection.commit()
        return self.connection.serialize()

    def restore(self, snapshot: bytes, offsets: Positions) -> None:
        """Replace the database by a snapshot. Raises ResetFailedError for an invalid one, or for other offsets."""
        if not snapshot:
            raise ResetFailedError("the snapshot is empty")
        connection = sqlite3.connect(":memory:", check_same_thread=False)  # made on one thread, run on another
        try:
            connection.deserialize(snapshot)
            row = connection.execute("SELECT positions FROM kohort_offsets").fetchone()
        except sqlite3.Error as problem:
            connection.close()
            raise ResetFailedError(f"the snapshot is no database of this state: {problem}") from problem
        if row is None or not dict(offsets).items() <= read_positions(parsed_json(row[0])).items():
            connection.close()
            raise ResetFailedError("the offsets in the snapshot are not those of the checkpoint")
        self.connection.close()
        self.connection = connection

    def reset_initial(self) -> None:
        """Replace the database by an empty one with `schema`. Raises sqlite3.Error."""
        self.connection.close()
        self.connection = self._new()

    def _new(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", check_same_thread=False)  # made on one thread, run on another
        connection.executescript(self.schema)
        connection.execute(_OFFSETS)
        connection.commit()
        return connection


def _text(offsets: Positions) -> str:
    return canonical(plain_positions(offsets)).decode()
