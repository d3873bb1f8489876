"""A stream's driver, and topics that go away under it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from kohort import KohortError, TopicPartition
from kohort.coordinator_client import UnknownTopic
from kohort.coordinator_client.offsets import offset_lookups
from kohort.spark import DataLossError, OffsetRange, PlanError, plan
from kohort.spark.offset_json import Logged
from kohort.spark.options import SourceOptions
from kohort.spark.source import SCHEMA
from kohort.spark.stream import StreamReader
from kohort.testing.fake_broker import Alter, Close, FakeBroker, Hold

Make = Callable[..., StreamReader]
GRACE_S, SILENCE_S = 0.1, 1.0
BEGIN = {"goes": {"0": 0}, "stays": {"0": 0}}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    monkeypatch.setattr(offset_lookups, "UNKNOWN_TOPIC_GRACE_S", GRACE_S)
    with FakeBroker(topics={"goes": 1, "stays": 1}) as broker:
        for topic in BEGIN:
            broker.produce(topic, 0, [(None, b"value")])
        yield broker


@pytest.fixture
def reader(fake: FakeBroker) -> Iterator[Make]:
    """`reader(option=...)` is the driver's side of a stream over both topics."""
    made: list[StreamReader] = []

    def make(**given: str) -> StreamReader:
        way = {} if {"assign", "subscribePattern"} & given.keys() else {"subscribe": ",".join(BEGIN)}
        there = {"kafka.bootstrap.servers": fake.bootstrap, "kafka.default.api.timeout.ms": "2000"}
        options = there | {"startingOffsets": "earliest"} | way | given
        made.append(StreamReader(SourceOptions.of(options, streaming=True), SCHEMA))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.mark.proves("B-39")
def test_the_group_gets_what_is_still_there(fake: FakeBroker, reader: Make) -> None:
    group = {"kafka.group.id": "g"}
    stream, tolerant = reader(**group), reader(**group, failOnDataLoss="false")
    before = stream.latestOffset(stream.initialOffset())
    fake.delete_topic("goes")
    with pytest.raises(DataLossError, match=r"partitions of the stream were deleted \(topic=goes, partition=0\)"):
        stream.latestOffset(before)
    assert tolerant.latestOffset(before) == {"stays": {"0": 1}}
    tolerant.commit(before)
    reported = {place: stored.offset for place, stored in fake.group("g").offsets.items()}
    assert reported == {TopicPartition("stays", 0): 1}


@pytest.mark.proves("B-39")
@pytest.mark.parametrize("way", [{}, {"assign": '{"goes":[0],"stays":[0]}'}, {"subscribe": "goes"}])
def test_a_topic_that_is_gone_stays_gone_until_it_is_created_again(
    fake: FakeBroker, reader: Make, way: dict[str, str]
) -> None:
    stream, again = (reader(**way, failOnDataLoss="false") for _ in range(2))
    before = stream.latestOffset(stream.initialOffset())
    fake.delete_topic("goes")
    left = {} if "subscribe" in way else {"stays": {"0": 1}}
    assert stream.latestOffset(before) == stream.latestOffset(left) == left
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(before) == again.latestOffset(left) == left
    fake.create_topic("goes")
    assert stream.latestOffset(left) == {"goes": {"0": 0}} | left
    with pytest.raises(KohortError, match="no such topic"):
        reader(subscribe="goes,misspelt", failOnDataLoss="false").initialOffset()


@pytest.mark.proves("B-39")
@pytest.mark.parametrize("records", [0, 5])
@pytest.mark.parametrize("available_now", [False, True])
def test_a_topic_that_is_created_again_between_two_triggers_is_a_loss_or_read_from_its_beginning(
    fake: FakeBroker, reader: Make, records: int, available_now: bool
) -> None:
    """Also if its log has reached the position again."""
    stream, tolerant = reader(), reader(failOnDataLoss="false")
    for one in (stream, tolerant):
        if available_now:
            one.prepareForTriggerAvailableNow()
        before = one.latestOffset(one.initialOffset())
    fake.delete_topic("goes")
    fake.create_topic("goes")
    for _ in range(records):
        fake.produce("goes", 0, [(None, b"new")])
    with pytest.raises(DataLossError, match=r"partitions of the stream were deleted \(topic=goes, partition=0\)"):
        stream.latestOffset(before)
    left = {"stays": {"0": 1}}
    assert tolerant.latestOffset(before) == left
    if available_now:
        assert tolerant.latestOffset(left) == left  # its end is of the old topic
        tolerant = reader(failOnDataLoss="false")
    end = tolerant.latestOffset(left)
    assert end == {"goes": {"0": records}} | left
    new = [one for task in tolerant.partitions(left, end) for one in task.value if len(one)]
    assert new == ([OffsetRange("goes", 0, 0, records)] if records else [])
    assert tolerant.latestOffset(end) == end


