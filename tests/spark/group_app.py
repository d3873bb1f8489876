"""A Spark application that is a member of a group, until it is killed: BOOTSTRAP TOPIC GROUP FOLDER."""

import os
import sys
from pathlib import Path


def main(bootstrap: str, topic: str, group: str, folder: Path) -> None:
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    from kohort.spark import register

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.streaming.minBatchesToRetain", "100000")  # the test reads what was planned, from the first
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    register(session)
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "group": group,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "300",
        "kafka.session.timeout.ms": "6000",
        "kafka.heartbeat.interval.ms": "500",
    }
    writer = (
        session.readStream.format("kohort")
        .options(**options)
        .load()
        .select("partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
    )
    while True:
        try:
            writer.start(str(folder / "rows")).awaitTermination()
        except StreamingQueryException as error:
            # On a busy machine Spark gives up on a Python process that takes 10 s to start. An operator
            # starts such a stream again.
            if "failed to connect back" not in str(error):
                raise


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
