"""A stream whose driver is a member: owned partitions are read, revoked ones finished first, lost ones not
committed.

The streams are called here as Spark calls them, and read as its executors would; `test_group_apps.py` is on Spark
itself.
"""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark gives a stream its position since 4.2")

from kohort import Admin, Consumer, TopicPartition
from kohort.coordinator_client import (
    Assigned,
    Lost,
    RebalanceCause,
    RebalanceReason,
    Revoked,
    TopicRecreated,
    UnknownTopic,
)
from kohort.coordinator_client.offsets import offset_lookups
from kohort.network import metadata_updater
from kohort.spark import DataLossError, OffsetRange, OptionError
from kohort.spark.group_member import MARK, NOTHING, SparkGroupMember, TakenRecords
from kohort.spark.group_stream import GroupStreamReader, logged_batch, unlogged_batch
from kohort.spark.options import SourceOptions
from kohort.spark.reader import read_ranges
from kohort.spark.source import SCHEMA
from kohort.spark.stream import ReadAllAvailable, StreamReader
from kohort.testing.fake_broker import FakeBroker, Hold
from tests.spark.sent import varied
from tests.support.broker_selection import SelectedBroker

Make = Callable[..., "App"]
Seen = tuple[int, int, int]
"""(generation, partition, offset)."""


class App:
    """A Spark application as its stream sees it: get the end, read up to it, get the next end."""

    def __init__(self, options: SourceOptions, at: Any = None) -> None:
        self.stream = GroupStreamReader(options, SCHEMA)
        self.options = options
        self.at = self.stream.initialOffset() if at is None else at
        self.seen: list[Seen] = []

    def plan(self) -> Any:
        """The next batch, once there is one."""
        until = time.monotonic() + 120
        while time.monotonic() < until:
            end = self.stream.latestOffset(self.at)
            if end != self.at:
                return end
            time.sleep(0.02)
        raise AssertionError("nothing to read")

    def execute(self, end: Any) -> None:
        for piece in self.stream.partitions(self.at, end):
            for columns in read_ranges(piece.value, self.options.connect):
                self.seen += [(end["generation"], columns.partition, offset) for offset in columns.offsets]
        self.at = end

    def step(self) -> None:
        """One trigger."""
        end = self.stream.latestOffset(self.at)
        if end != self.at:
            self.execute(end)

    def live(self, until: threading.Event) -> None:
        while not until.is_set():
            self.step()
            time.sleep(0.02)


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def app(broker: SelectedBroker, topic: str, group: str) -> Iterator[Make]:
    """`app(option=...)` is an application that reads `topic` as a member of `group`."""
    made: list[App] = []

    def make(at: Any = None, **given: str) -> App:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": topic,
            "group": group,
            "startingOffsets": "earliest",
            "kafka.session.timeout.ms": "6000",
            "kafka.heartbeat.interval.ms": "300",
        }
        made.append(App(SourceOptions.of(options | given, streaming=True), at))
        return made[-1]

    yield make
    for one in made:
        one.stream.stop()


@pytest.fixture
def committed(broker: SelectedBroker, topic: str, group: str) -> Callable[[], list[int | None]]:
    def read() -> list[int | None]:
        with Consumer(broker.bootstrap, group=group) as consumer:
            found = consumer.committed([TopicPartition(topic, number) for number in range(3)])
        return [None if stored is None else stored.offset for stored in found.values()]

    return read


def test_a_batch_and_its_offset_are_the_same_thing() -> None:
    taken = TakenRecords(3, (OffsetRange("a", 0, 5, 9), OffsetRange("b", 1, 0, 2)))
    assert logged_batch(taken) == {"generation": 3, "ranges": {"a": {"0": [5, 9]}, "b": {"1": [0, 2]}}}
    assert unlogged_batch(logged_batch(taken)) == taken
    assert unlogged_batch(logged_batch(NOTHING)) == NOTHING


