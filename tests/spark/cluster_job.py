"""A job for a cluster whose executors have kohort from an archive only: BOOTSTRAP TOPIC FOLDER.

The first Python tasks of a read and of a stream say so in a file and wait until the test has killed an executor.
What was read is written as JSON to `result.json`.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RECORDS, PARTITIONS = 20_000, 4


def main(bootstrap: str, topic: str, folder: Path) -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import count, countDistinct, expr, udf
    from pyspark.sql.functions import sum as total

    from kohort.spark import kafka_rdd, plan, register

    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    result: dict[str, Any] = {}

    numbers = spark.range(0, RECORDS, 1, PARTITIONS)
    columns = numbers.selectExpr("CAST(id AS STRING) AS value", f"CAST(id % {PARTITIONS} AS INT) AS partition")
    columns.write.format("kohort").mode("append").option("kafka.bootstrap.servers", bootstrap).option(
        "topic", topic
    ).save()

    def totals(frame: Any) -> list[int]:
        number = expr("CAST(CAST(value AS STRING) AS LONG)")
        return list(frame.agg(count("*"), countDistinct("partition", "offset"), total(number)).first())

    def gated(name: str) -> Any:
        return udf(gate(str(folder / f"{name}.in-task"), str(folder / f"{name}.killed")), "long", useArrow=False)

    records = spark.read.format("kohort").options(**options).load()
    result["read"] = totals(records)
    result["read, an executor killed"] = totals(
        records.select("partition", gated("read")("offset").alias("offset"), "value")
    )

    rdd = kafka_rdd(spark.sparkContext, plan(topics=[topic], bootstrap=bootstrap), bootstrap=bootstrap)
    result["kafka_rdd"] = [rdd.count(), rdd.map(lambda record: int(record.value)).sum()]

    stream = spark.readStream.format("kohort").options(**options, maxOffsetsPerTrigger=str(RECORDS // 4)).load()
    writer = (
        stream.select("partition", gated("stream")("offset").alias("offset"), "value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
    )
    while True:
        try:
            writer.start(str(folder / "rows")).awaitTermination()
            break
        except StreamingQueryException as error:
            # On a busy machine Spark gives up on a Python process that takes 10 s to start.
            if "failed to connect back" not in str(error):
                raise
    result["stream, an executor killed"] = totals(spark.read.parquet(str(folder / "rows")))

    result["kohort is at"] = spark.sparkContext.parallelize(range(4), 4).map(lambda _: home()).distinct().collect()
    (folder / "result.json").write_text(json.dumps(result))


def gate(in_task: str, killed: str) -> Callable[[int], int]:
    """The identity, which waits in the first tasks until the file `killed` exists.

    `in_task` then holds the process id of Spark's Python daemon, whose parent is the executor.
    """

    def through(offset: int) -> int:
        if not Path(killed).exists():
            mine = Path(f"{in_task}.{os.getpid()}")
            mine.write_text(str(os.getppid()))
            mine.rename(in_task)
            while not Path(killed).exists():
                time.sleep(0.05)
        return offset

    return through


def home() -> str:
    import kohort

    return str(kohort.__file__)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
