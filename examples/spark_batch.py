"""Reads the new records of a group as an RDD, and then the whole topic as a DataFrame.

python examples/spark_batch.py localhost:9092 nightly-report payments
"""

import sys
from typing import Any

from kohort.spark import kafka_rdd, plan, register


def new_by_key(session: Any, bootstrap: str, group: str, topic: str) -> dict[bytes | None, int]:
    """Count the records since the last run by key, and commit the group's offsets after that."""
    ranges = plan(bootstrap, topics=[topic], start="committed", group=group, max_records_per_partition=500_000)
    rdd = kafka_rdd(session.sparkContext, ranges, bootstrap=bootstrap)
    counts: dict[bytes | None, int] = dict(rdd.map(lambda record: (record.key, 1)).reduceByKey(int.__add__).collect())
    rdd.commit(group)  # after the action: a job that fails reads the same ranges again
    return counts


def bytes_by_day(session: Any, bootstrap: str, topic: str) -> list[tuple[str, int]]:
    """The bytes of each day in the whole topic, by Spark's SQL."""
    register(session)
    frame = session.read.format("kohort").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic).load()
    days = (
        frame.selectExpr("string(date(timestamp)) AS day", "coalesce(length(value), 0) AS bytes").groupBy("day").sum()
    )
    return sorted((row[0], row[1]) for row in days.collect())


def main(bootstrap: str, group: str, topic: str) -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName("kohort example").getOrCreate()
    for key, count in sorted(new_by_key(session, bootstrap, group, topic).items(), key=lambda item: -item[1])[:20]:
        print(f"{count:>10,}  {key!r}")
    for day, size in bytes_by_day(session, bootstrap, topic):
        print(f"{day}  {size:>14,} bytes")
    session.stop()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/spark_batch.py BOOTSTRAP GROUP TOPIC")
    main(*sys.argv[1:])
