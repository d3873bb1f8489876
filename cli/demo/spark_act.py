"""Spark's part: the same totals from the same topic, by executors that know nothing of the group."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kohort.cli.demo.outcome import Reading
from kohort.cli.demo.tally import Aircraft, Totals, tally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLITS_PER_CORE = 3


@contextmanager
def spark_session(master: str) -> Iterator[tuple["SparkSession", float]]:
    """A quiet session, and how many seconds its start took."""
    from pyspark.sql import SparkSession

    started = time.monotonic()
    # Workers must run this interpreter, which has kohort, and not whatever `python3` is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master(master)
        .appName("kohort demo")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session, time.monotonic() - started
    finally:
        session.stop()


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
