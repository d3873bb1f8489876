"""foreachBatch with exactly-once: a repeated task, and one that was cut off, leave each record once."""

import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType

from kohort import Consumer, TopicPartition
from kohort.coordinator_client import ConfigError
from kohort.producer import Producer, ProducerFenced, TransactionAborted
from kohort.spark import OptionError, PlanError, TransactionalWriter
from kohort.spark.sink import SinkOptions
from kohort.spark.transactional_batch import WriteOnce
from kohort.testing.fake_broker import Close, Delay, FakeBroker, Hold
from tests.spark.queries import ended
from tests.support.broker_selection import SelectedBroker


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 2}) as broker:
        yield broker


def task(bootstrap: str, batch_id: int, **settings: str) -> WriteOnce:
    options = {"kafka.bootstrap.servers": bootstrap, "topic": "t", "kafka.request.timeout.ms": "3000"}
    return WriteOnce(SinkOptions.of(options | settings), "query", batch_id)


def batches(*values: bytes) -> Iterator[pa.RecordBatch]:
    for value in values:
        yield pa.RecordBatch.from_pydict({"value": [value], "partition": pa.array([0], pa.int32())})


def cut_off(*values: bytes) -> Iterator[pa.RecordBatch]:
    """As a task whose executor is killed behind these values."""
    yield from batches(*values)
    raise KeyboardInterrupt


