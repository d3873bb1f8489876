"""Spark's act: the same totals from the same topic, by executors that know nothing of the group."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.cli.demo.flights import Aircraft, Tally, Totals, tally
from kohort.cli.demo.outcome import TopicReading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLITS_PER_CORE = 3
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    # A JVM that lives for seconds spends more on compiling than on running: a third less time on two busy cores.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_EVENT = (
    "decode(element_at(filter(headers, header -> header.key = 'carrier'), 1).value, 'UTF-8') AS carrier",
    "coalesce(decode(key, 'UTF-8'), '') AS tail",
    "from_json(decode(value, 'UTF-8'), 'event string, miles bigint, delay bigint') AS flight",
)
_COUNTED = (
    *(f"int(coalesce(flight.event, 'cancelled') = '{kind}') AS {kind}" for kind in Totals._fields[:4]),
    "coalesce(flight.miles, 0) AS miles",
    "coalesce(flight.delay, 0) AS delay_minutes",
)


def spark_readings(
    master: str, log: Path, bootstrap: str, topic: str, say: Callable[[str], None]
) -> Iterator[TopicReading]:
    """Yield what each of READERS comes to in one session. Spark's log goes to the file `log`."""
    from pyspark.sql import SparkSession

    # Workers must run this interpreter, which has kohort, and not any other `python3`.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    started = time.monotonic()
    with _standard_error_in(log):
        session = SparkSession.builder.master(master).appName("kohort demo").config(map=_SETTINGS).getOrCreate()
    ready_s = time.monotonic() - started
    try:
        for name, read in READERS.items():
            started = time.monotonic()
            one = TopicReading(name, read(session, bootstrap, topic), time.monotonic() - started, ready_s)
            say(f"{name} read {one.records:,} records in {one.seconds:.1f} s")
            yield one
    finally:
        session.stop()


@contextmanager
def _standard_error_in(path: Path) -> Iterator[None]:
    """Make `path` file descriptor 2 until the end of the block. A JVM that is started in it keeps that."""
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


def read_rdd(session: "SparkSession", bootstrap: str, topic: str) -> Tally:
    """Totals through `kafka_rdd`."""
    from kohort.spark import kafka_rdd, plan

    context = session.sparkContext
    ranges = plan(bootstrap, topics=[topic], min_partitions=SPLITS_PER_CORE * context.defaultParallelism)
    records = kafka_rdd(context, ranges, bootstrap=bootstrap)
    return dict(records.mapPartitions(lambda part: tally(part).items()).reduceByKey(Totals.plus).collect())


def read_frame(session: "SparkSession", bootstrap: str, topic: str) -> Tally:
    """Totals through `format("kohort")`, added up by Spark's own SQL: no line of Python sees a record."""
    from kohort.spark import register

    register(session)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    splits = SPLITS_PER_CORE * session.sparkContext.defaultParallelism
    frame = session.read.format("kohort").options(**options, minPartitions=splits).load()
    rows = frame.selectExpr(*_EVENT).selectExpr("carrier", "tail", *_COUNTED).groupBy("carrier", "tail").sum().collect()
    return {Aircraft(row[0], row[1]): Totals(*row[2:]) for row in rows}


READERS: Mapping[str, Callable[["SparkSession", str, str], Tally]] = {"kafka_rdd": read_rdd, "DataFrame": read_frame}
