"""`spark.read.format("kohort")`: a Kafka source with the options and rows of Spark's own, without a jar.

    kohort.spark.register(spark)
    spark.read.format("kohort").option("kafka.bootstrap.servers", ...).option("subscribe", "payments").load()

The driver plans, and executors read (see reader.py). They pass Arrow batches in Spark's schema, so no row becomes a
Python object. With `.schema("value binary, offset long")` only those columns are made. PySpark passes filters to a
source (4.1+), but not the selected columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kohort.spark.active_session import active
from kohort.spark.driver_python import check_driver_python
from kohort.spark.errors import OptionError
from kohort.spark.options import SourceOptions
from kohort.spark.partition_reader import RangePartition, Reading
from kohort.spark.plan import plan
from kohort.spark.pushdown import narrowed
from kohort.spark.ranges import Within
from kohort.spark.worker_tuning import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter

# Built by hand: parsing DDL needs a session, and most of this runs in workers that have none.
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
SCHEMA_WITH_HEADERS = StructType([*SCHEMA.fields, StructField("headers", ArrayType(_HEADER))])


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: "SparkSession", *, push_filters: bool = False) -> None:
    """Register `format("kohort")` in a session, to read and write in batches and as a stream.

    Spark finds a sink in Python by the active session of the thread. So call this function in each thread that writes.
    A thread without an active session then has this one.

    `push_filters`: apply filters on topic, partition, offset and timestamp to the plan (PySpark 4.1+). Then use each
    `load()` in one place of one query only. PySpark keeps one plan for it, that of the last planned scan. Other queries
    of the frame have wrong results. This switches on a setting of the session for all sources in Python.

    Raises PlanError if the driver lacks the Python of the executors (`PYSPARK_PYTHON`). Spark plans with it on the
    driver, so each `load()` and `save()` would fail.
    """
    check_driver_python(spark)
    pushes = push_filters and hasattr(DataSourceReader, "pushFilters")
    if pushes:
        spark.conf.set(PUSHDOWN, "true")
    with active(spark):  # Spark refuses a name that another active session knows
        spark.dataSource.register(PushingSource if pushes else KohortSource)


class BatchReader(Reading, DataSourceReader):  # type: ignore[misc]  # pyspark's own types are not followed
    """A reader that plans once a scan."""

    _within: Within | None = None

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the scan: one partition of Spark for each range. Raises the errors of `plan`."""
        options = self._options
        ranges = plan(
            topics=options.topics,
            partitions=options.partitions,
            pattern=options.pattern,
            start=options.start,
            stop=options.stop,
            min_partitions=options.min_partitions,
            max_records_per_partition=options.max_records_per_partition,
            max_bytes_per_partition=options.max_bytes_per_partition,
            on_data_loss=options.on_data_loss,
            on_late_time=options.on_late_time,
            within=self._within,
            **options.connect,
        )
        return [RangePartition(one) for one in ranges]


class PushingReader(BatchReader):
    """A reader that applies pushed filters to the plan."""

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":
        """Apply filters to the plan. Returns those that Spark must still apply."""
        self._within, left = narrowed(filters)
        return left


class KohortSource(DataSource):  # type: ignore[misc]  # pyspark's own types are not followed
    """The data source "kohort". Options are checked when it is made; see `SourceOptions`."""

    _reader = BatchReader

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        settle()  # with a user's schema Spark calls no other method in this process

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "kohort"

    def schema(self) -> StructType:
        """The columns of a record, with `headers` if they are included. Raises OptionError."""
        SourceOptions.check(dict(self.options))
        settle()
        headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return SCHEMA_WITH_HEADERS if headers else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch. Raises OptionError."""
        options = SourceOptions.of(dict(self.options), streaming=False)
        _refuse_other(schema, self.schema())
        return self._reader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a stream. Raises OptionError."""
        options = SourceOptions.of(dict(self.options), streaming=True)
        _refuse_other(schema, self.schema())
        from kohort.spark.stream import ReadAllAvailable, StreamReader

        if options.member_of is None:
            return StreamReader(options, schema)
        if ReadAllAvailable is None:
            raise OptionError(
                "group needs PySpark 4.2 or newer",
                hint="use kafka.group.id to commit the stream's offsets for a group on any version",
                option="group",
            )
        from kohort.spark.group_stream import GroupStreamReader

        return GroupStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch. Raises OptionError."""
        from kohort.spark.sink import BatchWriter, SinkOptions, check_columns

        if overwrite:
            raise OptionError("a log cannot be overwritten", hint='use mode("append")', option="mode")
        options = SinkOptions.of(dict(self.options))
        check_columns(schema, options)
        if options.transactions is not None:
            from kohort.spark.transactional_batch import OnceWriter

            return OnceWriter(options, schema)
        return BatchWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The writer of a stream. Raises OptionError."""
        from kohort.spark.sink import SinkOptions, check_columns, stream_writer

        options = SinkOptions.of(dict(self.options))
        check_columns(schema, options)
        return stream_writer(options, schema)


class PushingSource(KohortSource):
    """The source with filter pushdown. Spark refuses such a reader if the session's setting is off."""

    _reader = PushingReader


def _refuse_other(schema: StructType, wanted: StructType) -> None:
    if not schema.names:  # batches of Arrow without columns have no rows
        raise OptionError("the schema has no columns", hint="omit .schema(...)", column="none")
    there = {field.name: field.dataType for field in wanted}
    strange = [field.name for field in schema if there.get(field.name) != field.dataType]
    if strange or len(set(schema.names)) < len(schema):
        raise OptionError(
            "the schema of this source is fixed; only a selection of its columns is possible",
            hint=f"omit .schema(...), or choose from {wanted.simpleString()}",
            column=", ".join(strange) or "one twice",
        )
    # Spark omits null checks of such a column, and fails at the first null.
    if strict := [field.name for field in schema if not field.nullable and field.name in ("key", "value", "headers")]:
        raise OptionError("a column that can be null is NOT NULL", hint="omit NOT NULL", column=", ".join(strict))
