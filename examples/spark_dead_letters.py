"""Writes unreadable records with their origin to a dead-letter topic, and the others to Parquet.

python examples/spark_dead_letters.py localhost:9092 payments payments-dead /tmp/payments

The driver is a member of the group "payments-loader". If the program is started twice, each reads its assignment, and
needs a folder of its own. A repeated batch replaces its Parquet files, and writes its dead letters again. After a crash
the other program may read the last batch of the first one again.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kohort.spark import register

FIELDS = "account STRING, amount DOUBLE"
WHOLE = "(read.account IS NOT NULL AND read.amount IS NOT NULL)"
PLACE = "concat_ws('/', topic, partition, offset)"


def load(session: Any, bootstrap: str, topic: str, dead: str, folder: Path, **trigger: Any) -> Any:
    """Start (or continue) the query; returns it."""
    register(session)
    frame = (
        session.readStream.format("kohort")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("group", f"{topic}-loader")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100000")
        .load()
    )
    store = sorter(bootstrap, dead, folder / "rows")
    writer = frame.writeStream.foreachBatch(store).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger or {"processingTime": "1 second"}).start()


def sorter(bootstrap: str, dead: str, rows: Path) -> Callable[[Any, int], None]:
    """A function that writes a batch. Its Parquet folder has the batch's number, so a repeated batch replaces it."""

    def sort(batch: Any, number: int) -> None:
        read = batch.selectExpr("*", f"from_json(string(value), '{FIELDS}') AS read").persist()
        good, bad = read.where(WHOLE), read.where(f"NOT coalesce({WHOLE}, false)")
        good.select("read.*", "partition", "offset").write.mode("overwrite").parquet(f"{rows}/batch={number}")
        headers = f"array(struct('from' AS key, encode({PLACE}, 'UTF-8') AS value)) AS headers"
        letters = bad.selectExpr("key", "value", headers)
        options = {"kafka.bootstrap.servers": bootstrap, "topic": dead}
        letters.write.format("kohort").mode("append").options(**options).save()
        read.unpersist()

    return sort


def main(bootstrap: str, topic: str, dead: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.appName("kohort example").getOrCreate()
    load(session, bootstrap, topic, dead, Path(folder)).awaitTermination()


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit("usage: python examples/spark_dead_letters.py BOOTSTRAP TOPIC DEAD FOLDER")
    main(*sys.argv[1:])
