"""A topic is deleted while a group reads it and another: the group goes on with the other, and reports what it dropped.

Before, a commit that the coordinator refused with UNKNOWN_TOPIC_OR_PARTITION was retried for 30 s, and the rebalance
waited for it (as in KAFKA-16224 and KAFKA-20959).
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from kohort.admin import Admin
from kohort.common import TopicPartition
from kohort.coordinator_client import (
    AuthorizationFailed,
    Consumer,
    RebalanceHooks,
    Revoked,
    TopicRecreated,
    UnknownTopic,
)
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.notices import Notice
from kohort.protocol.apis.offset_commit import OffsetCommitRequest
from kohort.testing.fake_broker import Alter, Call, FakeBroker
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until, read, refuse_commits, wait_until
from tests.coordinator_client.group.test_consumer_group import PROTOCOLS
from tests.support.broker_selection import SelectedBroker

SILENCE_S = 3.0  # once a response to the commit took 30 s; a heartbeat interval is 1 s
SAVES = ("auto-commit", "on_revoked")


class Saves(RebalanceHooks):
    """Hooks that have what was read committed when it is revoked."""

    def __init__(self) -> None:
        self.read: dict[TopicPartition, int] = {}

    def on_revoked(self, event: Revoked) -> Mapping[TopicPartition, int]:
        return {one: self.read[one] for one in event.partitions if one in self.read}


class Member:
    """One member on a thread, which notes when records of each partition came."""

    def __init__(self, bootstrap: str, group: str, pattern: str, protocol: GroupProtocol, saves: str) -> None:
        by_range: dict[str, Any] = {"assignors": ["range"]} if protocol == "classic" else {"remote_assignor": "range"}
        self.consumer = Consumer(
            bootstrap,
            group=group,
            protocol=protocol,
            auto_offset_reset="earliest",
            metadata_max_age_ms=1000,
            heartbeat_interval_ms=1000,
            fetch_max_wait_ms=100,
            enable_auto_commit=saves == "auto-commit",
            **by_range,  # each reads both topics
        )
        self.hooks = Saves()
        self.topics: set[str] = set()
        self.came: dict[TopicPartition, list[float]] = {}
        self.stopped = threading.Event()
        self.failed: list[Exception] = []
        self._keeps_offsets = saves == "on_revoked"
        self._pattern = pattern
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            hooks = self.hooks if self._keeps_offsets else RebalanceHooks()
            self.consumer.subscribe(pattern=self._pattern, hooks=hooks)
            while not self.stopped.is_set():
                self.topics = {partition.topic for partition in self.consumer.assignment}
                try:
                    slices = self.consumer.poll(0.1)
                except UnknownTopic:
                    continue
                for columns in slices:
                    partition = TopicPartition(columns.topic, columns.partition)
                    self.came.setdefault(partition, []).append(time.monotonic())
                    self.hooks.read[partition] = columns.next_offset
            self.consumer.close(PATIENCE_S)
        except Exception as error:
            self.failed.append(error)

    def stop(self) -> None:
        self.stopped.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self.failed == []


def longest_silence(members: list[Member], topic: str, began: float, ended: float) -> float:
    """The longest time in which no member got a record of one partition of the topic."""
    times: dict[TopicPartition, list[float]] = {}
    for member in members:
        for partition, came in list(member.came.items()):
            if partition.topic == topic:
                times.setdefault(partition, []).extend(came)
    longest = 0.0
    for came in times.values():
        points = [began, *sorted(one for one in came if began < one < ended), ended]
        longest = max(longest, *(after - before for before, after in pairwise(points)))
    assert len(times) == 2
    return longest


def newest(members: list[Member], partition: TopicPartition) -> float:
    """The time at which the last record of a partition came."""
    return max(member.came.get(partition, [0.0])[-1] for member in members)


def read_while_deleted(
    bootstrap: str,
    protocol: GroupProtocol,
    saves: str,
    prefix: str,
    write: Callable[[str, int], object],
    delete: Callable[[], None],
) -> float:
    """Two members read both topics, and each partition is written to all the time. Returns the longest gap of the
    topic that stays."""
    keep, gone = f"{prefix}-keep", f"{prefix}-gone"
    deleted, done = threading.Event(), threading.Event()

    def writes() -> None:
        while not done.wait(0.05):
            for number in (0, 1):
                write(keep, number)
                if not deleted.is_set():
                    write(gone, number)

    writer = threading.Thread(target=writes)
    with ExitStack() as stack:
        writer.start()
        stack.callback(writer.join)
        stack.callback(done.set)
        members = []
        for _ in range(2):
            members.append(Member(bootstrap, f"{prefix}-group", f"{prefix}-.*", protocol, saves))
            stack.callback(members[-1].stop)
        wait_until(lambda: all(one.topics == {keep, gone} for one in members))
        for member in members:  # so that each has something of the topic to save
            wait_until(lambda member=member: any(one.topic == gone for one in member.came))  # type: ignore[misc]
        began = time.monotonic()
        deleted.set()
        delete()
        wait_until(lambda: all(one.topics == {keep} for one in members))
        settled = time.monotonic()
        wait_until(lambda: all(newest(members, TopicPartition(keep, number)) > settled for number in (0, 1)))
        silence = longest_silence(members, keep, began, time.monotonic())
    notices = [notice for member in members for notice in member.consumer._session.core.notices]
    assert "commit_late" not in {notice.kind for notice in notices}
    dropped = [notice.text for notice in notices if notice.kind == "commit_dropped"]
    assert any(f"{gone}: " in text for text in dropped), notices
    return silence


@pytest.mark.parametrize("saves", SAVES)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_other_topic_is_read_on(protocol: GroupProtocol, saves: str) -> None:
    with FakeBroker(topics={"a-keep": 2, "a-gone": 2}) as fake:
        silence = read_while_deleted(
            fake.bootstrap,
            protocol,
            saves,
            "a",
            lambda topic, number: fake.produce(topic, number, [(None, b"value")]),
            lambda: fake.delete_topic("a-gone"),
        )
    assert silence < SILENCE_S


@pytest.mark.broker
@pytest.mark.parametrize("saves", SAVES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_other_topic_of_a_real_broker_is_read_on(
    protocol: GroupProtocol, saves: str, broker: SelectedBroker, unique: Callable[[str], str]
) -> None:
    from confluent_kafka import Producer

    prefix = unique("d")
    for name in ("keep", "gone"):
        create_topic(broker.bootstrap, f"{prefix}-{name}", partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1, "message.timeout.ms": 2000})

    def write(topic: str, number: int) -> None:
        producer.produce(topic, b"value", partition=number)
        producer.poll(0)

    def delete() -> None:
        with Admin(broker.bootstrap) as admin:
            admin.delete_topics(f"{prefix}-gone")

    silence = read_while_deleted(broker.bootstrap, protocol, saves, prefix, write, delete)
    producer.flush(10)
    assert silence < SILENCE_S


# --- commits of a consumer that assigns by hand


T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)


def refuse(fake: FakeBroker, code: int, name: str) -> Callable[[Call], Alter | None]:
    """A control for OffsetCommit: partitions of this topic are refused."""
    ids = {topic_id_of(fake, name)}

    def refused(call: Call) -> Alter | None:
        assert isinstance(call.request, OffsetCommitRequest)
        return refuse_commits(code, ids) if ids & {topic.topic_id for topic in call.request.topics} else None

    return refused


def topic_id_of(fake: FakeBroker, name: str) -> UUID:
    with Consumer(fake.bootstrap) as consumer:
        consumer.partitions_for(name)
        return consumer.topic_id(name)


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 1, "u": 1}) as one:
        for topic in ("t", "u"):
            one.produce(topic, 0, [(None, b"value")] * 5)
        yield one


def commits(call: Call, offset: int) -> bool:
    assert isinstance(call.request, OffsetCommitRequest)
    return any(one.committed_offset == offset for topic in call.request.topics for one in topic.partitions)


def reader(fake: FakeBroker, **settings: Any) -> Consumer:
    return Consumer(fake.bootstrap, group="group", auto_offset_reset="earliest", fetch_max_wait_ms=50, **settings)


def test_a_commit_is_not_kept_waiting_by_one_of_a_deleted_topic_and_nor_is_close(fake: FakeBroker) -> None:
    errors: list[Exception | None] = []
    consumer = reader(fake)
    consumer.assign([T0, U0])
    read(consumer, 10)
    fake.delete_topic("u")
    consumer.commit_async({U0: 5}, lambda _offsets, error: errors.append(error))
    consumer.commit({T0: 5})
    consumer.close(PATIENCE_S)
    assert [type(error) for error in errors] == [UnknownTopic]
    assert fake.group("group").offsets[T0].offset == 5
    assert len(fake.calls_of("OffsetCommit")) < 10
    (dropped,) = [one for one in consumer._session.core.notices if one.kind == "commit_dropped"]
    assert "u: 0=5" in dropped.text


def test_an_offset_of_a_deleted_topic_is_not_stored_for_a_new_one_of_its_name(fake: FakeBroker) -> None:
    """The metadata of the consumer is older than the new topic. A paused consumer sends no Fetch that would show it."""
    with reader(fake) as consumer:
        consumer.assign([T0, U0])
        read(consumer, 10)
        consumer.pause()
        fake.delete_topic("u")
        fake.create_topic("u")
        with pytest.raises(TopicRecreated):
            consumer.commit({T0: 5, U0: 5})
    assert stored(fake) == {T0: 5}


@pytest.mark.broker
def test_a_broker_does_not_store_an_offset_of_a_deleted_topic_for_a_new_one(
    broker: SelectedBroker, make_topic: Callable[..., str]
) -> None:
    if broker.version < "4.1":
        pytest.skip("OffsetCommit has topic ids since 4.1")
    topic = make_topic(1)
    partition = TopicPartition(topic, 0)
    with Admin(broker.bootstrap) as admin, Consumer(broker.bootstrap, group=topic) as consumer:
        consumer.assign({partition: 0})
        assert consumer.position_of(partition).offset == 0
        consumer.pause()
        admin.delete_topics(topic)
        create_topic(broker.bootstrap, topic)
        with pytest.raises(TopicRecreated):
            consumer.commit({partition: 5})
        assert consumer.committed([partition]) == {partition: None}


def test_a_commit_of_one_partition_that_is_retried_keeps_no_other_waiting(fake: FakeBroker) -> None:
    control = fake.control("OffsetCommit", refuse(fake, 14, "u"))
    with reader(fake, default_api_timeout_ms=5_000) as consumer:
        consumer.assign([T0, U0])
        read(consumer, 10)
        consumer.commit_async({U0: 5})
        consumer.commit({T0: 5}, timeout_s=PATIENCE_S)
        assert all(entry.outcome == "" for entry in consumer.commit_log())  # that of U0 is retried still
        control.remove()


def test_a_close_commits_what_is_there_and_does_not_wait_for_a_deleted_topic(fake: FakeBroker) -> None:
    consumer = reader(fake, enable_auto_commit=True, auto_commit_interval_ms=3_600_000)
    consumer.assign([T0, U0])
    consumer.poll(0)
    read(consumer, 10)
    consumer.poll(0)
    fake.delete_topic("u")
    consumer.close(3 * PATIENCE_S)
    assert fake.group("group").offsets[T0].offset == 5
    assert len(fake.calls_of("OffsetCommit")) < 10
    assert "auto_commit_late" not in {one.kind for one in consumer._session.core.notices}


def test_auto_commit_of_other_partitions_goes_on_and_is_not_late(fake: FakeBroker) -> None:
    control = fake.control("OffsetCommit", refuse(fake, 3, "u"))  # though the topic exists
    with reader(fake, enable_auto_commit=True, auto_commit_interval_ms=50, default_api_timeout_ms=1_000) as consumer:
        consumer.assign([T0, U0])
        read(consumer, 10)
        for count in range(6, 16):
            fake.produce("t", 0, [(None, b"value")])
            read(consumer, 1)
            poll_until(consumer, lambda count=count: stored(fake).get(T0) == count)  # type: ignore[misc]
        assert all(U0 not in entry.offsets for entry in consumer.commit_log())
        assert "commit_dropped" not in {one.kind for one in consumer.notices()}
        # That the coordinator does not know the topic is reported when the first of these has waited too long.
        poll_until(consumer, lambda: len(refusals(consumer)) == 1)
        control.remove()
        poll_until(consumer, lambda: any(U0 in entry.offsets for entry in consumer.commit_log()))


def stored(fake: FakeBroker) -> dict[TopicPartition, int]:
    return {one: found.offset for one, found in fake.group("group").offsets.items()}


def refusals(consumer: Consumer) -> list[Notice]:
    return [one for one in consumer.notices() if one.kind == "auto_commit_refused"]


@pytest.mark.parametrize(("code", "name"), [(29, "TOPIC_AUTHORIZATION_FAILED"), (12, "OFFSET_METADATA_TOO_LARGE")])
def test_an_auto_commit_that_is_refused_is_reported_once(
    code: int, name: str, fake: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kohort")
    refused = refuse(fake, code, "u")
    # On a busy machine the first one commits the position before any record is read.
    fake.control("OffsetCommit", lambda call: refused(call) if commits(call, 5) else None, times=6)
    with reader(fake, enable_auto_commit=True, auto_commit_interval_ms=20) as consumer:
        consumer.assign([U0])
        raised: list[Exception] = []

        def reached() -> bool:
            return len(consumer.commit_log()) >= 6

        limit = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < limit
            try:
                consumer.poll(0.05)
            except Exception as error:
                raised.append(error)
        (notice,) = refusals(consumer)
        assert name in notice.text
        assert "u-0=5" in notice.text
        (line,) = [one for one in caplog.records if getattr(one, "event", "") == "auto_commit_refused"]
        assert line.levelno == logging.WARNING
        assert [type(error).__name__ for error in raised] == (["AuthorizationFailed"] if code == 29 else [])
        poll_until(consumer, lambda: consumer.commit_log()[-1].offsets == {U0: OffsetAndMetadata(5, 0)})
        fake.control("OffsetCommit", refuse(fake, code, "u"), times=1)
        fake.produce("u", 0, [(None, b"value")])
        caplog.clear()
        with suppress(AuthorizationFailed):
            poll_until(consumer, lambda: len(refusals(consumer)) == 2)
        assert len(refusals(consumer)) == 2  # a commit was stored between them
