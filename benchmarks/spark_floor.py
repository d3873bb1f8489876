"""The lower bound of a Python source: the prepared Arrow batches of a topic, passed to Spark without Kafka.

The cost is that of PySpark and the JVM: planning, a worker's tasks, the pipe, and Spark's rows of Arrow. No source in
Python can be faster with these batches.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from kohort.spark import plan
from kohort.spark.partition_reader import as_spark
from kohort.spark.reader import read_range
from kohort.spark.schema import arrow_schema
from kohort.spark.source import SCHEMA
from kohort.spark.worker_tuning import settle

if TYPE_CHECKING:
    import pyarrow as pa


class Floor(DataSource):  # type: ignore[misc]  # pyspark's own types are not followed
    """`format("floor")`: option "subscribe" is the topic, "folder" where `keep` has left its batches."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        settle()

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        settle()
        return FloorReader(self._folder(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        settle()
        return FloorStream(self._folder(schema))

    def _folder(self, schema: StructType) -> Path:
        return Path(self.options["folder"], self.options["subscribe"], *schema.names)


class FloorReader(DataSourceReader):  # type: ignore[misc]  # pyspark's own types are not followed
    """A task a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(self._folder.iterdir())]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        settle()
        with pa.memory_map(partition.value) as source:
            yield from pa.ipc.open_stream(source)


class FloorStream(DataSourceStreamReader):  # type: ignore[misc]  # pyspark's own types are not followed
    """One batch of all files. Offsets are 0 and 1."""

    def __init__(self, folder: Path) -> None:
        self._reader = FloorReader(folder)

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:
        return {"at": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [] if start == end else self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        yield from self._reader.read(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing."""


def keep(bootstrap: str, topic: str, folder: Path, columns: StructType = SCHEMA) -> None:
    """The batches that kohort makes of these columns of a topic, a file a partition."""
    import pyarrow as pa

    schema = arrow_schema(columns)
    kept = Path(folder, topic, *columns.names)
    kept.mkdir(parents=True)
    for one in plan(bootstrap, topics=[topic]):
        path = str(kept / str(one.partition))
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_stream(sink, schema) as stream:
            for read in read_range(one, {"bootstrap": bootstrap}):
                stream.write_batch(as_spark(read, schema))
