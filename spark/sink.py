"""`df.write` and `df.writeStream` to Kafka: columns value, and optionally key, topic, partition and headers.

    frame.selectExpr("string(user) AS key", "to_json(struct(*)) AS value")
        .write.format("kohort").mode("append")
        .option("kafka.bootstrap.servers", ...).option("topic", "payments").save()

As in Spark's own sink, option `topic` wins over column `topic`, and other columns are ignored. Arrow batches are
encoded without Python objects for their rows. Exceptions are rows with headers, and streams before PySpark 4.1, which
arrive row by row. All replicas in sync acknowledge a task's records before the task ends. A repeated task writes its
records again, so consumers see each record at least once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType, YearMonthIntervalType

from kohort.producer import Producer, ProducerConfig
from kohort.spark.errors import OptionError, PlanError
from kohort.spark.java_settings import by_lower_name, kafka_settings
from kohort.spark.worker_tuning import Shipped, settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row

try:  # since Spark 4.1
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:
    DataSourceStreamArrowWriter = DataSourceStreamWriter

# Of TransactionalWriter, for its own writes.
TRANSACTIONS, BATCH = "kohort.transactions", "kohort.batch"
# By name in lower case. Spark's own sink has `includeHeaders`; here a column `headers` is enough. Spark itself adds
# the last four.
_KNOWN: Mapping[str, str] = MappingProxyType(
    {name.lower(): name for name in ("topic", "includeHeaders", "checkpointLocation", "path", "queryName", "provider")}
)
_OURS = frozenset({TRANSACTIONS, BATCH})
_DECIDED = frozenset({"kafka.key.serializer", "kafka.value.serializer", "kafka.transactional.id"})
_TEXT = ("string", "binary")
# By column: its types, in Spark's words.
COLUMNS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "key": _TEXT,
        "value": _TEXT,
        "topic": ("string",),
        "partition": ("int",),
        "headers": ("array<struct<key:string,value:binary>>",),
    }
)
ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options. `properties`: Kafka's own names, for the producer.

    `transactions`: the prefix of transactional ids and the number of the batch, in a write of TransactionalWriter.
    """

    topic: str | None
    properties: Mapping[str, str] = field(repr=False)  # passwords may be among them
    transactions: tuple[str, int] | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "SinkOptions":
        """Check options. Raises OptionError, or ConfigError for Kafka's own settings."""
        given = by_lower_name(options)
        for name in given:
            _refuse(name)
        properties = {"client.id": "kohort-spark", **kafka_settings(given)}
        ProducerConfig.from_kafka(properties)
        topic = given["topic"].strip() if "topic" in given else None
        if topic == "":
            raise OptionError("no topic is named", option="topic")
        transactions = (given[TRANSACTIONS], int(given[BATCH])) if TRANSACTIONS in given else None
        return cls(topic, properties, transactions)


def _refuse(name: str) -> None:
    if name in _DECIDED:
        raise OptionError(
            f"{name} cannot be set",
            option=name,
            hint="keys and values are bytes, and tasks write independently, without a transaction for the job",
        )
    if name not in _KNOWN and name not in _OURS and not name.startswith("kafka."):
        near = get_close_matches(name, _KNOWN, n=1, cutoff=0.5)
        hint = f"did you mean {_KNOWN[near[0]]!r}?" if near else "use topic, or a property of Kafka as kafka.NAME"
        raise OptionError(f"unknown option {name!r}", option=name, hint=hint)


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Raise OptionError for a frame whose columns are not those of records."""
    types = {field.name: field.dataType for field in schema}
    if doubled := [name for name in COLUMNS if schema.names.count(name) > 1]:
        raise OptionError(f"there are several columns {doubled[0]!r}", hint="drop or rename them", column=doubled[0])
    if unreadable := [name for name, kind in types.items() if isinstance(kind, YearMonthIntervalType)]:
        name = unreadable[0]
        raise OptionError(f"PySpark cannot pass column {name!r}, a year-month interval", hint="drop it", column=name)
    if "value" not in types:
        raise OptionError("there is no column 'value'", hint=f"the columns are {', '.join(types)}", column="value")
    if options.topic is None and "topic" not in types:
        raise OptionError("no topic is named", hint="set option 'topic', or add a column 'topic'", option="topic")
    for name, allowed in COLUMNS.items():
        if name in types and (kind := types[name].simpleString()) not in allowed:
            raise OptionError(f"column {name!r} is {kind}, not {' or '.join(allowed)}", column=name)


class Written(WriterCommitMessage):  # type: ignore[misc]  # pyspark's own types are not followed
    """The number of records that a task has written."""

    def __init__(self, records: int) -> None:
        self.records = records


class Writing(Shipped):
    """Writing on an executor, for batches and streams.

    Spark's own `commit` and `abort` do nothing. The records of a task are in the log when it ends, and stay there.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        settle()
        with Producer.from_config(self._options.properties) as producer:
            count = send(producer, iterator, self._options.topic)
            producer.flush()
        return Written(count)


