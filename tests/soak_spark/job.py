"""The job that is soaked: one topic as two streams, into Parquet and, where settings name one, into PostgreSQL.

    python -m tests.soak_spark.job SETTINGS.json run      # until it is killed
    python -m tests.soak_spark.job SETTINGS.json finish   # what is left, and then all rows of Parquet as JSON

What is batch by batch exactly once in PostgreSQL is one transaction: the batch's rows, and a row that says it is there.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from kohort.spark import register

COLUMNS = ("partition", "offset", "CAST(value AS STRING) AS value")


def main(settings: Mapping[str, str], mode: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[2, 20]")  # a task that loses its worker is run again
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    trigger: dict[str, Any] = (
        {"availableNow": True} if mode == "finish" else {"processingTime": settings.get("every", "0 seconds")}
    )
    queries = [_into_parquet(spark, settings, trigger)]
    if "postgres" in settings:
        queries.append(_into_postgres(spark, settings, trigger))
    if mode == "run":
        spark.streams.awaitAnyTermination()
        sys.exit("a stream ended by itself")
    for query in queries:
        query.awaitTermination()
    rows = spark.read.parquet(f"{settings['folder']}/rows").collect()
    Path(settings["folder"], "rows.json").write_text(json.dumps([list(row) for row in rows]))
    spark.stop()


def _frame(spark: Any, settings: Mapping[str, str]) -> Any:
    options = {
        "kafka.bootstrap.servers": settings["bootstrap"],
        "kafka.isolation.level": "read_committed",
        "subscribe": settings["topic"],
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "4000",
        "minPartitions": "4",
    }
    return spark.readStream.format("kohort").options(**options).load().selectExpr(*COLUMNS)


def _into_parquet(spark: Any, settings: Mapping[str, str], trigger: Mapping[str, Any]) -> Any:
    writer = _frame(spark, settings).writeStream.format("parquet").trigger(**trigger)
    return writer.option("checkpointLocation", f"{settings['folder']}/parquet").start(f"{settings['folder']}/rows")


def _into_postgres(spark: Any, settings: Mapping[str, str], trigger: Mapping[str, Any]) -> Any:
    writer = _frame(spark, settings).writeStream.foreachBatch(_keep(settings["postgres"])).trigger(**trigger)
    return writer.option("checkpointLocation", f"{settings['folder']}/postgres").start()


def _keep(url: str) -> Callable[[Any, int], None]:
    def keep(batch: Any, number: int) -> None:
        rows = batch.collect()
        with psycopg.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO batches VALUES (%s) ON CONFLICT DO NOTHING", (number,))
            if cursor.rowcount == 1:
                with cursor.copy("COPY rows FROM STDIN") as copy:
                    for row in rows:
                        copy.write_row(tuple(row))

    return keep


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2])
