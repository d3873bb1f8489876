"""kafka_rdd on a real session and a real broker: what the group sees, Spark sees."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kohort import Consumer, Record, RecordColumns, TopicPartition
from kohort.coordinator_client import ConfigError
from kohort.spark import DataLossError, OffsetRange, PlanError, kafka_rdd, plan
from kohort.spark.reader import ours, read_range, read_ranges
from tests.spark.sent import CODECS, Sent, varied
from tests.support.broker_selection import SelectedBroker

pytestmark = pytest.mark.broker


class Seen(NamedTuple):
    """All fields of a record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def seen(record: Record) -> Seen:
    return Seen(*(getattr(record, name) for name in Seen._fields))


def read_as_a_group(bootstrap: str, group: str, topic: str, count: int) -> list[Seen]:
    found: list[Seen] = []
    with Consumer(bootstrap, group=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 120
        while len(found) < count and time.monotonic() < deadline:
            found += [seen(record) for columns in consumer.poll(1.0) for record in columns]
    return sorted(found)


@pytest.fixture
def every_codec(topic: str, send: Callable[..., None]) -> str:
    """600 records of every kind, in every codec, over three partitions."""
    for codec in CODECS:
        send(topic, varied(120), codec=codec)
    return topic


def test_spark_reads_what_the_group_sees(
    spark: Any, broker: SelectedBroker, every_codec: str, unique: Callable[[str], str]
) -> None:
    group = read_as_a_group(broker.bootstrap, unique("group"), every_codec, 600)
    assert len(group) == 600
    ranges = plan(broker.bootstrap, topics=[every_codec], min_partitions=7)
    rdd = kafka_rdd(spark.sparkContext, ranges, bootstrap=broker.bootstrap)
    assert sorted(rdd.map(seen).collect()) == group
    # As they are, with no map in between: records cross from the executor by themselves.
    assert sorted(seen(record) for record in rdd.collect()) == group


def test_an_rdd_knows_its_ranges_and_keeps_their_order(spark: Any, broker: SelectedBroker, every_codec: str) -> None:
    ranges = plan(broker.bootstrap, topics=[every_codec], max_records_per_partition=45)
    rdd = kafka_rdd(spark.sparkContext, ranges, bootstrap=broker.bootstrap)
    assert rdd.offset_ranges == ranges
    assert rdd.getNumPartitions() == len(ranges) == 15
    read = rdd.map(lambda record: (record.partition, record.offset)).glom().collect()
    assert read == [[(one.partition, offset) for offset in range(one.start, one.stop)] for one in ranges]


def test_columns_come_whole(spark: Any, broker: SelectedBroker, every_codec: str) -> None:
    ranges = plan(broker.bootstrap, topics=[every_codec])
    rdd = kafka_rdd(spark.sparkContext, ranges, bootstrap=broker.bootstrap, as_columns=True)
    slices: list[RecordColumns] = rdd.collect()
    assert {type(columns) for columns in slices} == {RecordColumns}
    assert sum(len(columns) for columns in slices) == 600
    as_arrow = kafka_rdd(spark.sparkContext, ranges, bootstrap=broker.bootstrap, as_columns="arrow")
    assert sorted(as_arrow.map(lambda batch: batch.num_rows).collect()) == sorted(map(len, slices))


def test_decoders_run_on_executors_and_leave_nulls_alone(spark: Any, broker: SelectedBroker, every_codec: str) -> None:
    ranges = plan(broker.bootstrap, topics=[every_codec])
    rdd = kafka_rdd(spark.sparkContext, ranges, bootstrap=broker.bootstrap, key_decoder=bytes.decode, value_decoder=len)
    decoded = rdd.filter(lambda record: record.partition == 0 and record.offset < 40).collect()
    wanted = [one for one in varied(120) if one.partition == 0]
    assert [(one.key, one.value) for one in decoded] == [
        (None if sent.key is None else sent.key.decode(), None if sent.value is None else len(sent.value))
        for sent in wanted
    ]


def test_a_decoder_that_raises_is_reported_with_its_record(
    spark: Any, broker: SelectedBroker, topic: str, send: Callable[..., None]
) -> None:
    send(topic, [Sent(1, None, b"%d" % n, 1, ()) for n in range(5)] + [Sent(1, None, b"six", 1, ())])
    ranges = plan(broker.bootstrap, topics=[topic])
    rdd = kafka_rdd(spark.sparkContext, ranges, bootstrap=broker.bootstrap, value_decoder=int)
    with pytest.raises(
        Exception, match=rf"the value's decoder raised ValueError.*\(topic={topic}, partition=1, offset=5\)"
    ):
        rdd.count()


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"isolation_levell": "x"}, ConfigError, "did you mean 'isolation_level'"),
        ({"tape": "tape"}, PlanError, "a tape has one client"),
        ({"as_columns": True, "value_decoder": bytes.decode}, PlanError, "a decoder gets no columns"),
        ({"as_columns": "arow"}, PlanError, "as_columns must be .*not 'arow'"),
        ({"ranges": [("t", 0, 0, 5)]}, PlanError, r"ranges has \('t', 0, 0, 5\), which is no OffsetRange"),
    ],
)
def test_what_a_task_could_not_do_is_refused_on_the_driver(
    spark: Any, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        kafka_rdd(spark.sparkContext, **{"ranges": (), "bootstrap": "h:1", **given})


def test_what_was_committed_is_where_the_next_plan_starts(
    spark: Any, broker: SelectedBroker, topic: str, send: Callable[..., None], unique: Callable[[str], str]
) -> None:
    group = unique("group")

    def read() -> list[tuple[int, int]]:
        ranges = plan(broker.bootstrap, topics=[topic], start="committed", group=group, min_partitions=4)
        rdd = kafka_rdd(spark.sparkContext, ranges, bootstrap=broker.bootstrap)
        found = rdd.map(lambda record: (record.partition, record.offset)).collect()
        rdd.commit(group)
        return sorted(found)

    send(topic, varied(30))
    assert read() == [(partition, offset) for partition in range(3) for offset in range(10)]
    assert read() == []
    send(topic, varied(6))
    assert read() == [(partition, offset) for partition in range(3) for offset in (10, 11)]


def test_a_group_that_was_ahead_of_its_log_goes_on_behind_the_first_plan_that_found_out(
    spark: Any, broker: SelectedBroker, topic: str, send: Callable[..., None], unique: Callable[[str], str]
) -> None:
    group, kinds = unique("group"), []
    with Consumer(broker.bootstrap, group=group) as consumer:
        consumer.commit({TopicPartition(topic, number): 25 for number in range(3)})
    for expected in (0, 30):
        send(topic, varied(30))
        ranges = plan(broker.bootstrap, topics=[topic], start="committed", group=group, on_data_loss="skip")
        rdd = kafka_rdd(spark.sparkContext, ranges, bootstrap=broker.bootstrap)
        assert rdd.count() == expected
        rdd.commit(group)
        kinds.append([gap.kind for gap in ranges.gaps])
    assert kinds == [["rewound"] * 3, []]


def test_a_task_that_runs_again_reads_the_same(
    spark: Any, broker: SelectedBroker, every_codec: str, tmp_path: Any
) -> None:
    mark = str(tmp_path / "failed-once")

    def stumble(records: Iterator[Record]) -> Iterator[tuple[int, int]]:
        import pathlib

        for number, record in enumerate(records):
            if number == 20 and record.partition == 1 and not pathlib.Path(mark).exists():
                pathlib.Path(mark).touch()
                raise RuntimeError("the executor stumbles")
            yield record.partition, record.offset

    ranges = plan(broker.bootstrap, topics=[every_codec])
    rdd = kafka_rdd(spark.sparkContext, ranges, bootstrap=broker.bootstrap).mapPartitions(stumble)
    found = rdd.collect()
    assert (tmp_path / "failed-once").exists()
    assert sorted(found) == [(partition, offset) for partition in range(3) for offset in range(200)]


@pytest.mark.proves("B-40")
def test_records_lost_after_the_plan_are_an_error_that_names_them(
    spark: Any,
    broker: SelectedBroker,
    topic: str,
    send: Callable[..., None],
    delete_before: Callable[[str, int, int], None],
) -> None:
    send(topic, varied(30))
    ranges = plan(broker.bootstrap, topics=[topic])
    delete_before(topic, 2, 4)
    rdd = kafka_rdd(spark.sparkContext, ranges, bootstrap=broker.bootstrap)
    with pytest.raises(
        Exception, match=rf"DataLossError.*log begins at 4 \(topic={topic}, partition=2, start=0, stop=10\)"
    ):
        rdd.count()
    left = kafka_rdd(spark.sparkContext, ranges, bootstrap=broker.bootstrap, skip_lost=True)
    assert left.count() == 26


@pytest.mark.proves("B-40")
def test_a_range_past_the_end_is_a_loss_and_no_endless_wait(
    broker: SelectedBroker, topic: str, send: Callable[..., None]
) -> None:
    send(topic, varied(30))
    wanted = OffsetRange(topic, 0, 5, 12)
    settings = {"bootstrap": broker.bootstrap}
    read: list[int] = []
    with pytest.raises(
        DataLossError, match=rf"ends before the range \(topic={topic}, partition=0, start=10, stop=12\)"
    ):
        read.extend(offset for columns in read_range(wanted, settings) for offset in columns.offsets)
    assert read == [5, 6, 7, 8, 9]
    assert sum(len(columns) for columns in read_range(wanted, settings, skip_lost=True)) == 5


def test_markers_of_transactions_at_the_end_of_a_range_are_no_loss(
    broker: SelectedBroker, topic: str, send: Callable[..., None], unique: Callable[[str], str]
) -> None:
    send(topic, varied(30), **{"transactional.id": unique("writer")})
    # The last stable offset moves when the markers are written, a moment after the response to the commit.
    deadline = time.monotonic() + 120
    ranges: tuple[OffsetRange, ...] = ()
    while sum(map(len, ranges)) < 33 and time.monotonic() < deadline:
        ranges = plan(broker.bootstrap, topics=[topic], isolation_level="read_committed")
    assert [len(one) for one in ranges] == [11, 11, 11]  # ten records and the commit's marker
    settings = {"bootstrap": broker.bootstrap, "isolation_level": "read_committed"}
    assert [sum(len(columns) for columns in read_range(one, settings)) for one in ranges] == [10, 10, 10]
    only_the_marker = OffsetRange(topic, 0, 10, 11)
    assert list(read_range(only_the_marker, settings)) == []


@pytest.mark.parametrize(("offsets", "kib"), [(1, 64), (64, 64), (1000, 1024), (4096, 4096), (10_000_000, 4096)])
def test_a_short_range_fetches_little_behind_its_end(offsets: int, kib: int) -> None:
    settings = ours(offsets)
    assert settings["max_partition_fetch_bytes"] == kib * 1024
    assert settings["max_buffered_bytes"] == 4 * kib * 1024


def test_nothing_to_read_is_an_empty_rdd(spark: Any, broker: SelectedBroker, topic: str) -> None:
    rdd = kafka_rdd(spark.sparkContext, plan(broker.bootstrap, topics=[topic]), bootstrap=broker.bootstrap)
    assert rdd.collect() == []
    assert rdd.offset_ranges == ()


def test_ranges_can_be_read_in_any_order_and_overlap(
    broker: SelectedBroker, topic: str, send: Callable[..., None]
) -> None:
    send(topic, varied(30))
    settings = {"bootstrap": broker.bootstrap}
    for start, stop in ((3, 9), (0, 4), (9, 10), (4, 4)):
        columns = list(read_range(OffsetRange(topic, 1, start, stop), settings))
        assert [offset for one in columns for offset in one.offsets] == list(range(start, stop))


def test_partitions_are_named_as_they_are(broker: SelectedBroker, every_codec: str) -> None:
    for partition in range(3):
        one = OffsetRange(every_codec, partition, 0, 1)
        (columns,) = read_range(one, {"bootstrap": broker.bootstrap})
        assert (columns[0].topic, columns[0].partition) == TopicPartition(every_codec, partition)


def test_ranges_of_several_partitions_are_read_together(
    broker: SelectedBroker, topic: str, send: Callable[..., None], delete_before: Callable[[str, int, int], None]
) -> None:
    send(topic, varied(30))
    delete_before(topic, 1, 4)
    delete_before(topic, 2, 10)
    settings = {"bootstrap": broker.bootstrap}
    whole = OffsetRange(topic, 0, 2, 8)
    for lost, start in ((OffsetRange(topic, 1, 0, 10), 0), (OffsetRange(topic, 2, 3, 10), 3)):
        with pytest.raises(DataLossError, match=rf"not in the log: .*partition={lost.partition}, start={start}"):
            list(read_ranges((whole, lost), settings))
    found: dict[int, list[int]] = {}
    for columns in read_ranges(
        (whole, OffsetRange(topic, 1, 0, 10), OffsetRange(topic, 2, 3, 10)), settings, skip_lost=True
    ):
        found.setdefault(columns.partition, []).extend(columns.offsets)
    assert found == {0: list(range(2, 8)), 1: list(range(4, 10))}