def read(bootstrap: str, topic: str = "t", partitions: int = 1) -> list[bytes]:
    """The committed values."""
    found: list[bytes] = []
    with Consumer(bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        ends = consumer.end_offsets(places)
        consumer.assign(dict.fromkeys(places, 0))
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [record.value or b"" for columns in consumer.poll(0.2) for record in columns]
    return found


def test_a_repeated_task_writes_nothing(fake: FakeBroker) -> None:
    assert task(fake.bootstrap, 0).write(batches(b"a", b"b"), 3) == 2
    assert task(fake.bootstrap, 0).write(batches(b"a", b"b"), 3) == 2
    assert task(fake.bootstrap, 1).write(batches(b"c"), 3) == 1
    with pytest.raises(PlanError, match=r"batch 1 is already committed \(batch=0, partition=3\)"):
        task(fake.bootstrap, 0).write(batches(b"a", b"b"), 3)  # as of a restored copy of a checkpoint
    assert task(fake.bootstrap, 0).write(batches(b"x"), 4) == 1  # another partition
    assert read(fake.bootstrap) == [b"a", b"b", b"c", b"x"]


def test_a_task_that_is_cut_off_leaves_nothing(fake: FakeBroker) -> None:
    with pytest.raises(KeyboardInterrupt):
        task(fake.bootstrap, 0).write(cut_off(b"a", b"b"), 0)
    assert read(fake.bootstrap) == []
    task(fake.bootstrap, 0).write(batches(b"a", b"b"), 0)
    assert read(fake.bootstrap) == [b"a", b"b"]


def test_a_commit_whose_response_is_lost_is_not_repeated(fake: FakeBroker) -> None:
    fake.control("EndTxn", lambda _call: Close(after_work=True), times=1)
    task(fake.bootstrap, 0).write(batches(b"a"), 0)
    task(fake.bootstrap, 0).write(batches(b"a"), 0)
    assert read(fake.bootstrap) == [b"a"]


@pytest.mark.parametrize("version", [1, 2])
def test_an_attempt_that_is_overtaken_ends_with_the_commit_of_the_other(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with speculation: the copy begins while the first attempt writes. Spark counts an attempt that fails."""
    monkeypatch.setattr("kohort.spark.transactional_batch.LOOK_S", 0.01)
    begun, may_go_on, read_to_end = threading.Event(), threading.Event(), threading.Event()

    def of_copy() -> Iterator[pa.RecordBatch]:
        begun.set()
        assert may_go_on.wait(60)
        yield from batches(b"a", b"b")

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from batches(b"a")
        copy.start()
        assert begun.wait(60)
        yield from batches(b"b")
        read_to_end.set()

    with FakeBroker(topics={"t": 2}, features={"transaction.version": version}) as fake:
        # The third one is of the attempt that is fenced.
        fake.control("OffsetFetch", lambda call: may_go_on.set() if call.number == 2 else None)
        copy = threading.Thread(target=task(fake.bootstrap, 0).write, args=(of_copy(), 0))
        assert task(fake.bootstrap, 0).write(overtaken(), 0) == 2
        copy.join()
        assert read_to_end.is_set()
        assert read(fake.bootstrap) == [b"a", b"b"]


def test_an_attempt_fails_if_the_other_does_not_commit(fake: FakeBroker) -> None:
    limit = {"kafka.transaction.timeout.ms": "1500"}

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield from batches(b"a")
        with Producer(fake.bootstrap, transactional_id="query-0") as other:
            other.begin()
        yield from batches(b"b")

    with pytest.raises((ProducerFenced, TransactionAborted)):
        task(fake.bootstrap, 0, **limit).write(overtaken(), 0)
    assert read(fake.bootstrap) == []


def test_an_attempt_whose_transaction_is_overdue_waits_for_no_other(fake: FakeBroker) -> None:
    fake.control("EndTxn", lambda _call: Delay(0.1))  # otherwise it could be in time
    with pytest.raises(TransactionAborted, match=r"time-out .*partition=0.* kafka\.transaction\.timeout\.ms"):
        task(fake.bootstrap, 0, **{"kafka.transaction.timeout.ms": "1"}).write(batches(b"a"), 0)
    assert len(fake.calls_of("OffsetFetch")) == 1


def test_earlier_attempts_are_fenced_before_the_committed_batch_is_read(fake: FakeBroker) -> None:
    """Otherwise an earlier attempt could commit after the look at the committed batch."""
    held = Hold()
    fake.control("InitProducerId", lambda _call: held)
    running = threading.Thread(target=task(fake.bootstrap, 0).write, args=(batches(b"a"), 0))
    running.start()
    held.reached.wait(60)
    time.sleep(0.5)
    early = fake.calls_of("OffsetFetch")
    held.release()
    running.join()
    assert early == []
    assert fake.calls_of("OffsetFetch")


def test_a_batch_that_was_cut_in_another_way_is_refused(fake: FakeBroker) -> None:
    task(fake.bootstrap, 0).write(batches(b"a", b"b"), 0)
    with pytest.raises(PlanError, match=r"has 1 records, and 2 are committed.*batch=0, partition=0"):
        task(fake.bootstrap, 0).write(batches(b"a"), 0)


def test_a_topic_is_needed() -> None:
    with pytest.raises(OptionError, match="no topic is named"):
        TransactionalWriter({"kafka.bootstrap.servers": "h:1"})


def test_a_setting_that_excludes_transactions_is_refused_before_the_query_starts() -> None:
    with pytest.raises(ConfigError, match="a transactional producer has acks=all"):
        TransactionalWriter({"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.acks": "1"})


def test_spark_connect_is_refused_before_the_query_starts() -> None:
    writer = TransactionalWriter({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    with pytest.raises(PlanError, match="foreachBatch of Spark Connect runs on the server"):
        pickle.dumps(writer)
    frame: Any = SimpleNamespace(schema=StructType().add("value", "binary"), sparkSession=object())
    with pytest.raises(PlanError, match="foreachBatch of Spark Connect runs on the server"):
        writer(frame, 0)  # as from a function that makes the writer on the server


@pytest.mark.broker
@pytest.mark.proves("S-05")
def test_two_frames_of_a_batch_need_two_prefixes(
    kohort_spark: Any, broker: SelectedBroker, topic: str, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    kohort_spark.range(0, 10, 1, 1).write.format("parquet").save(str(tmp_path / "rows"))
    stream = kohort_spark.readStream.schema("id LONG").format("parquet").load(str(tmp_path / "rows"))

    def run(*prefixes: str) -> None:
        def halves(frame: Any, batch_id: int) -> None:
            for half, prefix in enumerate(prefixes):
                values = frame.where(f"id % 2 = {half}").selectExpr("CAST(id AS STRING) AS value", "0 AS partition")
                kohort_spark.sparkContext.setJobGroup(f"half {half}", "a name for Spark's pages")
                for _ in range(2):
                    TransactionalWriter(options, prefix=prefix)(values, batch_id)

        query = stream.writeStream.foreachBatch(halves).option("checkpointLocation", str(tmp_path / "checkpoint"))
        ended(query.trigger(availableNow=True).start)

    with pytest.raises(StreamingQueryException, match=rf"two frames of a batch.*topic={topic}, batch=0"):
        run("low", "low")
    assert read(broker.bootstrap, topic) == [b"0", b"2", b"4", b"6", b"8"]
    run("low", "high")  # Spark repeats the batch
    assert sorted(read(broker.bootstrap, topic)) == [b"%d" % number for number in range(10)]


@pytest.mark.broker
@pytest.mark.proves("S-05")
def test_frames_that_differ_in_the_names_of_columns_are_two(
    kohort_spark: Any, broker: SelectedBroker, topic: str, tmp_path: Path
) -> None:
    writer = TransactionalWriter({"kafka.bootstrap.servers": broker.bootstrap, "topic": topic})
    kohort_spark.range(1).selectExpr("'a' AS a", "'b' AS b").write.format("parquet").save(str(tmp_path / "rows"))
    stream = kohort_spark.readStream.schema("a STRING, b STRING").format("parquet").load(str(tmp_path / "rows"))

    def both(frame: Any, batch_id: int) -> None:
        writer(frame.selectExpr("a AS key", "b AS value"), batch_id)
        writer(frame.selectExpr("a AS value", "b AS key"), batch_id)

    query = stream.writeStream.foreachBatch(both).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match=r"two frames of a batch"):
        ended(query.trigger(availableNow=True).start)
    assert read(broker.bootstrap, topic, 3) == [b"b"]


@pytest.mark.broker
def test_a_batch_is_written_by_threads(kohort_spark: Any, broker: SelectedBroker, topic: str, tmp_path: Path) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    writers = [TransactionalWriter(options, prefix=prefix) for prefix in ("one", "other")]
    kohort_spark.sql("SELECT 'v' AS value, 0 AS partition").write.format("parquet").save(str(tmp_path / "rows"))
    stream = (
        kohort_spark.readStream.schema("value STRING, partition INT").format("parquet").load(str(tmp_path / "rows"))
    )

    def side_by_side(frame: Any, batch_id: int) -> None:
        within = inheritable_thread_target(frame.sparkSession)
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(within(partial(one, frame, batch_id))) for one in writers]:
                done.result()

    query = stream.writeStream.foreachBatch(side_by_side).option("checkpointLocation", str(tmp_path / "checkpoint"))
    ended(query.trigger(availableNow=True).start)
    assert read(broker.bootstrap, topic) == [b"v", b"v"]


@pytest.mark.broker
def test_a_repeated_batch_of_a_stream_is_written_once(
    kohort_spark: Any, broker: SelectedBroker, topic: str, tmp_path: Path
) -> None:
    at = {"kafka.bootstrap.servers": broker.bootstrap}
    values = sorted(b"%d" % number for number in range(100))
    numbers = kohort_spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    numbers.write.format("parquet").save(str(tmp_path / "rows"))
    writer = TransactionalWriter(at | {"topic": topic})
    with pytest.raises(PlanError, match="there is no streaming query"):
        writer(numbers, 0)

    def twice(frame: Any, batch_id: int) -> None:
        writer(frame, batch_id)
        writer(frame, batch_id)

    stream = kohort_spark.readStream.schema("value STRING").format("parquet").load(str(tmp_path / "rows"))
    query = stream.writeStream.foreachBatch(twice).option("checkpointLocation", str(tmp_path / "checkpoint"))
    ended(query.trigger(availableNow=True).start)
    assert sorted(read(broker.bootstrap, topic, 3)) == values
