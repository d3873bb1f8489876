"""Spark's part: the same totals from the same topic, by executors that know nothing of the group."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.cli.demo.outcome import Reading
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


def read_rdd(session: "SparkSession", bootstrap: str, topic: str, started_s: float) -> Reading:
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
    return Reading("kafka_rdd", records, time.monotonic() - planned, started_s + planned - started, totals)


READERS: Mapping[str, Callable[["SparkSession", str, str, float], Reading]] = {"kafka_rdd": read_rdd}