@pytest.mark.proves("B-39")
@pytest.mark.parametrize("fails", ["false", "true"])
@pytest.mark.parametrize("hidden", ["topic", "partition"])
def test_what_a_broker_has_not_learned_of_yet_is_no_loss(
    fake: FakeBroker, reader: Make, hidden: str, fails: str
) -> None:
    """Any broker may be requested, and brokers learn of added topics and partitions one after the other."""

    def of_before(response: Any) -> Any:
        left = [topic for topic in response.topics if hidden == "partition" or topic.name != "goes"]
        first = [topic._replace(partitions=topic.partitions[:1]) for topic in left]
        return response._replace(topics=tuple(first))

    fake.add_partitions("goes", 2)
    fake.produce("goes", 1, [(None, b"value")])
    way = {"subscribePattern": "^(goes|stays)$"} if hidden == "topic" else {}
    stream, now = (reader(**way, failOnDataLoss=fails) for _ in range(2))
    end = stream.latestOffset(stream.initialOffset())
    assert stream.latestOffset(end) == end == {"goes": {"0": 1, "1": 1}, "stays": {"0": 1}}
    old = fake.control("Metadata", lambda _call: Alter(of_before), times=1)
    assert stream.latestOffset(end) == end
    assert old.calls == 1
    old = fake.control("Metadata", lambda _call: Alter(of_before))
    now.prepareForTriggerAvailableNow()
    old.remove()
    assert now.latestOffset(end) == end


def of_first_partitions(response: Any) -> Any:
    """A Metadata response without the added partitions."""
    return response._replace(topics=tuple(topic._replace(partitions=topic.partitions[:1]) for topic in response.topics))


@pytest.mark.proves("B-39")
@pytest.mark.parametrize("fails", ["false", "true"])
@pytest.mark.parametrize("way", [{}, {"assign": '{"goes":[0,1],"stays":[0]}'}], ids=["subscribe", "assign"])
def test_a_restarted_stream_waits_for_partitions_that_a_broker_has_not_learned_of_yet(
    fake: FakeBroker, reader: Make, monkeypatch: pytest.MonkeyPatch, way: dict[str, str], fails: str
) -> None:
    """It does not know the ids of topics, which would show that a topic is the same."""
    monkeypatch.setattr("kohort.spark.stream.LOOK_S", 0.0)
    fake.add_partitions("goes", 2)
    fake.produce("goes", 1, [(None, b"value")])
    before = {"goes": {"0": 0, "1": 0}, "stays": {"0": 0}}
    end = {"goes": {"0": 1, "1": 1}, "stays": {"0": 1}}
    old = fake.control("Metadata", lambda _call: Alter(of_first_partitions), times=3)
    assert reader(**way, failOnDataLoss=fails).latestOffset(before) == end
    assert old.calls == 3
    # A batch that began with an added partition, and is repeated after the restart.
    fake.control("Metadata", lambda _call: Alter(of_first_partitions), times=3)
    tasks = reader(**way, failOnDataLoss=fails).partitions(BEGIN, end)
    assert [one for task in tasks for one in task.value] == [
        OffsetRange("goes", 0, 0, 1),
        OffsetRange("goes", 1, 0, 1),
        OffsetRange("stays", 0, 0, 1),
    ]


