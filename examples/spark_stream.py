"""Windowed counts as a stream, exactly once into Parquet. Spark's log has the offsets, so a repeated batch is the same.

python examples/spark_stream.py localhost:9092 payments /tmp/counts
"""

import sys
from pathlib import Path
from typing import Any

from kohort.spark import register


def count_windows(session: Any, bootstrap: str, topic: str, folder: Path, *, window: str = "1 minute") -> Any:
    """Start (or continue) the query up to the present end of the topic, and return it."""
    register(session)
    frame = (
        session.readStream.format("kohort")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100000")
        .load()
    )
    counted = (
        frame.withWatermark("timestamp", "10 minutes")
        .groupBy(tumbling(window))
        .count()
        .selectExpr("window.start AS start", "count")
    )
    return (
        counted.writeStream.format("parquet")
        .outputMode("append")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start(str(folder / "rows"))
    )


def tumbling(length: str) -> Any:
    from pyspark.sql.functions import window

    return window("timestamp", length)


def main(bootstrap: str, topic: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName("kohort example").getOrCreate()
    count_windows(session, bootstrap, topic, Path(folder)).awaitTermination()
    session.read.parquet(str(Path(folder) / "rows")).orderBy("start").show(50)
    session.stop()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python examples/spark_stream.py BOOTSTRAP TOPIC FOLDER")
    main(*sys.argv[1:])
