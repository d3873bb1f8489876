"""A Spark session that reads through one connector, by commands of one line of JSON.

    python -m benchmarks.spark_session FORMAT OPTIONS.json [JAR,JAR]

It runs in the venv whose PySpark is meant and uses nothing but PySpark and, for FORMAT "kohort" and "floor", kohort.
Two sessions can stand side by side, so that what they do in turn is measured under the same conditions.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

TICKS = os.sysconf("SC_CLK_TCK")
LATENCY_WARM_BATCHES = 3


def count(frame: Any) -> int:
    return int(frame.count())


def size(frame: Any) -> int:
    return int(frame.selectExpr("sum(length(value))").first()[0])


def group(frame: Any) -> int:
    return sum(row[1] for row in frame.groupBy("key").count().collect())


def parquet(frame: Any) -> int:
    folder = tempfile.mkdtemp()
    try:
        frame.write.mode("overwrite").parquet(folder)
        return sum(path.stat().st_size for path in Path(folder).glob("*.parquet")) and 1
    finally:
        shutil.rmtree(folder)


QUERIES: Mapping[str, Callable[[Any], int]] = {"count": count, "size": size, "group": group, "parquet": parquet}


class Session:
    """Runs commands: `{"do": "read", "topic": ..., "query": ...}`, "stream", "begin" and "end" of a running stream.

    A stream with a "schema" makes these columns only. Spark's connector makes all columns, and refuses a schema.
    """

    def __init__(self, spark: Any, source: str, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._source = source
        self._options = options
        self._running: Any = None

    def respond(self, order: Mapping[str, str]) -> dict[str, Any]:
        return dict(getattr(self, order["do"])(order))

    def read(self, order: Mapping[str, str]) -> dict[str, Any]:
        def work() -> int:
            frame = self._spark.read.format(self._source).options(**self._options).option("subscribe", order["topic"])
            return QUERIES[order["query"]](frame.load())

        return measured(work)

    def stream(self, order: Mapping[str, str]) -> dict[str, Any]:
        """All of a topic through an available-now stream into nothing."""

        def work() -> int:
            query = self._started(order, {"availableNow": True}, startingOffsets="earliest")
            query.awaitTermination()
            return sum(progress["numInputRows"] for progress in query.recentProgress)

        return measured(work)

    def write(self, order: Mapping[str, str]) -> dict[str, Any]:
        """Values of so many bytes into a topic."""
        records, size = int(order["records"]), int(order["size"])

        def work() -> int:
            rows = self._spark.range(0, records, 1, 2).selectExpr(f"lpad(CAST(id AS STRING), {size}, 'x') AS value")
            sink = rows.write.format(self._source).options(**self._options).option("topic", order["topic"])
            sink.mode("append").save()
            return records

        return measured(work)

    def begin(self, order: Mapping[str, str]) -> dict[str, Any]:
        """A stream of what comes from now on, batch after batch without a pause. `rate`: of Spark's source `rate`."""
        trigger = {"processingTime": "0 seconds"}
        if "rate" in order:
            source = self._spark.readStream.format("rate").option("rowsPerSecond", order["rate"])
            self._running = _into_nothing(source.option("numPartitions", 8).load(), trigger)
        else:
            self._running = self._started(order, trigger, startingOffsets="latest")
        while not self._running.recentProgress:
            time.sleep(0.05)
        return {}

    def end(self, order: Mapping[str, str]) -> dict[str, Any]:
        """Once every row has come: the rows, and the milliseconds of each stage of each batch that had any."""
        deadline = time.monotonic() + 60
        while True:
            found = [one for one in self._running.recentProgress if one["numInputRows"]]
            rows = sum(one["numInputRows"] for one in found)
            if rows >= int(order["rows"]) or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        self._running.stop()
        return {"rows": rows, "stages_ms": [dict(one["durationMs"]) for one in found[LATENCY_WARM_BATCHES:]]}

    def _started(self, order: Mapping[str, str], trigger: Mapping[str, Any], **options: str) -> Any:
        reader = self._spark.readStream.format(self._source).options(**self._options).options(**options)
        if "schema" in order and self._source != "kafka":
            reader = reader.schema(order["schema"])
        rows = reader.option("subscribe", order["topic"]).load()
        return _into_nothing(rows.selectExpr("length(value) AS size"), trigger)


def _into_nothing(frame: Any, trigger: Mapping[str, Any]) -> Any:
    writer = frame.writeStream.format("noop").trigger(**trigger)
    return writer.option("checkpointLocation", tempfile.mkdtemp()).start()


def measured(work: Callable[[], int]) -> dict[str, Any]:
    cpu, wall = cpu_s(), time.perf_counter()
    result = work()
    return {"wall_s": time.perf_counter() - wall, "cpu_s": cpu_s() - cpu, "result": result}


def cpu_s() -> float:
    """The CPU time of this process and of all under it (JVM, Python daemon, workers, ended or not)."""
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended; its parent has its time
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while grown := {child for child, parent in parents.items() if parent in mine} - mine:
        mine |= grown
    return sum(used[pid] for pid in mine) / TICKS


def main(source: str, options: str, jars: str = "") -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    spark = (builder.config("spark.jars", jars) if jars else builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if source == "kohort":
        import kohort.spark

        kohort.spark.register(spark)
    elif source == "floor":
        from benchmarks.spark_floor import Floor

        spark.dataSource.register(Floor)
    session = Session(spark, source, json.loads(Path(options).read_text()))
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps(session.respond(json.loads(line))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
