"""format("kohort") on a real session and a real broker, in batches and as a stream."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql.types import StructType

from kohort import Admin, Consumer, TopicPartition
from kohort.spark import OffsetRange, kafka_rdd, plan, register
from kohort.spark.partition_reader import as_spark
from kohort.spark.reader import read_range
from kohort.spark.schema import arrow_schema
from kohort.spark.source import SCHEMA, SCHEMA_WITH_HEADERS
from tests.spark.queries import ended
from tests.spark.sent import CODECS, varied
from tests.support.broker_selection import SelectedBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def read(kohort_spark: Any, broker: SelectedBroker) -> Callable[..., Any]:
    """`read(topic, option=...)` is a DataFrame."""

    def reader(topic: str, **options: Any) -> Any:
        frame = kohort_spark.read.format("kohort").option("kafka.bootstrap.servers", broker.bootstrap)
        return frame.options(**({"subscribe": topic} | options)).load()

    return reader


@pytest.fixture
def stream(kohort_spark: Any, broker: SelectedBroker, tmp_path: Path) -> Callable[..., list[Any]]:
    """`stream(topic, option=...)` runs an available-now stream into Parquet once more, and returns all rows so far."""

    def runner(topic: str, columns: str = "partition, offset", **options: Any) -> list[Any]:
        frame = kohort_spark.readStream.format("kohort").option("kafka.bootstrap.servers", broker.bootstrap)
        options = {"subscribe": topic, "startingOffsets": "earliest"} | options
        writer = (
            frame.options(**options)
            .load()
            .selectExpr(*columns.split(", "))
            .writeStream.format("parquet")
            .trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        query = ended(lambda: writer.start(str(tmp_path / "rows")))
        stream_progress[:] = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
        return sorted(kohort_spark.read.parquet(str(tmp_path / "rows")).collect())

    return runner


stream_progress: list[int] = []
LEAVES_S = 30.0  # less than the session timeout, after which the group would be empty in any case


def offsets(*counts: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, count in enumerate(counts) for offset in range(count)]


def test_each_session_is_registered(
    kohort_spark: Any, broker: SelectedBroker, topic: str, send: Callable[..., None]
) -> None:
    send(topic, varied(30))
    session = kohort_spark.newSession()
    sessions = kohort_spark._jvm.org.apache.spark.sql.classic.SparkSession
    sessions.setActiveSession(kohort_spark._jsparkSession)
    for _ in range(2):
        register(session)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    for one in (session, kohort_spark):
        assert one.read.format("kohort").options(**options).load().where("partition = 1").count() == 10
    assert sessions.getActiveSession().get().equals(kohort_spark._jsparkSession)


def test_a_thread_writes_once_it_is_registered(kohort_spark: Any, broker: SelectedBroker, topic: str) -> None:
    """Spark finds a sink by the active session of the thread, and a new thread has none."""
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    frame = kohort_spark.range(3).selectExpr("CAST(id AS STRING) AS value")

    def write() -> None:
        register(kohort_spark)
        frame.write.format("kohort").mode("append").options(**options).save()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()
    with Consumer(broker.bootstrap) as consumer:
        assert sum(consumer.end_offsets(consumer.partitions_for(topic)).values()) == 3


def test_sql_reads_a_view_and_refuses_a_table(
    kohort_spark: Any, broker: SelectedBroker, topic: str, send: Callable[..., None]
) -> None:
    send(topic, varied(30))
    source = f"records USING kohort OPTIONS ('kafka.bootstrap.servers' '{broker.bootstrap}', 'subscribe' '{topic}')"
    kohort_spark.sql(f"CREATE TEMPORARY VIEW {source}")
    try:
        assert kohort_spark.sql("SELECT count(*) FROM records").first()[0] == 30
    finally:
        kohort_spark.sql("DROP VIEW records")
    with pytest.raises(pyspark.errors.AnalysisException, match="use CREATE TEMPORARY VIEW"):
        kohort_spark.sql(f"CREATE TABLE {source}")


def test_rows_are_the_records(read: Callable[..., Any], topic: str, send: Callable[..., None]) -> None:
    sent = varied(60)
    for codec in CODECS:
        send(topic, sent, codec=codec)
    rows = read(topic, includeHeaders="true").orderBy("partition", "offset").collect()
    wanted = []
    for partition in range(3):
        records = [one for _ in CODECS for one in sent if one.partition == partition]
        wanted += [(offset, one) for offset, one in enumerate(records)]
    assert len(rows) == 300
    for row, (offset, one) in zip(rows, wanted, strict=True):
        key = None if row.key is None else bytes(row.key)
        value = None if row.value is None else bytes(row.value)
        headers = (
            ()
            if row.headers is None
            else tuple((h.key, None if h.value is None else bytes(h.value)) for h in row.headers)
        )
        assert (row.topic, row.partition, row.offset, row.timestampType) == (topic, one.partition, offset, 0)
        assert (key, value, headers) == (one.key, one.value, one.headers)
        assert round(row.timestamp.timestamp() * 1000) == one.timestamp_ms
    assert [row.headers is None for row in rows] == [not one.headers for _, one in wanted]


def test_the_schema_is_that_of_sparks_own_source(read: Callable[..., Any], topic: str) -> None:
    fields = {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
    }
    assert dict(read(topic).dtypes) == fields
    assert dict(read(topic, includeHeaders="true").dtypes) == {
        **fields,
        "headers": "array<struct<key:string,value:binary>>",
    }
    assert read(topic).collect() == []


@pytest.mark.parametrize("wanted", [SCHEMA, SCHEMA_WITH_HEADERS])
def test_batches_equal_sparks_schema_to_the_last_type(
    kohort_spark: Any, broker: SelectedBroker, topic: str, send: Callable[..., None], wanted: Any
) -> None:
    send(topic, varied(9))
    schema = arrow_schema(wanted)
    for columns in read_range(OffsetRange(topic, 0, 0, 3), {"bootstrap": broker.bootstrap}):
        assert as_spark(columns, schema).schema.equals(schema)
        as_spark(columns, schema).validate(full=True)


def test_offsets_times_and_splits(read: Callable[..., Any], topic: str, send: Callable[..., None]) -> None:
    send(topic, varied(30))
    some = read(
        topic,
        startingOffsets=f'{{"{topic}":{{"0":4,"1":-2,"2":9}}}}',
        endingOffsets=f'{{"{topic}":{{"0":6,"1":1,"2":-1}}}}',
    )
    assert sorted((row.partition, row.offset) for row in some.collect()) == [(0, 4), (0, 5), (1, 0), (2, 9)]
    late = read(topic, startingTimestamp="1700000021000", endingTimestamp="1700000024000")
    assert sorted((row.partition, row.offset) for row in late.collect()) == [(0, 7), (1, 7), (2, 7)]
    assert read(topic, minPartitions="8").rdd.getNumPartitions() == 8
    one = read(topic, subscribe=topic).where("partition = 1").count()
    assert one == 10


def test_rdd_and_frame_read_the_same(
    kohort_spark: Any, read: Callable[..., Any], broker: SelectedBroker, topic: str, send: Callable[..., None]
) -> None:
    send(topic, varied(200), codec="zstd")
    rdd = kafka_rdd(kohort_spark.sparkContext, plan(broker.bootstrap, topics=[topic]), bootstrap=broker.bootstrap)
    rows = read(topic).rdd.map(lambda row: (row.partition, row.offset, row.key and bytes(row.key))).collect()
    assert sorted(rows, key=str) == sorted(rdd.map(lambda r: (r.partition, r.offset, r.key)).collect(), key=str)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"kafka.fetch.min.byte": "1"}, "fetch.min.bytes"),
        ({"startingTimestamp": "99999999999999"}, "no record has this timestamp"),
    ],
)
def test_what_is_wrong_is_said_on_the_driver(
    read: Callable[..., Any], topic: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(Exception, match=says):
        read(topic, **options).count()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("value string", "schema of this source is fixed"),
        (StructType(), "has no columns"),
        ("key binary not null, offset long", r"can be null is NOT NULL \(column=key\)"),
    ],
)
def test_another_schema_is_refused(
    kohort_spark: Any, broker: SelectedBroker, topic: str, schema: str | StructType, says: str
) -> None:
    frame = kohort_spark.read.format("kohort").schema(schema)
    with pytest.raises(Exception, match=says):
        frame.options(**{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}).load().count()


@pytest.mark.proves("B-40")
def test_lost_records_are_named_or_skipped(
    read: Callable[..., Any], topic: str, send: Callable[..., None], delete_before: Callable[[str, int, int], None]
) -> None:
    send(topic, varied(30))
    delete_before(topic, 1, 3)
    start = f'{{"{topic}":{{"0":0,"1":0,"2":0}}}}'
    with pytest.raises(Exception, match=rf"DataLossError.*topic={topic}, partition=1, offset=0"):
        read(topic, startingOffsets=start).count()
    assert read(topic, startingOffsets=start, failOnDataLoss="false").count() == 27


def test_a_stream_goes_on_where_it_stopped(stream: Callable[..., Any], topic: str, send: Callable[..., None]) -> None:
    send(topic, varied(30))
    assert stream(topic) == offsets(10, 10, 10)
    assert stream(topic) == offsets(10, 10, 10)
    send(topic, varied(6))
    assert stream(topic) == offsets(12, 12, 12)


def test_a_limit_cuts_a_stream_into_batches(stream: Callable[..., Any], topic: str, send: Callable[..., None]) -> None:
    send(topic, varied(30))
    assert stream(topic, maxOffsetsPerTrigger="7") == offsets(10, 10, 10)
    # Before PySpark 4.2 an available-now run is one batch, which has everything.
    assert stream_progress == ([7, 7, 7, 7, 2] if pyspark.__version__ >= "4.2" else [30])
    send(topic, varied(30))
    assert stream(topic, maxOffsetsPerTrigger="20") == offsets(20, 20, 20)
    assert stream_progress == ([20, 10] if pyspark.__version__ >= "4.2" else [30])


def test_a_stream_commits_its_position_for_its_group(
    stream: Callable[..., Any],
    broker: SelectedBroker,
    topic: str,
    send: Callable[..., None],
    unique: Callable[[str], str],
) -> None:
    group = unique("group")
    send(topic, varied(30))
    stream(topic, **{"kafka.group.id": group})
    with Consumer(broker.bootstrap, group=group) as consumer:
        found = consumer.committed([TopicPartition(topic, partition) for partition in range(3)])
    # Before PySpark 4.2 an available-now run has no call after its batch, and commits with the next one.
    wanted = 10 if pyspark.__version__ >= "4.2" else None
    assert {place.partition: commit and commit.offset for place, commit in found.items()} == dict.fromkeys(
        range(3), wanted
    )


@pytest.mark.skipif(pyspark.__version__ < "4.2", reason="PySpark gives a stream its position since 4.2")
def test_a_stream_that_is_a_member_reads_what_it_is_assigned(
    stream: Callable[..., Any],
    broker: SelectedBroker,
    topic: str,
    send: Callable[..., None],
    unique: Callable[[str], str],
) -> None:
    group = unique("group")
    send(topic, varied(30))
    assert stream(topic, group=group, maxOffsetsPerTrigger="20") == offsets(10, 10, 10)
    assert stream_progress == [20, 10]
    send(topic, varied(6))
    assert stream(topic, group=group) == offsets(12, 12, 12)
    with Consumer(broker.bootstrap, group=group) as consumer:
        found = consumer.committed([TopicPartition(topic, partition) for partition in range(3)])
    assert {place.partition: commit and commit.offset for place, commit in found.items()} == {0: 12, 1: 12, 2: 12}


@pytest.mark.skipif(pyspark.__version__ < "4.2", reason="PySpark gives a stream its position since 4.2")
def test_a_stream_leaves_its_group_when_its_query_stops(
    kohort_spark: Any,
    broker: SelectedBroker,
    topic: str,
    send: Callable[..., None],
    unique: Callable[[str], str],
    tmp_path: Path,
) -> None:
    group = unique("group")
    send(topic, varied(30))
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = kohort_spark.readStream.format("kohort").options(**options, group=group).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with Admin(broker.bootstrap) as admin:

        def members() -> int:
            return len(admin.describe_group(group).members)

        try:
            eventually(lambda: sum(progress["numInputRows"] for progress in query.recentProgress) == 30)
            assert members() == 1
        finally:
            query.stop()
        eventually(lambda: members() == 0, LEAVES_S)


def eventually(what: Callable[[], bool], timeout_s: float = 120) -> None:
    until = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.1)


def test_a_query_has_no_filters_of_another_one(read: Callable[..., Any], topic: str, send: Callable[..., None]) -> None:
    """Nor has a scan those of another scan in the same query."""
    send(topic, varied(30))
    frame = read(topic)
    assert frame.where("offset < 4").count() == 12
    assert frame.count() == 30
    both = frame.where("partition = 0").union(frame.where("partition = 1"))
    assert sorted(row.partition for row in both.collect()) == [0] * 10 + [1] * 10


@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="PySpark gives sources its filters since 4.1")
def test_filters_that_are_pushed_reach_the_plan(
    kohort_spark: Any, broker: SelectedBroker, topic: str, send: Callable[..., None]
) -> None:
    session = kohort_spark.newSession()
    register(session, push_filters=True)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}

    def read() -> Any:
        return session.read.format("kohort").options(**options).load()

    send(topic, varied(30))
    chosen = read().where("partition = 1 AND offset >= 4 AND timestamp < '2023-11-14 22:13:45'")
    assert chosen.rdd.getNumPartitions() == 1
    assert [(row.partition, row.offset) for row in chosen.orderBy("offset").collect()] == [(1, n) for n in range(4, 8)]
    late = read().where("timestamp > '2023-11-14 22:13:47'")
    assert sorted((row.partition, row.offset) for row in late.collect()) == [(1, 9), (2, 9)]


def test_only_columns_that_are_requested_are_made(
    kohort_spark: Any, broker: SelectedBroker, topic: str, send: Callable[..., None]
) -> None:
    send(topic, varied(30))
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    frame = kohort_spark.read.format("kohort").schema("offset long not null, value binary").options(**options).load()
    assert frame.columns == ["offset", "value"]
    found = sorted(((row.offset, None if row.value is None else bytes(row.value)) for row in frame.collect()), key=str)
    assert found == sorted(((n // 3, one.value) for n, one in enumerate(varied(30))), key=str)