def test_a_checkpoint_of_the_other_kind_of_stream_is_refused() -> None:
    """As when `group` is added to a stream's options, or taken out of them."""
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    alone = StreamReader(SourceOptions.of(given, streaming=True), SCHEMA)
    member = GroupStreamReader(SourceOptions.of(given | {"group": "g"}, streaming=True), SCHEMA)
    plain, batch = {"t": {"0": 5}}, logged_batch(TakenRecords(3, (OffsetRange("t", 0, 5, 9),)))
    for stream, offset, says in ((alone, batch, "with group"), (member, plain, "without group")):
        with pytest.raises(OptionError, match=f"written by a stream {says}"):
            stream.partitions(offset, offset)
        with pytest.raises(OptionError, match=f"written by a stream {says}"):
            stream.latestOffset(offset)


@pytest.mark.broker
def test_alone_it_reads_everything_and_commits_what_is_finished(
    app: Make, topic: str, send: Callable[..., None], committed: Callable[[], list[int | None]]
) -> None:
    send(topic, varied(30))
    one = app(maxOffsetsPerTrigger="15")
    first = one.plan()
    assert first == {"generation": 1, "ranges": {topic: {"0": [0, 5], "1": [0, 5], "2": [0, 5]}}}
    one.execute(first)
    assert committed() == [0, 0, 0]  # where it began; the batch counts when Spark requests more
    second = one.plan()
    assert committed() == [5, 5, 5]
    one.execute(second)
    assert one.stream.latestOffset(one.at) == one.at
    assert committed() == [10, 10, 10]
    assert sorted(one.seen) == [(1, partition, offset) for partition in range(3) for offset in range(10)]
    again = tuple(OffsetRange(topic, number, 0, 5) for number in range(3))
    assert [piece.value for piece in one.stream.partitions(second, first)] == [again]  # run again, it is the same


@pytest.mark.broker
def test_a_run_that_takes_what_is_there_now_ends_and_commits(
    app: Make, topic: str, send: Callable[..., None], committed: Callable[[], list[int | None]]
) -> None:
    send(topic, varied(30))
    one = app()
    one.stream.prepareForTriggerAvailableNow()
    send(topic, varied(30))
    one.execute(one.plan())
    assert one.stream.latestOffset(one.at) == one.at
    one.stream.stop()
    assert committed() == [10, 10, 10]
    assert len(one.seen) == 30


@pytest.mark.proves("S-01")
def test_a_run_of_one_batch_waits_for_its_assignment(group: str) -> None:
    """Trigger.Once requests one batch, without a limit."""
    with FakeBroker(topics={"t": 1}) as fake:
        fake.produce("t", 0, [(None, b"value")] * 3)
        there = {"kafka.bootstrap.servers": fake.bootstrap, "subscribe": "t", "group": group}
        one = App(SourceOptions.of(there | {"startingOffsets": "earliest"}, streaming=True))
        try:
            end = one.stream.latestOffset(one.at, ReadAllAvailable())
        finally:
            one.stream.stop()
    assert end["ranges"] == {"t": {"0": [0, 3]}}


