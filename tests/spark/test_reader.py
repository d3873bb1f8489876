"""An executor's reading, where a log is not what it was when the driver planned."""

import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort.coordinator_client import OperationTimeout
from kohort.coordinator_client.offsets import offset_lookups
from kohort.spark import DataLossError, OffsetRange, consumer_pool
from kohort.spark import reader as reading
from kohort.spark.partition_reader import NUMBERS_BYTES, as_spark, pieces
from kohort.spark.reader import _follow, read_ranges
from kohort.spark.schema import arrow_schema
from kohort.spark.source import SCHEMA
from kohort.testing.fake_broker import Close, Delay, FakeBroker

Read = Callable[..., list[tuple[str, int, int]]]


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    """A broker with ten records in one partition."""
    with FakeBroker(topics={"t": 1}) as broker:
        fill(broker, "t")
        yield broker
        while consumer_pool._idle:
            consumer_pool._idle.pop()[1].close()


def fill(fake: FakeBroker, topic: str, partition: int = 0) -> None:
    for number in range(10):
        fake.produce(topic, partition, [(None, b"%d" % number)])


@pytest.fixture
def read(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> Read:
    """`read(*ranges, skip_lost=...)`: (topic, partition, offset) of what comes."""
    monkeypatch.setattr(reading, "CHECK_AFTER_S", 0.3)
    settings: dict[str, Any] = {"bootstrap": fake.bootstrap, "default_api_timeout_ms": 2000}

    def reader(*ranges: OffsetRange, skip_lost: bool = True, **given: Any) -> list[tuple[str, int, int]]:
        slices = read_ranges(ranges, settings | given, skip_lost=skip_lost)
        return [(columns.topic, columns.partition, offset) for columns in slices for offset in columns.offsets]

    return reader


@pytest.mark.proves("B-40")
def test_a_log_that_ends_early_is_read_to_its_end_also_where_its_leader_is_slow(fake: FakeBroker, read: Read) -> None:
    fake.control("Fetch", lambda call: Delay(1.0), times=1)
    assert read(OffsetRange("t", 0, 5, 20)) == [("t", 0, offset) for offset in range(5, 10)]


@pytest.mark.proves("B-40")
@pytest.mark.parametrize("reset", ["none", "earliest", "latest"])
def test_what_a_consumer_would_do_about_a_loss_is_not_asked(fake: FakeBroker, read: Read, reset: str) -> None:
    """kafka_rdd may be given the settings of a job's other consumers."""
    fake.trim("t", 0, 4)
    whole = OffsetRange("t", 0, 0, 8)
    with pytest.raises(DataLossError, match="the log begins at 4"):
        read(whole, skip_lost=False, auto_offset_reset=reset)
    assert read(whole, auto_offset_reset=reset) == [("t", 0, offset) for offset in range(4, 8)]


def test_a_task_commits_nothing_under_any_settings(fake: FakeBroker) -> None:
    """That a task has read a record does not say that its job has come to an end."""
    settings = {"bootstrap": fake.bootstrap, "group": "g", "enable_auto_commit": True, "max_poll_records": 2}
    slices = read_ranges([OffsetRange("t", 0, 0, 10)], settings)
    assert [len(next(slices)) for _ in range(3)] == [2, 2, 2]
    slices.close()  # type: ignore[attr-defined]  # as for a task that has failed
    assert fake.group("g").offsets == {}
    assert sum(map(len, read_ranges([OffsetRange("t", 0, 0, 10)], settings))) == 10
    assert fake.group("g").offsets == {}


@pytest.mark.proves("B-39", "B-40")
def test_a_log_that_is_shorter_than_where_a_range_begins_may_be_skipped(fake: FakeBroker, read: Read) -> None:
    """As when a topic was created again between plan and task: run again, the batch must not fail for ever."""
    with pytest.raises(DataLossError, match="start=50, stop=60"):
        read(OffsetRange("t", 0, 50, 60), skip_lost=False)
    assert read(OffsetRange("t", 0, 50, 60)) == []


@pytest.mark.proves("B-39")
@pytest.mark.parametrize("records", [4, 20])
def test_a_topic_that_is_created_again_under_a_range_is_read_on_where_loss_is_allowed(
    fake: FakeBroker, records: int
) -> None:
    settings: dict[str, Any] = {"bootstrap": fake.bootstrap, "metadata_max_age_ms": 200}
    strict, tolerant = (read_ranges([OffsetRange("t", 0, 0, 20)], settings, skip_lost=skip) for skip in (False, True))
    begun = [offset for slices in (strict, tolerant) for offset in next(slices).offsets]
    assert begun == [*range(10), *range(10)]
    fake.create_topic("t")
    for _ in range(records):
        fake.produce("t", 0, [(None, b"new")])
    time.sleep(0.5)
    with pytest.raises(DataLossError, match="created again"):
        list(strict)
    assert [offset for columns in tolerant for offset in columns.offsets] == list(range(10, records))


@pytest.mark.parametrize("skip_lost", [False, True])
def test_a_log_that_cannot_be_fetched_is_no_endless_wait(
    fake: FakeBroker, read: Read, monkeypatch: pytest.MonkeyPatch, skip_lost: bool
) -> None:
    """As by a leader with a damaged segment, which closes the connection at each Fetch request."""
    monkeypatch.setattr(reading, "MOST_CHECKS", 3)
    fake.control("Fetch", lambda call: Close())
    with pytest.raises(OperationTimeout, match=r"no records .*\(topic=t, partition=0, start=2, stop=8\)"):
        read(OffsetRange("t", 0, 2, 8), skip_lost=skip_lost)


def test_a_log_that_is_fetched_slowly_is_waited_for(
    fake: FakeBroker, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_CHECKS", 8)
    fake.control("Fetch", lambda call: Delay(0.5))
    records = read(OffsetRange("t", 0, 0, 10), max_partition_fetch_bytes=1)
    assert records == [("t", 0, offset) for offset in range(10)]


@pytest.mark.proves("B-39", "B-40")
def test_a_topic_that_is_created_again_with_fewer_partitions_is_a_loss_of_the_others(fake: FakeBroker) -> None:
    settings: dict[str, Any] = {"bootstrap": fake.bootstrap, "metadata_max_age_ms": 200, "default_api_timeout_ms": 2000}
    fake.create_topic("two", partitions=2)
    for partition in (0, 1):
        fill(fake, "two", partition)
    reading = read_ranges([OffsetRange("two", number, 0, 20) for number in (0, 1)], settings, skip_lost=True)
    assert [next(reading).partition for _ in range(2)] == [0, 1]
    fake.create_topic("two", partitions=1)
    for _ in range(20):
        fake.produce("two", 0, [(None, b"new")])
    assert [(columns.partition, offset) for columns in reading for offset in columns.offsets] == [
        (0, offset) for offset in range(10, 20)
    ]


@pytest.mark.proves("B-39", "B-40")
@pytest.mark.parametrize("skip_lost", [False, True])
def test_a_topic_that_goes_while_its_offsets_are_requested_is_a_loss(
    fake: FakeBroker, read: Read, skip_lost: bool
) -> None:
    def goes(_call: object) -> None:
        control.remove()
        fake.delete_topic("t")

    fake.trim("t", 0, 4)
    control = fake.control("ListOffsets", goes)
    if skip_lost:
        assert read(OffsetRange("t", 0, 0, 8)) == []
    else:
        with pytest.raises(DataLossError, match="no such topic"):
            read(OffsetRange("t", 0, 0, 8), skip_lost=False)


@pytest.mark.proves("B-39")
def test_a_topic_that_is_gone_is_a_loss_and_may_be_skipped(fake: FakeBroker, read: Read) -> None:
    gone = [OffsetRange("gone", number, 0, 5) for number in range(3)]
    with pytest.raises(DataLossError, match="no such topic"):
        read(*gone, OffsetRange("t", 0, 3, 6), skip_lost=False)
    assert read(*gone, OffsetRange("t", 0, 3, 6)) == [("t", 0, offset) for offset in range(3, 6)]


@pytest.mark.proves("B-39")
def test_a_topic_that_is_gone_ends_a_task_before_the_time_out_of_its_offsets(
    fake: FakeBroker, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_lookups, "UNKNOWN_TOPIC_GRACE_S", 0.2)
    with pytest.raises(DataLossError, match="no such topic"):
        read(OffsetRange("gone", 0, 0, 5), skip_lost=False, default_api_timeout_ms=100_000)
    assert not fake.calls_of("ListOffsets")


def test_columns_are_cut_by_their_bytes_in_arrow(fake: FakeBroker) -> None:
    (columns,) = read_ranges([OffsetRange("t", 0, 0, 10)], {"bootstrap": fake.bootstrap})
    one = as_spark(columns[:1], arrow_schema(SCHEMA)).nbytes - 1  # without the bits of null keys
    assert one == NUMBERS_BYTES + len("t") + 1
    assert [list(piece.offsets) for piece in pieces(columns, 4 * one)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [len(piece) for piece in pieces(columns, 10 * one)] == [10]
    assert [len(piece) for piece in pieces(columns, 10 * one - 1)] == [5, 5]
    assert [len(piece) for piece in pieces(columns, 1)] == [1] * 10
    assert list(pieces(columns[:0], 4)) == []


def test_records_without_bytes_are_cut_by_the_name_of_their_topic() -> None:
    topic = "t" * 249
    with FakeBroker(topics={topic: 1}) as fake:
        fake.produce(topic, 0, [(None, None)] * 1000)
        (columns,) = read_ranges([OffsetRange(topic, 0, 0, 1000)], {"bootstrap": fake.bootstrap})
        assert [len(piece) for piece in pieces(columns, 100_000)] == [334, 334, 332]


class Fetched:
    """Stands for the columns of one record."""

    topic, partition = "t", 0

    def __init__(self, offset: int) -> None:
        self.next_offset = offset + 1

    def __len__(self) -> int:
        return 1


def test_a_task_holds_one_fetch_at_a_time() -> None:
    """A fetch may decompress to 64 MiB."""
    held: list[int] = []
    made: list[weakref.ref[Fetched]] = []

    class Polled:
        def poll(self, _timeout_s: float) -> list[Fetched]:
            held.append(sum(one() is not None for one in made))
            fetched = [Fetched(len(made))]
            made.append(weakref.ref(fetched[0]))
            return fetched

    wanted = OffsetRange("t", 0, 0, 5)
    polled: Any = Polled()
    for columns in _follow(polled, {wanted.place: wanted}, skip_lost=False):
        del columns
    assert held == [0] * 5
