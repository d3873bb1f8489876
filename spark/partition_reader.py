"""Reading of offset ranges in an executor, for batches and streams."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from kohort.fastpath import RecordColumns
from kohort.spark.options import SourceOptions
from kohort.spark.ranges import OffsetRange
from kohort.spark.reader import read_ranges
from kohort.spark.schema import arrow_schema
from kohort.spark.worker_tuning import Shipped, settle

if TYPE_CHECKING:
    import pyarrow as pa


_OUR_NAMES: Mapping[str, str] = {"timestampType": "timestamp_type"}
MOST_BATCH_BYTES = 16 << 20
NUMBERS_BYTES = 36  # a record's offset, timestamp and its type, partition, and the ends of key, value and topic


class RangePartition(InputPartition):  # type: ignore[misc]  # pyspark's own types are not followed
    """The ranges of one task, at most one of each partition."""

    def __init__(self, *ranges: OffsetRange) -> None:
        super().__init__(ranges)


class Reading(Shipped):
    """Reading on an executor, for batches and streams."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """The records of a task as batches of Arrow."""
        if not isinstance(partition, RangePartition):  # for an empty plan Spark runs a task with a partition of its own
            return
        arrow, options = arrow_schema(self._schema), self._options
        settle()
        for columns in read_ranges(partition.value, options.connect, skip_lost=options.skip_lost):
            yield from (as_spark(piece, arrow) for piece in pieces(columns, MOST_BATCH_BYTES))
            del columns  # before the next poll decodes


def pieces(columns: RecordColumns, most_bytes: int) -> Iterator[RecordColumns]:
    """Cut columns into pieces with the same number of records and about `most_bytes` in all columns but the headers.

    Arrow has a copy of the keys and values, and the topic of each record. A small fetch may decompress to 64 MiB.
    """
    row_bytes = NUMBERS_BYTES + len(columns.topic)
    count = -(-(columns.keys.nbytes + columns.values.nbytes + row_bytes * len(columns)) // most_bytes)
    size = max(-(-len(columns) // max(count, 1)), 1)
    yield from (columns[at : at + size] for at in range(0, len(columns), size))


def as_spark(columns: RecordColumns, schema: "pa.Schema") -> "pa.RecordBatch":
    """Columns with Spark's names and types."""
    import pyarrow as pa

    ours = pa.schema([field.with_name(_OUR_NAMES.get(field.name, field.name)) for field in schema])
    return pa.RecordBatch.from_arrays(columns.to_arrow(ours).columns, schema=schema)