@pytest.mark.proves("B-39")
def test_partitions_that_no_broker_lists_are_a_loss_after_a_restart(
    fake: FakeBroker, reader: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.spark.stream.LOOK_S", 0.0)
    before = {"goes": {"0": 0, "1": 0}, "stays": {"0": 0}}
    with pytest.raises(DataLossError, match=r"partitions of the stream were deleted \(topic=goes, partition=1\)"):
        reader().latestOffset(before)
    assert reader(failOnDataLoss="false").latestOffset(before) == {"goes": {"0": 1}, "stays": {"0": 1}}


@pytest.mark.proves("B-39")
def test_a_topic_that_goes_while_its_offsets_are_requested_does_not_end_a_tolerant_stream(
    fake: FakeBroker, reader: Make
) -> None:
    def goes_at(request: int) -> None:
        def goes(_call: object) -> None:
            if next(requests) == request:
                control.remove()
                fake.delete_topic("goes")

        requests = count(1)
        control = fake.control("ListOffsets", goes)

    left = {"stays": {"0": 1}}
    for before, request in (({"goes": {"0": 1}} | left, 1), (left, 1), (left, 2)):
        stream = reader(failOnDataLoss="false")
        goes_at(request)
        assert stream.latestOffset(before) == left
        fake.create_topic("goes")
    end = stream.latestOffset(left)
    goes_at(1)
    assert [one for task in stream.partitions(left, end) for one in task.value if len(one)] == []
    fake.create_topic("goes")
    run = reader(failOnDataLoss="false")
    goes_at(1)
    run.prepareForTriggerAvailableNow()
    assert run.latestOffset(left) == left


@pytest.mark.parametrize("on_data_loss", ["fail", "skip"])
def test_a_plan_lacks_a_topic_of_its_pattern_that_is_deleted_while_offsets_are_requested(
    fake: FakeBroker, on_data_loss: Any
) -> None:
    def goes(_call: object) -> None:
        control.remove()
        fake.delete_topic("goes")

    control = fake.control("ListOffsets", goes)
    left = plan(fake.bootstrap, pattern="goes|stays", on_data_loss=on_data_loss, default_api_timeout_ms=2000)
    assert left == (OffsetRange("stays", 0, 0, 1),)
    fake.create_topic("goes")
    control = fake.control("ListOffsets", goes)
    with pytest.raises(UnknownTopic, match="goes"):
        plan(fake.bootstrap, topics=["goes"], pattern="stays", default_api_timeout_ms=2000)


@pytest.mark.proves("B-39")
def test_a_batch_that_is_run_again_may_have_begun_with_a_topic_that_is_gone(fake: FakeBroker, reader: Make) -> None:
    before = {"stays": {"0": 0}}
    end = reader().latestOffset(before)
    assert end == {"goes": {"0": 1}, "stays": {"0": 1}}
    fake.delete_topic("goes")
    with pytest.raises(DataLossError, match=r"partitions of the stream were deleted \(topic=goes, partition=0\)"):
        reader().partitions(before, end)
    again = reader(failOnDataLoss="false").partitions(before, end)
    assert [one for task in again for one in task.value] == [OffsetRange("stays", 0, 0, 1)]


def ranges_of_first(stream: StreamReader, end: Logged) -> list[OffsetRange]:
    """The ranges of the first batch, whose end Spark has logged."""
    return [one for task in stream.partitions(stream.initialOffset(), end) for one in task.value if len(one)]


@pytest.mark.proves("S-05")
@pytest.mark.parametrize("passes_start", [True, False], ids=["since 4.2", "4.0 and 4.1"])
@pytest.mark.parametrize(
    ("start", "begins"),
    [
        ({"startingOffsets": "latest"}, {}),
        ({"startingOffsets": "earliest"}, {"goes": 0, "stays": 0}),
        ({"startingTimestamp": "LATE", "startingOffsetsByTimestampStrategy": "latest"}, {"goes": 1}),
        ({"startingOffsets": json.dumps({"goes": {"0": -1}, "stays": {"0": 0}})}, {"stays": 0}),
    ],
    ids=["latest", "earliest", "time", "offsets"],
)
def test_the_first_batch_has_the_same_records_after_a_restart(
    fake: FakeBroker, reader: Make, start: dict[str, str], begins: dict[str, int], passes_start: bool
) -> None:
    """Spark logs its end only. Meanwhile records arrive, and a partition is added."""
    late = time.time_ns() // 1_000_000 + 1_000_000
    start = {name: value.replace("LATE", str(late)) for name, value in start.items()}
    stream, again = reader(**start), reader(**start)
    initial = stream.initialOffset() if passes_start else None
    fake.produce("goes", 0, [(None, b"value", late)])
    end = stream.latestOffset(initial)
    first = ranges_of_first(stream, end)
    assert first == [OffsetRange(topic, 0, offset, end[topic]["0"]) for topic, offset in begins.items()]
    for topic in BEGIN:
        fake.produce(topic, 0, [(None, b"value", stamp) for stamp in (0, late, late)])
    fake.add_partitions("stays", 2)
    if not passes_start:
        again.partitions(end, end)  # as PySpark 4.0 and 4.1 restart
    assert ranges_of_first(again, end) == first
    assert again.latestOffset(end) == {"goes": {"0": 5}, "stays": {"0": 4, "1": 0}}


@pytest.mark.proves("S-05")
@pytest.mark.parametrize("start", ["earliest", json.dumps({"goes": {"0": -2}, "stays": {"0": -2}})])
def test_a_repeated_first_batch_does_without_records_that_retention_has_deleted(
    fake: FakeBroker, reader: Make, start: str
) -> None:
    stream, again = (reader(startingOffsets=start) for _ in range(2))
    end = stream.latestOffset(stream.initialOffset())
    fake.produce("goes", 0, [(None, b"value")] * 3)
    fake.trim("goes", 0, 3)
    assert ranges_of_first(again, end) == [OffsetRange("stays", 0, 0, 1)]
    assert again.latestOffset(end)["goes"] == {"0": 4}


@pytest.mark.proves("S-05")
def test_starting_offsets_need_no_partition_that_is_added_before_the_first_batch(
    fake: FakeBroker, reader: Make
) -> None:
    start = {"startingOffsets": json.dumps({"goes": {"0": 1}, "stays": {"0": 0}})}
    stream = reader(**start)
    initial = stream.initialOffset()
    fake.add_partitions("goes", 2)
    fake.produce("goes", 1, [(None, b"value")])
    end = stream.latestOffset(initial)
    first = [OffsetRange("goes", 1, 0, 1), OffsetRange("stays", 0, 0, 1)]
    assert ranges_of_first(stream, end) == ranges_of_first(reader(**start), end) == first
    new, old = reader(**start), reader(**start)
    with pytest.raises(PlanError, match=r"start has no offset .*topic=goes, partition=1"):
        new.latestOffset(new.initialOffset())
    old.latestOffset()  # as PySpark 4.0 and 4.1 start
    with pytest.raises(PlanError, match=r"start has no offset .*topic=goes, partition=1"):
        old.initialOffset()


@pytest.mark.proves("B-40")
def test_a_repeated_first_batch_from_an_offset_beyond_the_log_stays_a_loss(fake: FakeBroker, reader: Make) -> None:
    """PySpark 4.0 and 4.1 log the end before the start is known."""
    start = {"startingOffsets": json.dumps({"goes": {"0": 9}, "stays": {"0": 0}})}
    end = reader(**start).latestOffset()
    for _ in range(2):
        with pytest.raises(DataLossError, match=r"ends at 1.*topic=goes, partition=0, offset=9"):
            ranges_of_first(reader(**start), end)


@pytest.mark.proves("B-40")
def test_a_batch_behind_the_first_one_is_checked_as_ever(fake: FakeBroker, reader: Make) -> None:
    stream = reader(startingOffsets="latest")
    end = stream.latestOffset(stream.initialOffset())
    stream.partitions(stream.initialOffset(), end)
    fake.truncate("goes", 0, 0)
    for one in (stream, reader(startingOffsets="latest")):
        with pytest.raises(DataLossError, match=r"ends at 0.*topic=goes, partition=0, offset=1"):
            one.partitions(end, {"goes": {"0": 0}, "stays": {"0": 1}})


def test_an_available_now_run_does_not_begin_behind_its_target(fake: FakeBroker, reader: Make) -> None:
    """Spark requests the end of the run before the start of the stream; records may come between."""
    stream = reader(startingOffsets="latest")
    stream.prepareForTriggerAvailableNow()
    fake.produce("goes", 0, [(None, b"value")])
    begin = stream.initialOffset()
    assert begin == stream.latestOffset(begin) == {"goes": {"0": 1}, "stays": {"0": 1}}
    again = reader(startingOffsets="latest")
    assert again.latestOffset(begin) == {"goes": {"0": 2}, "stays": {"0": 1}}
    misspelt = reader(subscribe="goes,misspelt", failOnDataLoss="false")
    misspelt.prepareForTriggerAvailableNow()
    with pytest.raises(KohortError, match="no such topic"):
        misspelt.initialOffset()


@pytest.mark.proves("B-39")
def test_a_topic_that_goes_during_an_available_now_run_is_noticed_in_it(fake: FakeBroker, reader: Make) -> None:
    group = {"kafka.group.id": "g"}
    stream, tolerant = reader(**group), reader(**group, failOnDataLoss="false")
    for one in (stream, tolerant):
        one.prepareForTriggerAvailableNow()
    before = tolerant.latestOffset(tolerant.initialOffset())
    fake.delete_topic("goes")
    assert tolerant.latestOffset(before) == {"stays": {"0": 1}}
    with pytest.raises(DataLossError, match=r"partitions of the stream were deleted \(topic=goes, partition=0\)"):
        stream.latestOffset(before)
    reported = {place: stored.offset for place, stored in fake.group("g").offsets.items()}
    assert reported == {TopicPartition("stays", 0): 1}


@pytest.mark.proves("B-27")
def test_a_coordinator_that_is_away_does_not_end_a_stream_whose_group_it_is(
    fake: FakeBroker, reader: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kohort.spark.stream.COMMIT_S", 0.2)
    stream = reader(**{"kafka.group.id": "g"})
    before = stream.latestOffset(stream.initialOffset())
    away = fake.control("OffsetCommit", lambda _call: Close())
    fake.produce("stays", 0, [(None, b"value")])
    after = stream.latestOffset(before)
    assert after == {"goes": {"0": 1}, "stays": {"0": 2}}
    assert "the stream's offsets are not committed yet" in caplog.text
    assert not fake.group("g").offsets
    away.remove()
    assert stream.latestOffset(after) == after
    assert {place.topic: stored.offset for place, stored in fake.group("g").offsets.items()} == {"goes": 1, "stays": 2}


@pytest.mark.proves("B-39")
@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_is_deleted_before_its_offsets_are_committed_does_not_end_a_stream(
    fake: FakeBroker, reader: Make, caplog: pytest.LogCaptureFixture, again: bool
) -> None:
    def comes_back(_call: object) -> None:
        control.remove()
        fake.create_topic("goes")

    stream = reader(**{"kafka.group.id": "g"}, failOnDataLoss="false")
    before = stream.latestOffset(stream.initialOffset())
    fake.produce("goes", 0, [(None, b"value")])
    end = stream.latestOffset(before)
    fake.delete_topic("goes")
    if again:
        control = fake.control("Metadata", comes_back)
    stream.commit(end)
    assert "the stream's offsets are not committed yet" in caplog.text
    left = {"stays": {"0": 1}}
    assert stream.latestOffset(end) == left
    assert {place.topic: stored.offset for place, stored in fake.group("g").offsets.items()} == {"stays": 1}


@pytest.mark.proves("B-27")
@pytest.mark.parametrize("way", [{}, {"subscribe": "goes"}])
def test_brokers_that_say_nothing_for_a_while_do_not_end_a_stream(
    fake: FakeBroker, reader: Make, way: dict[str, str]
) -> None:
    """As they do in a rolling restart, for longer than a topic that was just made may be unknown."""
    stream = reader(**way)
    before = stream.latestOffset(stream.initialOffset())
    silence = Hold()
    fake.control("Metadata", lambda _call: silence)
    fake.produce("goes", 0, [(None, b"value")])
    threading.Timer(SILENCE_S, silence.release).start()
    assert stream.latestOffset(before) == before | {"goes": {"0": 2}}
    assert silence.reached.is_set()