@pytest.mark.proves("S-01")
def test_a_run_of_what_is_there_now_waits_for_a_rebalance(group: str) -> None:
    """Spark ends the run at a trigger that reads nothing. A rebalance may begin under any batch."""
    with FakeBroker(topics={"t": 2}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "subscribe": "t", "group": group}
        given = there | {"startingOffsets": "earliest", "kafka.heartbeat.interval.ms": "100"}
        options = SourceOptions.of(given | {"maxOffsetsPerTrigger": "2"}, streaming=True)
        for partition in range(2):
            fake.produce("t", partition, [(None, b"value")] * 3)
        one = App(options)
        try:
            one.stream.prepareForTriggerAvailableNow()
            one.execute(one.stream.latestOffset(one.at))
            member = one.stream._member
            assert member is not None
            held, ends = Hold(), list[Any]()
            fake.control("SyncGroup", lambda _call: held)
            other = SparkGroupMember(options)
            try:
                until = time.monotonic() + 60
                while not all(place.leaving for place in member._held.values()):  # the rebalance waits for the batch
                    assert time.monotonic() < until
                    time.sleep(0.02)
                trigger = threading.Thread(target=lambda: ends.append(one.stream.latestOffset(one.at)))
                trigger.start()
                assert held.reached.wait(60)
                trigger.join(1.0)
                held.release()
                trigger.join()
                (end,) = ends
                assert sum(map(len, unlogged_batch(end).ranges)) == 2
                assert unlogged_batch(end).generation > unlogged_batch(one.at).generation
            finally:
                other.close()
        finally:
            one.stream.stop()


@pytest.mark.broker
def test_a_restart_goes_on_behind_what_was_finished_though_its_commit_was_cut_off(
    app: Make, topic: str, send: Callable[..., None], committed: Callable[[], list[int | None]]
) -> None:
    send(topic, varied(30))
    one = app(maxOffsetsPerTrigger="15")
    one.execute(one.plan())
    one.stream.stop()  # Spark has finished the batch, and was stopped before its next request
    assert committed() == [0, 0, 0]
    again = app(at=one.at)
    again.execute(again.plan())
    assert sorted((partition, offset) for _, partition, offset in one.seen + again.seen) == [
        (partition, offset) for partition in range(3) for offset in range(10)
    ]


@pytest.mark.proves("S-01")
def test_a_restart_starts_at_an_offset_that_was_reset(group: str) -> None:
    """Also at the start of the last finished batch, as if its commit were missing."""
    place = TopicPartition("t", 0)
    with FakeBroker(topics={"t": 1}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "subscribe": "t", "group": group}
        options = SourceOptions.of(there | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "5"}, streaming=True)
        fake.produce("t", 0, [(None, b"value")] * 12)
        one = App(options)
        try:
            for _ in range(2):
                one.execute(one.plan())
            one.stream.latestOffset(one.at)
        finally:
            one.stream.stop()
        assert fake.group(group).offsets[place].offset == 10
        with Admin(fake.bootstrap) as admin:
            admin.reset_offsets(group, {place: 5})
        again = App(options, one.at)
        try:
            assert again.plan()["ranges"] == {"t": {"0": [5, 10]}}
        finally:
            again.stream.stop()


@pytest.mark.proves("S-01")
def test_a_batch_that_began_at_an_offset_of_another_program_is_not_read_again(group: str) -> None:
    place = TopicPartition("t", 0)
    with FakeBroker(topics={"t": 1}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "subscribe": "t", "group": group}
        options = SourceOptions.of(there | {"maxOffsetsPerTrigger": "5"}, streaming=True)
        fake.produce("t", 0, [(None, b"value")] * 17)
        at, planned = None, []
        for reset_to in (2, None, 7, None, 1, None):
            if reset_to is not None:
                with Admin(fake.bootstrap) as admin:
                    admin.reset_offsets(group, {place: reset_to})
            one = App(options, at)
            try:
                one.execute(one.plan())
            finally:
                one.stream.stop()  # the batch is finished, and has no commit
            at = one.at
            planned.append(at["ranges"]["t"]["0"])
        assert planned == [[2, 7], [7, 12], [7, 12], [12, 17], [1, 6], [6, 11]]


