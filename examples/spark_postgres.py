"""Counts by key, exactly once into PostgreSQL: a batch's counts and its number are stored in one transaction.

python examples/spark_postgres.py localhost:9092 payments postgresql://localhost/counts /tmp/checkpoint

Spark may repeat a batch, with the same number and the same records. The number is stored already, so nothing is added.
Empty both tables before a run with a new checkpoint, because its batches have the same numbers again.
A batch has at most 100,000 offsets. A batch of less than 1,000 offsets starts after 10 s.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from kohort.spark import register

TABLES = """
CREATE TABLE IF NOT EXISTS batches (query text, number bigint, PRIMARY KEY (query, number));
CREATE TABLE IF NOT EXISTS counts (key text PRIMARY KEY, records bigint, bytes bigint);
"""
ADD = """
INSERT INTO counts VALUES (%s, %s, %s)
ON CONFLICT (key) DO UPDATE SET records = counts.records + excluded.records, bytes = counts.bytes + excluded.bytes
"""


def count_by_key(session: Any, bootstrap: str, topic: str, url: str, checkpoint: Path, **trigger: Any) -> Any:
    """Start (or continue) the query; returns it."""
    register(session)
    with psycopg.connect(url) as connection:
        connection.execute(TABLES)
    frame = (
        session.readStream.format("kohort")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.group.id", f"{topic}-counts")  # finished batches are committed, so that tools show the lag
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100000")
        .option("minOffsetsPerTrigger", "1000")
        .option("maxTriggerDelay", "10s")
        .load()
    )
    # Grouped by batch, so that only sums leave the executors.
    store = adder(url, f"{topic}-counts")
    writer = frame.writeStream.foreachBatch(store).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger or {"processingTime": "1 second"}).start()


def adder(url: str, query: str) -> Callable[[Any, int], None]:
    """A function that stores a batch once, also if it is called again."""

    def add(batch: Any, number: int) -> None:
        by_key = batch.selectExpr("string(key) AS key", "coalesce(length(value), 0) AS bytes").groupBy("key")
        sums = (
            by_key.agg({"*": "count", "bytes": "sum"}).select("key", "count(1)", "sum(bytes)").where("key IS NOT NULL")
        )
        rows = [tuple(row) for row in sums.collect()]
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO batches VALUES (%s, %s) ON CONFLICT DO NOTHING", (query, number))
            if cursor.rowcount == 1:
                cursor.executemany(ADD, rows)

    return add


def main(bootstrap: str, topic: str, url: str, checkpoint: str) -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName("kohort example").getOrCreate()
    count_by_key(session, bootstrap, topic, url, Path(checkpoint)).awaitTermination()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: python examples/spark_postgres.py BOOTSTRAP TOPIC URL CHECKPOINT")
    main(*sys.argv[1:])
