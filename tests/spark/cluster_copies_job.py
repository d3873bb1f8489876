"""Jobs with a straggler, and with pauses, for a cluster whose event log is read: BOOTSTRAP TOPIC TO FOLDER MODE.

`speculation`: the first task of each job that reads partition 0 is slow, and its copy is not. `allocation`: a pause
between two jobs, in which executors are removed. What was found is written as JSON to `result.json`.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORDS, PARTITIONS = 4_000, 4
SLOW_S = 60.0
PAUSE_S = 12.0


def once_slow(seen: str) -> Callable[[int], int]:
    """The identity of numbers. The first task that meets 0 sleeps, and leaves the file `seen`."""

    def through(number: int) -> int:
        if number == 0 and not Path(seen).exists():
            Path(seen).touch()
            time.sleep(SLOW_S)
        return number

    return through


def main(bootstrap: str, topic: str, to: str, folder: Path, mode: str) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import udf

    from kohort.spark import TransactionalWriter, kafka_rdd, plan, register

    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    at = {"kafka.bootstrap.servers": bootstrap}
    source = at | {"subscribe": topic, "startingOffsets": "earliest"}

    def numbers(frame: Any, job: str) -> Any:
        slow = udf(once_slow(str(folder / f"{job}.seen")), "long", useArrow=False)
        return frame.select(slow(frame.value.cast("string").cast("long")).alias("number"))

    def batch() -> list[int]:
        frame = spark.read.format("kohort").options(**source).load()
        return sorted(row[0] for row in numbers(frame, "batch").collect())

    def rdd() -> list[int]:
        slow = once_slow(str(folder / "rdd.seen"))
        read = kafka_rdd(spark.sparkContext, plan(topics=[topic], bootstrap=bootstrap), bootstrap=bootstrap)
        return sorted(read.map(lambda record: slow(int(record.value))).collect())

    def written() -> None:
        frame = spark.readStream.format("kohort").options(**source).load()
        rows = numbers(frame, "written").selectExpr("CAST(number AS STRING) AS value")
        writer = rows.writeStream.foreachBatch(TransactionalWriter(at | {"topic": to})).trigger(availableNow=True)
        writer.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()

    result: dict[str, Any] = {"batch": batch()}
    if mode == "allocation":
        time.sleep(PAUSE_S)
        (folder / "batch.seen").touch()
        result["again"] = batch()
    else:
        result["rdd"] = rdd()
        written()
    (folder / "result.json").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    bootstrap, topic, to, folder, mode = sys.argv[1:]
    main(bootstrap, topic, to, Path(folder), mode)
