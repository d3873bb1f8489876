"""Spark's part: the same totals from the same topic, by executors that know nothing of the group."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.cli.demo.outcome import SparkReading
from kohort.cli.demo.tally import Aircraft, Totals, tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLITS_PER_CORE = 3


@contextmanager
def spark_session(master: str, log: Path) -> Iterator[tuple["SparkSession", float]]:
    """A session that says what it has to say in `log`, and how many seconds its start took."""
    started = time.monotonic()
    with _standard_error_in(log):
        session = _session(master)
    try:
        yield session, time.monotonic() - started
    finally:
        session.stop()


def _session(master: str) -> "SparkSession":
    from pyspark.sql import SparkSession

    # Workers must run this interpreter, which has kohort, and not whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session: SparkSession = (
        SparkSession.builder.master(master)
        .appName("kohort demo")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        # A JVM that lives for seconds spends more on compiling than on running: a third less time on two busy cores.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    return session


@contextmanager
def _standard_error_in(path: Path) -> Iterator[None]:
    """Until the end of the block, file descriptor 2 is `path`; a JVM that is started meanwhile keeps it so."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def read_rdd(session: "SparkSession", bootstrap: str, topic: str, started_s: float) -> SparkReading:
    """Totals through `kafka_rdd`."""
    from kohort.spark import kafka_rdd, plan

    started = time.monotonic()
    context = session.sparkContext
    ranges = plan(bootstrap, topics=[topic], min_partitions=SPLITS_PER_CORE * context.defaultParallelism)
    planned = time.monotonic()
    totals: dict[Aircraft, Totals] = dict(
        kafka_rdd(context, ranges, bootstrap=bootstrap)
        .mapPartitions(lambda records: list(tally(records).items()))
        .reduceByKey(Totals.plus)
        .collect()
    )
    records = sum(one.events for one in totals.values())
    return SparkReading("kafka_rdd", records, time.monotonic() - planned, started_s + planned - started, totals)


def read_frame(session: "SparkSession", bootstrap: str, topic: str, started_s: float) -> SparkReading:
    """Totals through `format("kohort")`, added up by Spark's own SQL: no line of Python sees a record."""
    from kohort.spark import register

    register(session)
    started = time.monotonic()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    splits = SPLITS_PER_CORE * session.sparkContext.defaultParallelism
    frame = session.read.format("kohort").options(**options, minPartitions=splits).load()
    rows = frame.selectExpr(*_EVENT).selectExpr("carrier", "tail", *_COUNTED).groupBy("carrier", "tail").sum().collect()
    totals = {Aircraft(row[0], row[1]): Totals(*row[2:]) for row in rows}
    records = sum(one.events for one in totals.values())
    return SparkReading("DataFrame", records, time.monotonic() - started, started_s, totals)


_EVENT = (
    "decode(element_at(filter(headers, header -> header.key = 'carrier'), 1).value, 'UTF-8') AS carrier",
    "coalesce(decode(key, 'UTF-8'), '') AS tail",
    "from_json(decode(value, 'UTF-8'), 'event string, miles bigint, delay bigint') AS told",
)
_COUNTED = (
    *(f"int(coalesce(told.event, 'cancelled') = '{kind}') AS {kind}" for kind in Totals._fields[:4]),
    "coalesce(told.miles, 0) AS miles",
    "coalesce(told.delay, 0) AS delay_minutes",
)
READERS: Mapping[str, Callable[["SparkSession", str, str, float], SparkReading]] = {
    "kafka_rdd": read_rdd,
    "DataFrame": read_frame,
}
