"""One available-now run of a stream on a checkpoint, through one connector.

    python -m tests.spark_jvm.checkpoint_turn FORMAT BOOTSTRAP TOPIC FOLDER ENDING [JAR,JAR]

The rows of each batch are in `FOLDER/rows/batch=N`. With ENDING "fails" the first batch raises before it is written,
so the checkpoint has its offsets and no commit.
"""

import sys
from pathlib import Path
from typing import Any

from tests.spark_jvm.session import session


def main(source: str, bootstrap: str, topic: str, folder: str, ending: str, jars: str = "") -> None:
    spark = session(source, jars)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format(source).options(**options).load().select("partition", "offset")

    def write(batch: Any, number: int) -> None:
        if ending == "fails":
            raise RuntimeError("before the rows are written")
        batch.write.mode("overwrite").parquet(f"{folder}/rows/batch={number}")

    query = (
        frame.writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception as error:
        if "before the rows are written" not in str(error):
            raise
        Path(folder, "failed").touch()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
