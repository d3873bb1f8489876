"""The driver of `cluster_kills.py`: BOOTSTRAP FOLDER. It does the orders `order-N.json`, until there is `end`.

An order names a kind of job, a topic and others. The result is `result-N.json`; `started-N` says that the job runs.
Tasks sleep now and then, so that a job takes some seconds and can be hit.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

RECORDS, PARTITIONS = 8_000, 4
SLEEP_EVERY, SLEEP_S = 500, 0.4
BUSY = "failed to connect back"  # on a busy machine Spark gives up on a Python process that takes 10 s to start
Order = Mapping[str, str]


def slept(number: int) -> int:
    if number % SLEEP_EVERY == 0:
        time.sleep(SLEEP_S)
    return number


class Jobs:
    """The kinds of jobs. Each returns what it has found, as JSON."""

    def __init__(self, spark: Any, bootstrap: str) -> None:
        from pyspark.sql.functions import udf

        self._spark = spark
        self._at = {"kafka.bootstrap.servers": bootstrap}
        self._slept = udf(slept, "long", useArrow=False)

    def rdd(self, order: Order) -> Any:
        from kohort.spark import kafka_rdd, plan

        bootstrap = self._at["kafka.bootstrap.servers"]
        rdd = kafka_rdd(
            self._spark.sparkContext, plan(topics=[order["topic"]], bootstrap=bootstrap), bootstrap=bootstrap
        )
        return sorted(rdd.map(lambda record: (slept(record.offset), int(record.value))[1]).collect())

    def batch(self, order: Order) -> Any:
        frame = self._spark.read.format("kohort").options(**self._from(order)).load()
        by_key = self._slowly(frame).groupBy("value").count()  # through a shuffle, and AQE
        return sorted(row[0] for row in by_key.collect() for _ in range(row[1]))

    def stream(self, order: Order) -> Any:
        return self._into_parquet(order, self._from(order) | {"maxOffsetsPerTrigger": str(RECORDS // 4)})

    def group(self, order: Order) -> Any:
        return self._into_parquet(order, self._from(order) | {"group": order["group"]})

    def sink(self, order: Order) -> Any:
        numbers = self._spark.range(0, RECORDS, 1, PARTITIONS).withColumn("value", self._slept("id"))
        rows = numbers.selectExpr("CAST(value AS STRING) AS value")
        rows.write.format("kohort").mode("append").options(**self._at, topic=order["to"]).save()
        return None

    def exactly_once(self, order: Order) -> Any:
        from kohort.spark import TransactionalWriter

        frame = self._spark.readStream.format("kohort").options(**self._from(order), maxOffsetsPerTrigger="4000").load()
        rows = self._slowly(frame).selectExpr("CAST(value AS STRING) AS value")
        writer = TransactionalWriter(self._at | {"topic": order["to"]})
        self._ended(rows.writeStream.foreachBatch(writer).option("checkpointLocation", f"{order['folder']}/checkpoint"))
        return None

    def _from(self, order: Order) -> dict[str, str]:
        return self._at | {"subscribe": order["topic"], "startingOffsets": "earliest"}

    def _slowly(self, frame: Any) -> Any:
        return frame.withColumn("offset", self._slept("offset")).selectExpr(
            "CAST(CAST(value AS STRING) AS LONG) AS value", "offset", "partition"
        )

    def _into_parquet(self, order: Order, options: Mapping[str, str]) -> Any:
        frame = self._slowly(self._spark.readStream.format("kohort").options(**options).load())
        folder = order["folder"]
        self._ended(
            frame.writeStream.format("parquet")
            .option("path", f"{folder}/rows")
            .option("checkpointLocation", f"{folder}/checkpoint")
        )
        return sorted(row[0] for row in self._spark.read.parquet(f"{folder}/rows").select("value").collect())

    def _ended(self, writer: Any) -> None:
        from pyspark.errors import StreamingQueryException

        while True:
            query = writer.trigger(availableNow=True).start()
            try:
                query.awaitTermination()
            except StreamingQueryException as error:
                if BUSY not in str(error):
                    raise
            else:
                return


def orders(folder: Path) -> Iterator[tuple[int, Order]]:
    number = 0
    while not (folder / "end").exists():
        path = folder / f"order-{number}.json"
        if path.exists():
            yield number, json.loads(path.read_text())
            number += 1
        else:
            time.sleep(0.05)


def main(bootstrap: str, folder: Path) -> None:
    from pyspark.sql import SparkSession

    from kohort.spark import register

    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    jobs = Jobs(spark, bootstrap)
    for number, order in orders(folder):
        job: Callable[[Order], Any] = getattr(jobs, order["kind"])
        (folder / f"started-{number}").touch()
        began = time.monotonic()
        result = {"found": job(order), "seconds": round(time.monotonic() - began, 1)}
        written = folder / f"result-{number}.part"
        written.write_text(json.dumps(result))
        written.rename(folder / f"result-{number}.json")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
