"""df.write and df.writeStream to format("kohort"): what arrives is what the rows said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import Row, StructType, VariantVal

from kohort import Consumer, Record, TopicPartition
from kohort.coordinator_client import ConfigError
from kohort.spark import OptionError, PlanError
from kohort.spark.sink import BatchWriter, RowStreamWriter, SinkOptions, by_topic, check_columns
from kohort.testing.fake_broker import FakeBroker
from tests.spark.queries import ended
from tests.spark.sent import varied
from tests.support.broker_selection import SelectedBroker

LEAST = {"kafka.bootstrap.servers": "h:1"}


def schema(**columns: Any) -> StructType:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return StructType.fromJson({"type": "struct", "fields": fields})


HEADER = {
    "type": "struct",
    "fields": [
        {"name": "key", "type": "string", "nullable": True, "metadata": {}},
        {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
    ],
}
HEADERS = {"type": "array", "elementType": HEADER, "containsNull": True}


@pytest.fixture
def written(broker: SelectedBroker) -> Callable[..., list[Record]]:
    """`written(topic, count)` is what is in a topic of three partitions, by partition and offset."""

    def read(topic: str, count: int) -> list[Record]:
        found: list[Record] = []
        with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign({TopicPartition(topic, number): 0 for number in range(3)})
            for columns in consumer:
                found += columns
                if len(found) >= count:
                    break
            assert sum(consumer.end_offsets(consumer.assignment).values()) == count
        return sorted(found, key=lambda record: (record.partition, record.offset))

    return read


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topics": "t"}, "unknown option 'topics' .*did you mean 'topic'"),
        ({"kafka.transactional.id": "x"}, "cannot be set"),
        ({"kafka.value.serializer": "x"}, "cannot be set"),
        ({"subscribe": "t"}, "unknown option 'subscribe'"),
        ({"topic": " "}, "no topic is named"),
        ({"topic": 5}, "topic must be a string, not 5"),
        ({"topic": None}, "topic must be a string, not None"),
        ({5: "t"}, "unknown option '5'"),
        ({"topic": "t", "Kafka.sasl.password": b"secret"}, "Kafka.sasl.password must be a string, not bytes"),
        ({"topic": "t", "kafka.sasl.jaas.config": 4}, "the JAAS line is not supported"),
        ({"topic": "t", "kafka.kohort.tape": "tape"}, "a tape has one client, .*option=kafka.kohort.tape"),
    ],
)
def test_a_wrong_option_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        SinkOptions.of(LEAST | given)


def test_a_frame_with_a_column_twice_is_refused() -> None:
    twice = StructType([*schema(value="string"), *schema(value="string")])
    with pytest.raises(OptionError, match=r"several columns 'value' .*column=value"):
        check_columns(twice, SinkOptions.of(LEAST | {"topic": "t"}))


def test_blanks_around_a_topic_are_none_of_its_name() -> None:
    assert SinkOptions.of(LEAST | {"topic": " t\n", "provider": "kohort"}).topic == "t"


def test_kafkas_own_names_are_the_producers() -> None:
    numbers: tuple[Any, ...] = ("5", 5)
    for given in numbers:
        assert SinkOptions.of(LEAST | {"kafka.linger.ms": given, "topic": "t"}).properties["linger.ms"] == "5"
    with pytest.raises(ConfigError, match=r"linger\.ms"):
        SinkOptions.of(LEAST | {"kafka.linger.mss": "5"})
    with pytest.raises(OptionError, match="no broker is named"):
        SinkOptions.of({"topic": "t"})


@pytest.mark.parametrize(
    ("columns", "topic", "says"),
    [
        ({"key": "binary"}, "t", "there is no column 'value'"),
        ({"value": "binary"}, None, "no topic is named"),
        ({"value": "long"}, "t", "column 'value' is bigint, not string or binary"),
        ({"value": "string", "partition": "long"}, "t", "column 'partition' is bigint, not int"),
        ({"value": "string", "headers": "string"}, "t", "column 'headers' is string, not array"),
        ({"value": "string", "age": "interval year to month"}, "t", "cannot pass column 'age', a year-month interval"),
    ],
)
def test_a_frame_whose_rows_are_no_records_is_refused(columns: dict[str, Any], topic: str | None, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        check_columns(schema(**columns), SinkOptions(topic, {}))


def test_a_frame_whose_rows_are_records_is_taken() -> None:
    check_columns(
        schema(value="string", key="binary", topic="string", partition="integer", other="long"), SinkOptions(None, {})
    )
    check_columns(schema(value="binary", headers=HEADERS), SinkOptions("t", {}))


def test_rows_go_to_their_topics_in_their_order() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": ["1", "2", "3", "4"],
            "topic": ["b", "a", "b", "b"],
            "partition": pa.array([0, None, None, 2], pa.int32()),
            "offset": [7, 8, 9, 10],
        }
    )
    found = [(topic, rows.to_pydict()) for topic, rows in by_topic(batch, None)]
    assert found == [
        ("b", {"value": ["1"], "partition": [0]}),
        ("b", {"value": ["3"]}),
        ("b", {"value": ["4"], "partition": [2]}),
        ("a", {"value": ["2"]}),
    ]
    assert [topic for topic, _rows in by_topic(batch, "c")] == ["c", "c", "c"]
    with pytest.raises(PlanError, match="a row has no topic"):
        list(by_topic(pa.RecordBatch.from_pydict({"value": ["1"], "topic": pa.nulls(1, pa.string())}), None))


def test_rows_keep_their_order_in_a_partition_that_some_name_and_others_do_not() -> None:
    place = TopicPartition("t", 0)
    with FakeBroker(topics={"t": 1}) as fake:
        options = SinkOptions.of({"kafka.bootstrap.servers": fake.bootstrap, "topic": "t"})
        batch = pa.RecordBatch.from_pydict(
            {
                "key": [b"k"] * 6,
                "value": [b"%d" % n for n in range(6)],
                "partition": pa.array([None, None, 0, None, 0, 0], pa.int32()),
            }
        )
        assert BatchWriter(options, schema()).write(iter([batch])).records == 6
        with Consumer(fake.bootstrap) as consumer:
            consumer.assign({place: 0}, until={place: 6})
            values: list[bytes | None] = []
            while len(values) < 6:
                values += [record.value for columns in consumer.poll(1.0) for record in columns]
    assert values == [b"%d" % n for n in range(6)]


@pytest.mark.broker
def test_a_task_writes_batches_as_they_come(
    broker: SelectedBroker, topic: str, written: Callable[..., list[Record]]
) -> None:
    options = SinkOptions.of({"kafka.bootstrap.servers": broker.bootstrap, "topic": topic})
    batches = [
        pa.RecordBatch.from_pydict(
            {"key": [b"%d" % (n % 7)] * 500, "value": [None if i % 50 == 0 else b"%d-%d" % (n, i) for i in range(500)]}
        )
        for n in range(20)
    ]
    message = BatchWriter(options, schema(key="binary", value="binary")).write(iter(batches))
    assert message.records == 10_000
    records = written(topic, 10_000)
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(record.value)
    wanted: dict[bytes | None, list[bytes | None]] = {}
    for batch in batches:
        for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
            wanted.setdefault(key, []).append(value)
    assert by_key == wanted  # each key in one partition, and there in its order


@pytest.mark.broker
def test_rows_that_come_one_by_one_are_written_too(
    broker: SelectedBroker, topic: str, written: Callable[..., list[Record]]
) -> None:
    options = SinkOptions.of({"kafka.bootstrap.servers": broker.bootstrap, "topic": topic})
    columns = schema(other="variant", value="binary", partition="integer", headers=HEADERS)
    rows = [
        Row(
            other=VariantVal(b"\x0c\x01", b"\x01\x00\x00"),
            value=bytearray(b"%d" % n),
            partition=n % 3,
            headers=[Row(key="n", value=bytearray(b"h"))] if n % 2 else None,
        )
        for n in range(6)
    ]
    assert RowStreamWriter(options, columns).write(iter(rows)).records == 6
    records = written(topic, 6)
    assert [(r.partition, r.value, r.headers) for r in records] == [
        (n % 3, b"%d" % n, (("n", b"h"),) if n % 2 else ()) for n in (0, 3, 1, 4, 2, 5)
    ]


@pytest.mark.broker
def test_a_frame_and_a_stream_are_copied_whole(
    kohort_spark: Any,
    broker: SelectedBroker,
    topic: str,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    written: Callable[..., list[Record]],
    tmp_path: Path,
) -> None:
    sent = varied(30)
    send(topic, sent)
    there = {"kafka.bootstrap.servers": broker.bootstrap}
    wanted = [
        (n % 3, one.key, one.value, one.headers) for n, one in sorted(enumerate(sent), key=lambda pair: pair[0] % 3)
    ]

    def copied(records: list[Record]) -> list[Any]:
        return [(r.partition, r.key, r.value, r.headers) for r in records]

    batch, stream = make_topic(3), make_topic(3)
    source = {**there, "subscribe": topic, "includeHeaders": "true", "startingOffsets": "earliest"}
    rows = "key", "value", "partition", "headers"
    frame = kohort_spark.read.format("kohort").options(**source).load().select(*rows)
    frame.write.format("kohort").mode("append").options(**there, topic=batch).save()
    assert copied(written(batch, 30)) == wanted
    writer = (
        kohort_spark.readStream.format("kohort")
        .options(**source)
        .load()
        .selectExpr(*rows, f"'{stream}' AS topic")
        .writeStream.format("kohort")
        .options(**there)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
    )
    ended(writer.start)
    assert copied(written(stream, 30)) == wanted
    with pytest.raises(Exception, match="did you mean 'topic'"):
        frame.write.format("kohort").mode("append").options(**there, topics=batch).save()