@pytest.mark.broker
def test_a_partition_that_goes_is_let_go_when_its_batch_is_done(
    app: Make,
    broker: SelectedBroker,
    topic: str,
    group: str,
    send: Callable[..., None],
    committed: Callable[[], list[int | None]],
) -> None:
    send(topic, varied(30))
    one, two = app(), app()
    end = one.plan()
    over = threading.Event()
    other = threading.Thread(target=two.live, args=(over,))
    other.start()
    try:
        assert not over.wait(1.5)
        assert two.seen == []  # the rebalance waits for the batch
        one.execute(end)
        one.step()
        assert committed() == [10, 10, 10]
        with Consumer(broker.bootstrap, group=group) as consumer:
            stored = consumer.committed([TopicPartition(topic, number) for number in range(3)])
        assert {one.metadata for one in stored.values() if one is not None} == {MARK}  # also by the revocation
        send(topic, varied(30))
        until = time.monotonic() + 120
        while len(one.seen) + len(two.seen) < 60 and time.monotonic() < until:
            one.step()
            time.sleep(0.02)
    finally:
        over.set()
        other.join()
    places = Counter((partition, offset) for _, partition, offset in one.seen + two.seen)
    assert set(places.values()) == {1}
    assert len(places) == 60
    assert {generation for generation, *_ in two.seen}.isdisjoint({1})
    assert two.seen


@pytest.mark.broker
def test_what_is_lost_under_a_batch_is_not_committed(
    broker: SelectedBroker, topic: str, group: str, send: Callable[..., None], committed: Callable[[], list[int | None]]
) -> None:
    """A member that the group has given up must not move offsets that belong to another by now."""
    send(topic, varied(30))
    given = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "group": group,
        "startingOffsets": "earliest",
    }
    member = SparkGroupMember(SourceOptions.of(given, streaming=True))
    try:
        assert member.wait_for_assignment(60)
        member.finish(60)
        taken = member.take(lambda positions: dict.fromkeys(positions, 10))
        assert len(taken.ranges) == 3
        places = frozenset(one.place for one in taken.ranges)
        member.on_lost(Lost(places, taken.generation, RebalanceCause(RebalanceReason.UNKNOWN_MEMBER)))
        member.finish(5.0)
        assert committed() == [0, 0, 0]
        assert member.take(lambda positions: dict.fromkeys(positions, 10)) == NOTHING
    finally:
        member.close()


