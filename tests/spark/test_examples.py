"""The examples do what their first lines say."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pyspark
import pytest

from examples.spark_batch import bytes_by_day, new_by_key
from examples.spark_dead_letters import load
from examples.spark_postgres import adder, count_by_key
from examples.spark_stream import count_windows
from kohort import Consumer, TopicPartition
from kohort.testing import RealPostgres
from tests.spark.queries import ended
from tests.spark.sent import Sent, varied
from tests.support.broker_selection import SelectedBroker

pytestmark = pytest.mark.broker
EXAMPLES = Path(__file__).parents[2] / "examples"
JUDGE = """
import sys
from examples.stream_and_region import region
from kohort.consistent_region import Periodic

region(*sys.argv[1:], trigger=Periodic(0.2), session_timeout_ms=6_000, heartbeat_interval_ms=500).run()
"""


def test_what_a_group_has_not_read_yet_is_counted_once(
    spark: Any, broker: SelectedBroker, topic: str, send: Callable[..., None], unique: Callable[[str], str]
) -> None:
    group = unique("group")
    send(topic, [Sent(0, b"a", b"1", 1_700_000_000_000, ()), Sent(1, b"b", b"22", 1_700_000_000_000, ())])
    assert new_by_key(spark, broker.bootstrap, group, topic) == {b"a": 1, b"b": 1}
    send(topic, [Sent(2, b"a", None, 1_700_100_000_000, ())])
    assert new_by_key(spark, broker.bootstrap, group, topic) == {b"a": 1}
    assert bytes_by_day(spark, broker.bootstrap, topic) == [("2023-11-14", 3), ("2023-11-16", 0)]


@pytest.mark.full
def test_windows_are_counted_exactly_once_over_two_runs(
    spark: Any, broker: SelectedBroker, topic: str, send: Callable[..., None], tmp_path: Path
) -> None:
    def run() -> list[tuple[int, int]]:
        ended(lambda: count_windows(spark, broker.bootstrap, topic, tmp_path))
        rows = spark.read.parquet(str(tmp_path / "rows")).collect()
        return sorted((int(row[0].timestamp()), row[1]) for row in rows)

    # A record a second from 22:13:20 on; a window is written when the watermark, ten minutes back, has passed it.
    send(topic, varied(700))
    first = run()
    # Before PySpark 4.2 such a run is one batch, whose watermark only the next run looks at.
    assert first[:1] == ([(1_699_999_980, 40)] if pyspark.__version__ >= "4.2" else [])
    send(topic, [one._replace(timestamp_ms=one.timestamp_ms + 700_000) for one in varied(700)])
    second = run()
    assert second[: len(first)] == first
    assert len(second) > len(first)
    assert second[0] == (1_699_999_980, 40)
    assert {count for _, count in second[1:]} <= {60}


def test_counts_are_in_postgresql_once_though_a_batch_runs_twice(
    spark: Any, broker: SelectedBroker, postgres: RealPostgres, topic: str, send: Callable[..., None], tmp_path: Path
) -> None:
    url = postgres.fresh()
    sent = varied(60)

    def run() -> dict[str, tuple[int, int]]:
        ended(lambda: count_by_key(spark, broker.bootstrap, topic, url, tmp_path / "checkpoint", availableNow=True))
        with psycopg.connect(url) as connection:
            return {key: (records, size) for key, records, size in connection.execute("SELECT * FROM counts")}

    send(topic, sent)
    once = {one.key.decode(): (1, len(one.value or b"")) for one in sent if one.key is not None}
    assert run() == once
    again = spark.createDataFrame([(b"key-1", b"xx")], "key binary, value binary")
    adder(url, f"{topic}-counts")(again, 0)  # batch 0 is there already
    assert run() == once
    adder(url, f"{topic}-counts")(again, 99)
    assert run()["key-1"] == (2, once["key-1"][1] + 2)


def test_a_stream_and_a_region_side_by_side_agree_though_the_region_is_killed(
    spark: Any, broker: SelectedBroker, postgres: RealPostgres, topic: str, send: Callable[..., None], tmp_path: Path
) -> None:
    url, sent = (
        postgres.fresh(),
        [Sent(n % 3 % 2, b"key-%d" % (n % 3), b"v", 1_700_000_000_000, ()) for n in range(700)],
    )
    judge = [sys.executable, "-c", JUDGE, broker.bootstrap, topic, url]

    def rows(query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(url) as connection:
            return connection.execute(query).fetchall()

    def wait_for(count: int) -> None:
        until = time.monotonic() + 120
        while not rows("SELECT to_regclass('milestones') IS NOT NULL")[0][0] or (
            rows("SELECT count(*) FROM milestones")[0][0] < count
        ):
            assert time.monotonic() < until, rows("SELECT * FROM milestones")
            time.sleep(0.1)  # another process writes, without a signal at its end

    for part, due in ((sent[:400], 3), (sent[400:], 6)):
        send(topic, part)
        with subprocess.Popen(judge, cwd=EXAMPLES.parent) as region:
            ended(lambda: count_by_key(spark, broker.bootstrap, topic, url, tmp_path / "checkpoint", availableNow=True))
            wait_for(due)
            region.kill()
    reached = "SELECT key, count(*) AS found FROM milestones GROUP BY key"
    both = f"SELECT key, records / 100, coalesce(found, 0) FROM counts LEFT JOIN ({reached}) AS reached USING (key)"
    assert sorted(rows(both)) == [(f"key-{n}", 2, 2) for n in range(3)]
    assert [row[0] for row in rows("SELECT records FROM counts ORDER BY key")] == [234, 233, 233]


@pytest.mark.skipif(pyspark.__version__ < "4.2", reason="PySpark gives a stream its position since 4.2")
def test_dead_letters_say_where_they_came_from(
    spark: Any,
    broker: SelectedBroker,
    topic: str,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    tmp_path: Path,
) -> None:
    dead = make_topic(1)
    values = [b'{"account":"a","amount":1.5}', b"nonsense", None, b'{"account":"b"}', b'{"account":"c","amount":2}']
    send(topic, [Sent(0, b"%d" % n, value, 1_700_000_000_000, ()) for n, value in enumerate(values)])
    ended(lambda: load(spark, broker.bootstrap, topic, dead, tmp_path, availableNow=True))
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted((row.account, row.amount, row.offset) for row in rows) == [("a", 1.5, 0), ("c", 2.0, 4)]
    letters: list[tuple[object, ...]] = []
    with Consumer(broker.bootstrap) as consumer:
        consumer.assign({TopicPartition(dead, 0): 0})
        while len(letters) < 3:
            letters += [(one.key, one.value, one.headers) for columns in consumer.poll(5.0) for one in columns]
    assert letters == [(b"%d" % n, values[n], (("from", f"{topic}/0/{n}".encode()),)) for n in (1, 2, 3)]


def test_the_shortest_member_prints_what_it_reads_and_commits(
    broker: SelectedBroker, topic: str, send: Callable[..., None], unique: Callable[[str], str]
) -> None:
    send(topic, [Sent(1, b"key", b"value", 1_700_000_000_000, ())])
    command = [sys.executable, str(EXAMPLES / "consume.py"), broker.bootstrap, unique("group"), topic]
    member = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PYTHONUNBUFFERED": "1"})
    assert member.stdout is not None
    lines = []
    for line in member.stdout:
        lines.append(line.strip())
        if line.startswith("1 0 "):
            break
    member.send_signal(signal.SIGINT)
    rest, _ = member.communicate(timeout=120)
    assert lines[0].startswith("generation 1: now reading")
    assert lines[-1] == "1 0 b'key' b'value'"
    assert "releasing" in rest
    assert member.returncode == 0
