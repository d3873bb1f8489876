"""A client of Spark Connect, with PySpark's package without a JVM: URL BOOTSTRAP FOLDER TOPIC COPIED GROUP.

It writes numbers to a topic, reads them in a batch and as streams, and copies them by a stream. The findings are
written as JSON to `result.json`. GROUP is empty where `group=` needs a newer Spark.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RECORDS, PARTITIONS = 4_000, 4
LISTENS_S = 60.0


def main(url: str, bootstrap: str, folder: Path, topic: str, copied: str, group: str) -> None:
    from pyspark.sql import SparkSession

    from kohort.spark import LagListener, TransactionalWriter, lag_of, register

    spark = SparkSession.builder.remote(url).getOrCreate()
    register(spark)
    at = {"kafka.bootstrap.servers": bootstrap}
    source = at | {"subscribe": topic, "startingOffsets": "earliest"}
    received: dict[str, int] = {}

    def streamed(name: str, rows: Any, kind: str, options: Mapping[str, str]) -> Any:
        writer = rows.writeStream.format(kind).queryName(name).trigger(availableNow=True).options(**options)
        query = writer.option("checkpointLocation", str(folder / f"{name}-checkpoint")).start()
        query.awaitTermination()
        return query

    def read(name: str, **more: str) -> list[int]:
        frame = spark.readStream.format("kohort").options(**source, **more).load().select("value")
        streamed(name, frame, "parquet", {"path": str(folder / name)})
        return numbers(spark.read.parquet(str(folder / name)))

    columns = "CAST(id AS STRING) AS value", f"CAST(id % {PARTITIONS} AS INT) AS partition"
    rows = spark.range(0, RECORDS, 1, PARTITIONS).selectExpr(*columns)
    rows.write.format("kohort").mode("append").options(**at, topic=topic).save()

    records = spark.read.format("kohort").options(**source).load()
    result: dict[str, Any] = {
        "batch": numbers(records),
        "filter": records.where("partition = 1 AND offset >= 990").count(),
        "misspelt": refusal(lambda: spark.read.format("kohort").options(**at, subscrib=topic).load().collect()),
    }
    spark.streams.addListener(LagListener(lambda name, found: received.update({name: len(found)})))
    result["stream"] = read("stream")
    if group:
        result["group"] = read("group", group=group)
    frame = spark.readStream.format("kohort").options(**source).load().select("value", "partition")
    query = streamed("copy", frame, "kohort", at | {"topic": copied})
    result["ends"] = sorted(found.end for found in lag_of(query.lastProgress).values())
    until = time.monotonic() + LISTENS_S
    while "copy" not in received and time.monotonic() < until:
        time.sleep(0.1)
    result["listener"] = received.get("stream")
    writer = TransactionalWriter(at | {"topic": copied})
    result["exactly once"] = refusal(lambda: frame.writeStream.foreachBatch(writer))
    (folder / "result.json").write_text(json.dumps(result))
    spark.stop()


def numbers(frame: Any) -> list[int]:
    return sorted(int(row[0]) for row in frame.selectExpr("CAST(value AS STRING)").collect())


def refusal(work: Callable[[], object]) -> str:
    try:
        work()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