@pytest.mark.broker
def test_a_batch_that_takes_too_long_is_not_waited_for_and_not_committed(
    broker: SelectedBroker,
    topic: str,
    group: str,
    send: Callable[..., None],
    committed: Callable[[], list[int | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SparkGroupMember, "wait_s", 0.05)
    send(topic, varied(30))
    there = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    member = SparkGroupMember(
        SourceOptions.of({**there, "group": group, "startingOffsets": "earliest"}, streaming=True)
    )
    try:
        assert member.wait_for_assignment(60)
        member.finish(60)
        taken = member.take(lambda positions: dict.fromkeys(positions, 10))
        two = frozenset(one.place for one in taken.ranges[:2])
        everything = frozenset(one.place for one in taken.ranges)
        response = member.on_revoked(
            Revoked(two, everything, taken.generation, RebalanceCause(RebalanceReason.REBALANCE_IN_PROGRESS))
        )
        assert response == {}  # the next owner reads the batch again, from the group's offset
        member.finish(60)
        assert committed() == [0, 0, 10]
    finally:
        member.close()


@pytest.mark.proves("B-38", "B-40")
def test_what_comes_after_a_loss_that_is_allowed_is_read(group: str) -> None:
    with FakeBroker(topics={"t": 1}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "subscribe": "t", "group": group}
        given = {**there, "startingOffsets": "earliest", "failOnDataLoss": "false"}
        one = App(SourceOptions.of(given, streaming=True))
        produce = partial(fake.produce, "t", 0, [(None, b"value")])
        try:
            for _ in range(10):
                produce()
            one.execute(one.plan())
            one.step()
            fake.truncate("t", 0, 4)
            one.step()  # finds out
            for _ in range(3):
                produce()
            one.execute(one.plan())
            one.step()
            assert [offset for *_, offset in one.seen] == [*range(10), 4, 5, 6]
            assert fake.group(group).offsets[TopicPartition("t", 0)].offset == 7
        finally:
            one.stream.stop()


@pytest.mark.proves("B-39")
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("way", [{"subscribe": "goes,stays"}, {"subscribePattern": "goes|stays"}])
def test_a_topic_that_is_deleted_is_a_loss_or_forgotten(
    group: str, way: dict[str, str], finished: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a batch was read of it that is not committed yet."""
    monkeypatch.setattr(offset_lookups, "UNKNOWN_TOPIC_GRACE_S", 0.1)
    with FakeBroker(topics={"goes": 1, "stays": 1}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "kafka.default.api.timeout.ms": "3000"}
        given = there | {"group": group, "startingOffsets": "earliest"} | way
        for loss in ("true", "false"):
            one = App(SourceOptions.of(given | {"failOnDataLoss": loss}, streaming=True))
            try:
                for topic in ("goes", "stays"):
                    fake.produce(topic, 0, [(None, b"value")] * 3)
                one.execute(one.plan())
                if finished:
                    one.step()
                fake.delete_topic("goes")
                if loss == "true":
                    with pytest.raises(DataLossError, match=r"was deleted \(topic=goes\)") as caught:
                        one.step()
                    assert caught.value.condition == "KAFKA_DATA_LOSS.PARTITIONS_DELETED"
                    began = time.monotonic()
                    one.stream.stop()
                    assert time.monotonic() - began < 10.0
                    fake.create_topic("goes")
                    continue
                one.step()
                fake.produce("stays", 0, [(None, b"value")] * 2)
                end = one.plan()
                assert end["ranges"] == {"stays": {"0": [6, 8]}}
                one.execute(end)
                fake.create_topic("goes")
                fake.produce("goes", 0, [(None, b"value")] * 2)
                end = one.plan()
                assert end["ranges"] == {"goes": {"0": [0, 2]}}
                one.execute(end)
                one.step()
                reported = {place: stored.offset for place, stored in fake.group(group).offsets.items()}
                assert reported == {TopicPartition("goes", 0): 2, TopicPartition("stays", 0): 8}
            finally:
                one.stream.stop()


@pytest.mark.proves("B-39")
@pytest.mark.parametrize("is_known", [False, True], ids=["to the stream", "to the member"])
@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_topic_that_is_created_again_is_a_loss_or_read_from_its_beginning(
    group: str, loss: str, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its log has reached the position again, and if the member's own metadata has the new topic first."""
    place = TopicPartition("goes", 0)
    with FakeBroker(topics={"goes": 1, "stays": 1}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "subscribe": "goes,stays", "group": group}
        given = there | {"startingOffsets": "earliest", "failOnDataLoss": loss}
        one = App(SourceOptions.of(given | {"kafka.metadata.max.age.ms": "100"} if is_known else given, streaming=True))
        try:
            for _ in range(3):
                fake.produce("goes", 0, [(None, b"old")])
            one.execute(one.plan())
            one.step()
            raised = poll_that_raises(one, TopicRecreated, monkeypatch)
            if not is_known:  # the member would lose the partition if it saw that there is no topic
                fake.delete_topic("goes")
            fake.create_topic("goes")
            for _ in range(5):
                fake.produce("goes", 0, [(None, b"new")])
            if is_known:
                assert raised.wait(60)
            if loss == "true":
                with pytest.raises((DataLossError, TopicRecreated) if is_known else DataLossError):
                    one.step()
                return
            assert one.stream.latestOffset(one.at) == one.at
            assert fake.group(group).offsets[place].offset == 0
            one.execute(one.plan())
            one.step()
            assert [offset for *_, offset in one.seen] == [0, 1, 2, 0, 1, 2, 3, 4]
            assert fake.group(group).offsets[place].offset == 5
        finally:
            one.stream.stop()


@pytest.mark.proves("B-39")
def test_a_topic_that_is_created_again_under_the_first_batch_is_a_loss(group: str) -> None:
    with FakeBroker(topics={"t": 1}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "subscribe": "t", "group": group}
        fake.produce("t", 0, [(None, b"old")] * 3)
        one = App(SourceOptions.of(there | {"startingOffsets": "earliest"}, streaming=True))
        try:
            one.stream.prepareForTriggerAvailableNow()  # the first request waits for the assignment
            one.execute(one.stream.latestOffset(one.at))
            fake.delete_topic("t")
            fake.create_topic("t")
            fake.produce("t", 0, [(None, b"new")] * 3)
            with pytest.raises(DataLossError, match=r"was deleted \(topic=t\)"):
                one.step()
        finally:
            one.stream.stop()


@pytest.mark.proves("B-39")
def test_a_topic_that_is_created_again_in_a_rebalance_is_a_loss(group: str) -> None:
    with FakeBroker(topics={"t": 2}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "subscribe": "t", "group": group}
        given = there | {"startingOffsets": "earliest", "kafka.heartbeat.interval.ms": "100"}
        options = SourceOptions.of(given, streaming=True)
        fake.produce("t", 0, [(None, b"old")] * 3)
        one = App(options)
        try:
            one.execute(one.plan())
            held = Hold()
            control = fake.control("SyncGroup", lambda _call: held)
            other = SparkGroupMember(options)
            try:
                until = time.monotonic() + 60
                while not held.reached.is_set():  # each trigger finishes a batch, which the rebalance may wait for
                    assert time.monotonic() < until
                    one.step()
                one.step()  # no partition is owned
                fake.delete_topic("t")
                fake.create_topic("t", 2)
                fake.produce("t", 0, [(None, b"new")] * 5)
                control.remove()
                held.release()
                with pytest.raises(DataLossError, match=r"was deleted \(topic=t\)"):
                    one.plan()
            finally:
                other.close()
        finally:
            one.stream.stop()


@pytest.mark.proves("S-01")
@pytest.mark.parametrize("another", [False, True], ids=["topic created again", "group"])
def test_equal_ranges_of_another_topic_or_group_are_a_new_batch(group: str, another: bool) -> None:
    """Spark runs no batch for an offset that equals the last one."""
    with FakeBroker(topics={"t": 1}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "subscribe": "t", "failOnDataLoss": "false"}
        given = there | {"startingOffsets": "earliest", "group": group}

        def create_again() -> None:
            fake.delete_topic("t")
            fake.create_topic("t")
            fake.produce("t", 0, [(None, b"value")] * 3)

        create_again()
        one = App(SourceOptions.of(given, streaming=True))
        try:
            one.execute(one.plan())
            one.step()
            if another:
                one.stream.stop()
                one = App(SourceOptions.of(given | {"group": f"{group}-2"}, streaming=True), one.at)
            else:
                create_again()
                one.step()  # finds out
            for _ in range(2):  # the second batch has the ranges of both earlier ones
                one.stream.prepareForTriggerAvailableNow()  # it waits for the assignment
                end = one.stream.latestOffset(one.at)
                assert end != one.at
                assert unlogged_batch(end) == unlogged_batch(one.at)
                one.execute(end)
                one.step()
                create_again()
                one.step()
        finally:
            one.stream.stop()


@pytest.mark.proves("B-39")
def test_a_member_stays_though_a_topic_that_may_be_lost_is_deleted(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own metadata has the loss first. A topic that was never there is still an error."""
    for module in (offset_lookups, metadata_updater):
        monkeypatch.setattr(module, "UNKNOWN_TOPIC_GRACE_S", 0.1)
    with FakeBroker(topics={"goes": 1, "stays": 1}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "kafka.metadata.max.age.ms": "100", "group": group}
        given = there | {"startingOffsets": "earliest", "failOnDataLoss": "false"}
        misspelt = App(SourceOptions.of(given | {"subscribe": "misspelt"}, streaming=True))
        with pytest.raises(UnknownTopic, match="misspelt"):
            misspelt.step()
        misspelt.stream.stop()
        one = App(SourceOptions.of(given | {"subscribe": "goes,stays"}, streaming=True))
        try:
            for topic in ("goes", "stays"):
                fake.produce(topic, 0, [(None, b"value")] * 3)
            one.execute(one.plan())
            one.step()
            raised = poll_that_raises(one, UnknownTopic, monkeypatch)
            fake.delete_topic("goes")
            assert raised.wait(60)
            fake.produce("stays", 0, [(None, b"value")] * 2)
            assert one.plan()["ranges"] == {"stays": {"0": [3, 5]}}
        finally:
            one.stream.stop()


@pytest.mark.proves("B-39")
@pytest.mark.parametrize("available_now", [False, True])
def test_a_topic_that_goes_while_its_end_is_requested(group: str, available_now: bool) -> None:
    with FakeBroker(topics={"goes": 1, "stays": 1}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "kafka.default.api.timeout.ms": "2000", "group": group}
        given = there | {"subscribe": "goes,stays", "startingOffsets": "earliest", "failOnDataLoss": "false"}
        one = App(SourceOptions.of(given, streaming=True))

        def goes(_call: Any) -> None:
            control.remove()
            fake.delete_topic("goes")

        try:
            one.stream.latestOffset(one.at, ReadAllAvailable())  # waits for the assignment
            for topic in ("goes", "stays"):
                fake.produce(topic, 0, [(None, b"value")] * 3)
            control = fake.control("ListOffsets", goes)
            if available_now:
                one.stream.prepareForTriggerAvailableNow()
            assert one.plan()["ranges"] == {"stays": {"0": [0, 3]}}
        finally:
            one.stream.stop()


@pytest.mark.proves("B-39")
@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_topic_that_is_deleted_before_it_is_assigned(group: str, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkGroupMember, "_live", lambda _member: None)  # the test calls the hooks
    gone, stays = TopicPartition("gone", 0), TopicPartition("stays", 0)
    with FakeBroker(topics={"stays": 1}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "kafka.default.api.timeout.ms": "2000", "group": group}
        given = there | {"subscribe": "gone,stays", "startingOffsets": "earliest", "failOnDataLoss": loss}
        fake.produce("stays", 0, [(None, b"value")] * 3)
        fake.trim("stays", 0, 1)
        member = SparkGroupMember(SourceOptions.of(given, streaming=True))
        cause = RebalanceCause(RebalanceReason.REBALANCE_IN_PROGRESS)
        event = Assigned(frozenset({gone, stays}), frozenset({gone, stays}), 1, cause)
        with member._consumer:
            if loss == "true":
                with pytest.raises(UnknownTopic):
                    member.on_assigned(event)
            else:
                assert member.on_assigned(event) == {gone: 0, stays: 1}
                assert member.topics == {"gone", "stays"}


def poll_that_raises(one: App, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that is set when a poll of the member raises an error of this kind."""
    assert one.stream._member is not None
    consumer, begun, raised = one.stream._member._consumer, threading.Event(), threading.Event()
    poll = consumer.poll

    def watched(timeout_s: float) -> Any:
        begun.set()
        try:
            return poll(timeout_s)
        except kind:
            raised.set()
            raise

    monkeypatch.setattr(consumer, "poll", watched)
    assert begun.wait(60)  # the poll under way is not watched
    return raised


@pytest.mark.broker
def test_two_applications_and_a_consumer_share_a_group_record_by_record(
    app: Make, broker: SelectedBroker, make_topic: Callable[..., str], group: str, send: Callable[..., None]
) -> None:
    topic = make_topic(6, config={"retention.ms": "-1"})
    over = threading.Event()
    plain: list[Seen] = []

    def consume() -> None:
        with Consumer(
            broker.bootstrap, group=group, auto_offset_reset="earliest", heartbeat_interval_ms=300
        ) as consumer:
            consumer.subscribe([topic])
            while not over.is_set():
                for columns in consumer.poll(0.2):
                    generation = consumer.group_metadata().generation
                    plain.extend((generation, columns.partition, offset) for offset in columns.offsets)
                    consumer.commit(columns.next_offsets)

    apps = [app(subscribe=topic, maxOffsetsPerTrigger="40") for _ in range(2)]
    threads = [threading.Thread(target=one.live, args=(over,)) for one in apps] + [threading.Thread(target=consume)]
    sent = 0
    try:
        for thread in threads:
            thread.start()
            send(topic, varied(240, partitions=6))
            sent += 240
            time.sleep(1.0)
        until = time.monotonic() + 120
        while time.monotonic() < until:
            if sum(len(one.seen) for one in apps) + len(plain) >= sent:
                if plain and all(one.seen for one in apps):
                    break
                send(topic, varied(240, partitions=6))  # until all have had a share
                sent += 240
            time.sleep(0.1)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    seen = [*apps[0].seen, *apps[1].seen, *plain]
    assert set(Counter(seen).values()) == {1}  # by one reader in each generation
    places = Counter((partition, offset) for _, partition, offset in seen)
    assert sorted(places) == [(partition, offset) for partition in range(6) for offset in range(sent // 6)]
    assert set(places.values()) == {1}  # and once altogether, since no application died
    assert all(one.seen for one in apps)
    assert plain


@pytest.mark.proves("B-39")
def test_a_run_of_what_is_there_now_does_without_a_topic_that_is_gone(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_lookups, "UNKNOWN_TOPIC_GRACE_S", 0.1)
    with FakeBroker(topics={"goes": 1, "stays": 1}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "kafka.default.api.timeout.ms": "3000"}
        given = there | {"group": group, "startingOffsets": "earliest", "subscribe": "goes,stays"}
        for topic in ("goes", "stays"):
            fake.produce(topic, 0, [(None, b"value")] * 3)
        first = App(SourceOptions.of(given, streaming=True))
        first.execute(first.plan())
        first.step()
        first.stream.stop()
        fake.delete_topic("goes")
        fake.produce("stays", 0, [(None, b"value")] * 2)
        strict = App(SourceOptions.of(given, streaming=True), first.at)
        with pytest.raises(UnknownTopic):
            strict.stream.prepareForTriggerAvailableNow()
        strict.stream.stop()
        one = App(SourceOptions.of(given | {"failOnDataLoss": "false"}, streaming=True), first.at)
        try:
            one.stream.prepareForTriggerAvailableNow()
            end = one.plan()
            assert end["ranges"] == {"stays": {"0": [3, 5]}}
        finally:
            one.stream.stop()


@pytest.mark.parametrize("closed_first", [True, False])
def test_a_planner_that_is_sent_sigterm_leaves_the_group(group: str, closed_first: bool) -> None:
    """Spark ends the process so at query.stop() and at spark.stop(). The end of the connection may come first."""
    before = signal.getsignal(signal.SIGTERM)
    with FakeBroker(topics={"t": 1}) as fake:
        there = {"kafka.bootstrap.servers": fake.bootstrap, "subscribe": "t", "group": group}
        fake.produce("t", 0, [(None, b"value")])
        one = App(SourceOptions.of(there | {"startingOffsets": "earliest"}, streaming=True))
        one.execute(one.plan())
        assert len(fake.group(group).members) == 1
        if not closed_first:
            with pytest.raises(SystemExit):
                signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        leaves = threading.Event()

        def once_more(_call: Any) -> None:
            leaves.set()
            signal.raise_signal(signal.SIGTERM)

        fake.control("LeaveGroup", once_more)
        one.stream.stop()
        assert leaves.is_set()
        assert not fake.group(group).members
    assert signal.getsignal(signal.SIGTERM) is before