class BatchWriter(Writing, DataSourceArrowWriter):  # type: ignore[misc]  # pyspark's own types are not followed
    """`df.write`."""


class ArrowStreamWriter(Writing, DataSourceStreamArrowWriter):  # type: ignore[misc]  # as above
    """`df.writeStream` since PySpark 4.1, which passes Arrow batches to subclasses of DataSourceStreamArrowWriter."""


class RowStreamWriter(Writing, DataSourceStreamWriter):  # type: ignore[misc]  # as above
    """`df.writeStream` on PySpark 4.0, which passes rows."""

    def write(self, iterator: "Iterator[Row]") -> Written:
        return super().write(_as_arrow(iterator, self._schema))


def stream_writer(options: SinkOptions, schema: StructType) -> DataSourceStreamWriter:
    """The writer for streams of this version of PySpark."""
    kind = RowStreamWriter if DataSourceStreamArrowWriter is DataSourceStreamWriter else ArrowStreamWriter
    return kind(options, schema)


def send(producer: Producer, batches: "Iterator[pa.RecordBatch]", topic: str | None) -> int:
    """Pass the rows to a producer, and return their number."""
    count = 0
    for batch in batches:
        for name, rows in by_topic(batch, topic):
            producer.send_arrow(name, rows)
        count += batch.num_rows
    return count


def by_topic(batch: "pa.RecordBatch", topic: str | None) -> "Iterator[tuple[str, pa.RecordBatch]]":
    """The rows of each topic in their order, in the columns of `Producer.send_arrow`.

    Rows with a partition and rows without are in separate batches. Raises PlanError for a row without a topic.
    """
    import pyarrow.compute as pc

    rows = batch.select([name for name in ("key", "value", "partition", "headers") if name in batch.schema.names])
    if topic is not None:
        chosen: Iterable[tuple[str, pa.RecordBatch]] = [(topic, rows)]
    else:
        topics = batch.column("topic")
        if topics.null_count:
            raise PlanError("a row has no topic", hint="filter such rows out, or set option 'topic' for all rows")
        chosen = ((name, rows.filter(pc.equal(topics, name))) for name in topics.unique().to_pylist())
    for name, some in chosen:
        yield from ((name, part) for part in _by_kind_of_partition(some))


def _by_kind_of_partition(rows: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    """Split at each change between rows with a partition and rows without, so that the order of rows is kept."""
    import pyarrow.compute as pc

    partitions = rows.column("partition") if "partition" in rows.schema.names else None
    if partitions is None or partitions.null_count == 0:
        yield rows
        return
    turns, start = pc.run_end_encode(partitions.is_valid()), 0
    for end, named in zip(turns.run_ends.to_pylist(), turns.values.to_pylist(), strict=True):
        turn = rows.slice(start, end - start)
        yield turn if named else turn.drop_columns(["partition"])
        start = end


def _as_arrow(rows: "Iterator[Row]", schema: StructType) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    from kohort.spark.schema import arrow_schema

    # Arrow cannot convert the values of all types that other columns may have.
    ours = [i for i, name in enumerate(schema.names) if name in COLUMNS]
    wanted = arrow_schema(StructType([schema[i] for i in ours]))
    while chunk := list(islice(rows, ROWS_AT_ONCE)):
        yield pa.RecordBatch.from_arrays(
            [pa.array([_plain(row[i]) for row in chunk], field.type) for i, field in zip(ours, wanted, strict=True)],
            schema=wanted,
        )


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [one.asDict() if hasattr(one, "asDict") else one for one in value]
    return value
