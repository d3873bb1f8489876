"""The driver's side of a stream, called as Spark calls it: limits, added and lost partitions, and commits to a
group."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kohort import Consumer, TopicPartition
from kohort.coordinator_client import UnknownTopic
from kohort.spark import DataLossError, OffsetRange, OptionError
from kohort.spark.options import SourceOptions
from kohort.spark.read_limits import Pace, limited
from kohort.spark.source import SCHEMA
from kohort.spark.stream import StreamReader
from kohort.testing.topics import create_topic, serves
from tests.spark.sent import Sent, varied
from tests.support.broker_selection import SelectedBroker

Make = Callable[..., StreamReader]


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reader(broker: SelectedBroker, topic: str, clock: Clock) -> Iterator[Make]:
    """`reader(option=...)` is the driver's side of a stream over `topic`."""
    made: list[StreamReader] = []

    def make(**given: str) -> StreamReader:
        way = {} if {"subscribePattern", "assign"} & given.keys() else {"subscribe": topic}
        options = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"} | way | given
        made.append(StreamReader(SourceOptions.of(options, streaming=True), SCHEMA, clock))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def admin(broker: SelectedBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def one(topic: str, *offsets: int) -> dict[str, dict[str, int]]:
    return {topic: {str(number): offset for number, offset in enumerate(offsets)}}


def ranges_of(tasks: Sequence[Any]) -> list[OffsetRange]:
    return [one for task in tasks for one in task.value]


def grow(admin: AdminClient, broker: SelectedBroker, topic: str, partitions: int) -> None:
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(120)
    while not serves(broker.bootstrap, topic, partitions):
        pass


@pytest.mark.broker
def test_a_trigger_waits_for_enough_but_not_for_ever(
    reader: Make, topic: str, send: Callable[..., None], clock: Clock
) -> None:
    stream = reader(minOffsetsPerTrigger="10", maxTriggerDelay="30s", maxOffsetsPerTrigger="12")
    begin = stream.initialOffset()
    assert begin == one(topic, 0, 0, 0)
    send(topic, varied(6))
    first = stream.latestOffset(begin)
    assert first == one(topic, 2, 2, 2)  # the first trigger waits for nothing
    send(topic, varied(6))
    clock.now += 29.9
    assert stream.latestOffset(first) == first
    clock.now += 0.2
    second = stream.latestOffset(first)
    assert second == one(topic, 4, 4, 4)
    send(topic, varied(30))
    assert stream.latestOffset(second) == one(topic, 8, 8, 8)  # enough: at once, and no more than 12


@pytest.mark.broker
def test_an_available_now_run_takes_what_was_there_and_does_not_wait_for_more(
    reader: Make, topic: str, send: Callable[..., None]
) -> None:
    stream = reader(minOffsetsPerTrigger="20", maxOffsetsPerTrigger="20")
    begin = stream.initialOffset()
    send(topic, varied(30))
    stream.prepareForTriggerAvailableNow()
    send(topic, varied(30))
    middle = stream.latestOffset(begin)
    end = stream.latestOffset(middle)
    assert sum(middle[topic].values()) == 20
    assert end == stream.latestOffset(end) == one(topic, 10, 10, 10)
    assert stream.reportLatestOffset() == end


@pytest.mark.broker
def test_partitions_and_topics_that_are_added_are_read_from_their_beginning(
    broker: SelectedBroker, reader: Make, unique: Callable[[str], str], send: Callable[..., None], admin: AdminClient
) -> None:
    family = unique("family")
    first, second = f"{family}-1", f"{family}-2"
    create_topic(broker.bootstrap, first, config={"retention.ms": "-1"})
    stream = reader(subscribePattern=f"{family}-[0-9]$", startingOffsets="latest")
    begin = stream.initialOffset()
    assert begin == {first: {"0": 0}}
    grow(admin, broker, first, 2)
    create_topic(broker.bootstrap, second, config={"retention.ms": "-1"})
    send(first, [Sent(1, None, b"x", 1_700_000_000_000, ())] * 4)
    send(second, [Sent(0, None, b"x", 1_700_000_000_000, ())] * 3)
    end = stream.latestOffset(begin)
    assert end == {first: {"0": 0, "1": 4}, second: {"0": 3}}
    ranges = ranges_of(stream.partitions(begin, end))
    assert [(r.topic, r.partition, r.start, r.stop) for r in ranges] == sorted([(first, 1, 0, 4), (second, 0, 0, 3)])
    alone = reader(subscribe=first)
    assert alone.latestOffset({first: {"0": 0}}) == {first: {"0": 0, "1": 4}}
    several = reader(subscribe=f"{first},{second}")
    assert several.latestOffset({first: {"0": 0}}) == end


@pytest.mark.broker
@pytest.mark.proves("B-40")
def test_an_added_partition_whose_beginning_is_gone_is_a_loss(
    broker: SelectedBroker,
    reader: Make,
    topic: str,
    send: Callable[..., None],
    admin: AdminClient,
    delete_before: Callable[[str, int, int], None],
) -> None:
    begin = reader().initialOffset()
    grow(admin, broker, topic, 4)
    send(topic, [Sent(3, None, b"x", 1_700_000_000_000, ())] * 5)
    delete_before(topic, 3, 2)
    with pytest.raises(DataLossError, match=rf"begins at 2.*topic={topic}, partition=3, offset=2") as caught:
        reader().latestOffset(begin)
    assert caught.value.condition == "KAFKA_DATA_LOSS.ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"
    tolerant = reader(failOnDataLoss="false")
    end = tolerant.latestOffset(begin)
    assert [one.start for one in ranges_of(tolerant.partitions(begin, end))] == [2]


@pytest.mark.broker
def test_a_topic_that_is_deleted_under_a_stream(
    reader: Make, make_topic: Callable[..., str], send: Callable[..., None], delete_topic: Callable[[str], None]
) -> None:
    gone, stays = make_topic(1), make_topic(1)
    send(gone, [Sent(0, None, b"x", 1_700_000_000_000, ())] * 2)
    both = f"{gone},{stays}"
    stream, tolerant = reader(subscribe=both), reader(subscribe=both, failOnDataLoss="false")
    before = stream.latestOffset(stream.initialOffset())
    assert before == {gone: {"0": 2}, stays: {"0": 0}}
    tolerant.initialOffset()
    delete_topic(gone)
    send(stays, [Sent(0, None, b"x", 1_700_000_000_000, ())])
    with pytest.raises(DataLossError, match=rf"were deleted \(topic={gone}, partition=0\)") as caught:
        stream.latestOffset(before)
    assert caught.value.condition == "KAFKA_DATA_LOSS.PARTITIONS_DELETED"
    end = tolerant.latestOffset(before)
    assert end == {stays: {"0": 1}}
    assert [one.topic for one in ranges_of(tolerant.partitions(before, end))] == [stays]
    with pytest.raises(UnknownTopic):
        reader(subscribe=gone).initialOffset()


@pytest.mark.broker
@pytest.mark.proves("B-40")
def test_a_log_that_ends_before_what_was_read_is_a_loss_or_a_new_beginning(
    reader: Make, topic: str, send: Callable[..., None]
) -> None:
    send(topic, varied(9))
    before = one(topic, 7, 3, 3)
    with pytest.raises(DataLossError, match=rf"ends at 3.*topic={topic}, partition=0, offset=7") as caught:
        reader().latestOffset(before)
    assert caught.value.condition == "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED"
    tolerant = reader(failOnDataLoss="false")
    end = tolerant.latestOffset(before)
    assert end == one(topic, 3, 3, 3)
    assert tolerant.partitions(before, end) == []
    send(topic, varied(3))
    again = tolerant.partitions(end, tolerant.latestOffset(end))
    assert [one.start for one in ranges_of(again)] == [3, 3, 3]


@pytest.mark.broker
def test_the_group_gets_a_commit_when_spark_requests_more(
    broker: SelectedBroker, reader: Make, topic: str, send: Callable[..., None], unique: Callable[[str], str]
) -> None:
    group = unique("group")

    def reported() -> list[int | None]:
        with Consumer(broker.bootstrap, group=group) as consumer:
            found = consumer.committed([TopicPartition(topic, number) for number in range(3)])
        return [None if stored is None else stored.offset for stored in found.values()]

    send(topic, varied(30))
    stream = reader(**{"kafka.group.id": group, "maxOffsetsPerTrigger": "15"})
    first = stream.latestOffset(stream.initialOffset())
    assert reported() == [None, None, None]  # nothing is read yet
    second = stream.latestOffset(first)
    assert reported() == [5, 5, 5]
    stream.commit(second)
    assert reported() == [10, 10, 10]


@pytest.mark.broker
def test_a_pyspark_that_does_not_say_where_the_stream_is(
    reader: Make, topic: str, send: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    send(topic, varied(30))
    stream = reader(maxOffsetsPerTrigger="12")
    begin = reader().initialOffset()
    whole = stream.latestOffset()
    assert whole == one(topic, 10, 10, 10)  # Trigger.AvailableNow has no other batch
    assert "the first batch of a run has no limit" in caplog.text
    assert stream.initialOffset() == begin
    first = one(topic, 4, 4, 4)
    assert [len(partition.value) for partition in stream.partitions(begin, first)] == [3]  # so small: one task
    each = reader(maxOffsetsPerTrigger="12", minPartitions="1")
    assert [len(partition.value) for partition in each.partitions(begin, first)] == [1, 1, 1]
    stream.partitions(begin, whole)
    send(topic, varied(30))
    assert sum(stream.latestOffset()[topic].values()) == 42
    rerun = reader(maxOffsetsPerTrigger="12")
    rerun.partitions(first, first)  # at a restart, as every PySpark does
    assert rerun.latestOffset() == one(topic, 20, 20, 20)
    rerun.partitions(first, first)
    assert sum(rerun.latestOffset()[topic].values()) == 24


@pytest.mark.broker
def test_latest_is_one_place_also_where_the_end_is_requested_first(
    reader: Make, topic: str, send: Callable[..., None]
) -> None:
    send(topic, varied(30))
    stream = reader(startingOffsets="latest")
    end = stream.latestOffset()  # as PySpark 4.0 and 4.1 begin
    send(topic, varied(30))
    assert stream.initialOffset() == end == one(topic, 10, 10, 10)
    assert stream.partitions(end, end) == []
    assert stream.latestOffset() == one(topic, 20, 20, 20)


@pytest.mark.broker
def test_partitions_that_are_assigned_must_be_there(reader: Make, topic: str) -> None:
    assert reader(assign=f'{{"{topic}":[1]}}').initialOffset() == {topic: {"1": 0}}
    with pytest.raises(OptionError, match=rf"no such partition .*topic={topic}, partition=9"):
        reader(assign=f'{{"{topic}":[1,9]}}').initialOffset()


def test_a_pace_without_limits_takes_everything() -> None:
    place = TopicPartition("t", 0)
    pace: Any = Pace(None, None, 900.0)
    assert pace.ends({place: 3}, {place: 9}, 0.0, hurry=False) == {place: 9}
    assert pace.ends({place: 3}, {place: 1}, 0.0, hurry=False) == {place: 1}  # a log that was created again
    assert limited({place: 3}, {place: 1}, 5) == {place: 1}


@pytest.mark.parametrize(("most", "taken"), [(1, 1), (7, 7), (59, 59), (60, 60), (1000, 60)])
def test_a_limit_is_kept_to_the_offset_and_always_moves(most: int, taken: int) -> None:
    before = {TopicPartition("t", n): n for n in range(4)}
    ends = {
        TopicPartition("t", 0): 0,
        TopicPartition("t", 1): 11,
        TopicPartition("t", 2): 52,
        TopicPartition("t", 3): 3,
    }
    found = limited(before, ends, most)
    moved = Counter({place: offset - before[place] for place, offset in found.items()})
    assert sum(moved.values()) == taken
    assert all(before[place] <= offset <= max(ends[place], before[place]) for place, offset in found.items())


@pytest.mark.parametrize("most", [1, 2, 3, 4, 50])
def test_a_quiet_partition_beside_busy_ones_is_read(most: int) -> None:
    busy, steady, *quiet = (TopicPartition("t", n) for n in range(5))
    at = dict.fromkeys((busy, steady, *quiet), 0)
    ends = {busy: 10_000, steady: 1} | dict.fromkeys(quiet, 1)
    for _ in range(ceil(len(ends) / most)):
        at = limited(at, ends, most)
        ends[busy] += most
        ends[steady] += 1
    assert [at[place] for place in quiet] == [1, 1, 1]
