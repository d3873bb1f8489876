"""Inputs of sinks: URLs that do not show their passwords, and values that a database can hold."""

import sqlite3
import traceback
from pathlib import Path
from typing import Any

import pytest

from kohort.consistent_region import DueEffects, SinkPlace, SqlSink, TaskId, TaskTerm, Witness
from kohort.consistent_region.errors import ConfigurationError
from kohort.consistent_region.open_store import open_store
from kohort.network.group_types import ConsumerGroupMetadata

SECRET = "can4ry"
T0 = TaskId("", 0)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://me:{}@host/db",
        "postgresql+psycopg://me:{}@host/db",
        "postgres//me:{}@host/db",
        "host=here user=me password={}",
        "me:{}@host/db",
        "postgresql://me:50%{}@127.0.0.1:1/db",
        "postgresql://me:50%x{}@127.0.0.1:1/db",
        "postgresql://me:a@{}@127.0.0.1:1/db",
        "postgresql://me:a/{}@127.0.0.1:1/db",
        "postgresql://me:1/{}@127.0.0.1:1/db",
        "postgresql://me:{}@[127.0.0.1:1/db",
    ],
)
def test_a_mistyped_url_does_not_show_its_password(url: str, caplog: pytest.LogCaptureFixture) -> None:
    def sink() -> None:
        SqlSink(url.format(SECRET)).open(SinkPlace("r", "g", lambda: ConsumerGroupMetadata("g")))

    for used in (sink, lambda: open_store(url.format(SECRET))):
        with pytest.raises(ConfigurationError) as caught:
            used()
        reported = "".join(traceback.format_exception(caught.value)) + repr(caught.value.place) + caplog.text
        assert SECRET not in reported


@pytest.mark.parametrize(
    ("url", "value"),
    [
        ("sqlite:///{}/x.db", 1 << 63),
        ("sqlite:///{}/x.db", -(1 << 63) - 1),
        ("sqlite:///{}/x.db", "half a pair: \ud800"),
        ("sqlite:///{}/x.db", [1]),
        ("sqlite:///{}/x.db", {"a": 1}),
        ("postgresql://x", "\ud800"),
        ("postgresql://x", "a\0b"),
        ("postgresql://x", {"a": 1}),
        ("postgresql://x", [["a\0b"]]),
        ("postgresql://x", ["\ud800"]),
        ("postgresql://x", [{"a": 1}]),
    ],
)
def test_a_value_that_the_database_cannot_hold_comes_into_no_checkpoint(url: str, value: Any, tmp_path: Path) -> None:
    """In a complete one it would be owed for ever, and end each life that tries."""
    sink = SqlSink(url.format(tmp_path))
    sink.select(T0)
    sink.execute("INSERT INTO t VALUES (?)", (value,))
    with pytest.raises(ConfigurationError, match="the database hold"):
        sink.pre_commit(T0)


def test_the_largest_values_of_a_database_are_kept(tmp_path: Path) -> None:
    sink = SqlSink(f"sqlite:///{tmp_path}/x.db", schema="CREATE TABLE t (n)")
    sink.open(SinkPlace("r", "g", lambda: ConsumerGroupMetadata("g")))
    sink.take([T0], TaskTerm("5f", 1))
    sink.select(T0)
    values = [(1 << 63) - 1, -(1 << 63), 1.5, True, None, "a\0b"]
    for value in values:
        sink.execute("INSERT INTO t VALUES (?)", (value,))
    sink.commit([DueEffects(T0, [sink.pre_commit(T0)], {})], Witness("5f", 1))
    sink.close()
    with sqlite3.connect(tmp_path / "x.db") as database:
        assert [row[0] for row in database.execute("SELECT n FROM t ORDER BY rowid")] == values
