"""A broker of several takes requests and sends no response, until the cluster removes it or moves its partitions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kohort import Consumer, Producer, TopicPartition
from kohort.network import broker_connection, metadata_refresh
from kohort.testing import FakeBroker, RealCluster
from kohort.testing.fake_broker import Alter, Call, Drop, Hold
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import PATIENCE_S, node_at, poll_until, produce, read, wait_until

PLACE = TopicPartition("t", 0)
HUNG, ALIVE = 1, 2
SERVED = ("Fetch", "Metadata", "FindCoordinator", "Heartbeat", "JoinGroup", "OffsetCommit", "OffsetFetch", "Produce")
LONG_SESSION: dict[str, Any] = {"session_timeout_ms": 1_800_000, "max_poll_interval_ms": 1_800_000}
UNLIMITED: dict[str, Any] = {"request_timeout_ms": 600_000}  # otherwise that time-out would end the connections


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_connection, "LATE_S", 0.3)


@dataclass
class Hang:
    """Lets a node of a fake send no responses once `begin` was called, and leave the metadata by `remove`.

    `knows`: the removed node itself sends metadata without itself.
    """

    fake: FakeBroker
    began: bool = False
    removed: bool = False
    knows: bool = False
    dropped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.fake.control("Metadata", self._without_it)
        for api in SERVED:
            self.fake.control(api, self._drop)

    def _drop(self, call: Call) -> Drop | None:
        if not self.began or call.node != HUNG:
            return None
        self.dropped.append(call.api)
        return Drop()

    def _without_it(self, call: Call) -> Alter | None:
        if not self.removed or (call.node == HUNG and not self.knows):
            return None
        return Alter(lambda value: value._replace(brokers=tuple(b for b in value.brokers if b.node_id != HUNG)))

    def begin(self) -> None:
        self.began = True

    def remove(self) -> None:
        self.removed = True


@contextmanager
def hanging() -> Iterator[tuple[FakeBroker, Hang]]:
    """Two nodes; the first leads the partition."""
    with FakeBroker(nodes=2, topics={"t": 1}) as fake:
        fake.set_leader("t", 0, HUNG)
        fake.produce("t", 0, [(None, b"0")])
        yield fake, Hang(fake)


def reader(fake: FakeBroker, **settings: Any) -> Consumer:
    return Consumer(fake.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False, **UNLIMITED, **settings)


@pytest.mark.proves("B-47")
@pytest.mark.parametrize("removed", [True, False])
def test_records_are_read_from_the_new_leader_of_a_hung_broker(removed: bool) -> None:
    with hanging() as (fake, hang), reader(fake) as consumer:
        consumer.assign([PLACE])
        assert [record.value for record in read(consumer, 1)] == [b"0"]
        hang.begin()
        wait_until(lambda: "Fetch" in hang.dropped)
        fake.set_leader("t", 0, ALIVE)
        if removed:
            hang.remove()
        fake.produce("t", 0, [(None, b"1")])
        assert [record.value for record in read(consumer, 1)] == [b"1"]


@pytest.mark.proves("B-47")
def test_a_broker_counts_as_removed_until_metadata_has_it_again() -> None:
    with hanging() as (fake, hang), reader(fake, metadata_max_age_ms=50) as consumer:
        consumer.assign([PLACE])
        cluster = consumer._session.driver.core.cluster
        read(consumer, 1)

        def after_more_responses() -> list[str]:
            before = len(fake.calls_of("Metadata"))
            wait_until(lambda: len(fake.calls_of("Metadata")) > before + 4)
            return [str(endpoint) for endpoint in cluster.removed]

        assert after_more_responses() == []
        fake.set_leader("t", 0, ALIVE)
        hang.knows = True  # by chance, all five responses may be its own
        hang.remove()
        assert after_more_responses() == fake.bootstrap.split(",")[:1]
        hang.removed = False
        assert after_more_responses() == []


@pytest.mark.proves("B-47", "F-05")
def test_a_coordinator_that_came_back_since_the_last_metadata_keeps_its_connection() -> None:
    with hanging() as (fake, hang), reader(fake, group="g", heartbeat_interval_ms=50, **LONG_SESSION) as consumer:
        fake.move_coordinator("g", ALIVE)
        fake.set_leader("t", 0, ALIVE)
        consumer.subscribe(["t"])
        read(consumer, 1)
        hang.knows = True
        hang.remove()
        consumer.topics()
        removed = consumer._session.driver.core.cluster.removed
        assert [str(endpoint) for endpoint in removed] == fake.bootstrap.split(",")[:1]
        hang.removed = False
        fake.move_coordinator("g", HUNG)

        def beats() -> list[Call]:
            return [call for call in fake.calls_of("Heartbeat") if call.node == HUNG]

        wait_until(lambda: len(beats()) > 4)
        assert len({call.connection for call in beats()}) == 1
        assert [notice.kind for notice in consumer.notices()].count("coordinator_gone") == 1


@pytest.mark.proves("B-47", "B-24")
def test_a_slow_broker_that_leads_on_keeps_its_connection() -> None:
    hold = Hold()
    with hanging() as (fake, _hang), reader(fake) as consumer:
        consumer.assign([PLACE])
        assert [record.value for record in read(consumer, 1)] == [b"0"]
        fetched_by = {call.connection for call in fake.calls_of("Fetch")}
        held = fake.control("Fetch", lambda _call: hold)
        wait_until(hold.reached.is_set)
        before = len(fake.calls_of("Metadata"))
        wait_until(lambda: len(fake.calls_of("Metadata")) >= before + 4)
        assert {call.node for call in fake.calls_of("Metadata")[before + 1 :]} == {ALIVE}
        held.remove()
        hold.release()
        fake.produce("t", 0, [(None, b"1")])
        assert [record.value for record in read(consumer, 1)] == [b"1"]
        assert {call.connection for call in fake.calls_of("Fetch")} == fetched_by


@pytest.mark.proves("B-47")
def test_a_broker_may_hold_a_fetch_for_as_long_as_it_was_allowed_to() -> None:
    with hanging() as (fake, _hang), reader(fake, fetch_max_wait_ms=2_000) as consumer:
        consumer.assign([PLACE])
        read(consumer, 1)
        requested, fetched = len(fake.calls_of("Metadata")), len(fake.calls_of("Fetch"))
        poll_until(consumer, lambda: len(fake.calls_of("Fetch")) > fetched + 1)
        assert len(fake.calls_of("Metadata")) == requested


@pytest.mark.proves("B-47", "F-05")
def test_a_commit_is_sent_to_the_successor_of_a_hung_coordinator() -> None:
    with hanging() as (fake, hang), reader(fake, group="g", assignors=["range"]) as consumer:
        fake.move_coordinator("g", HUNG)
        consumer.subscribe(["t"])
        read(consumer, 1)
        hang.begin()
        promise = consumer._put_commit({PLACE: 1}, PATIENCE_S, False)
        wait_until(lambda: "OffsetCommit" in hang.dropped)
        fake.move_coordinator("g", ALIVE)
        fake.set_leader("t", 0, ALIVE)
        hang.remove()
        promise.result(PATIENCE_S)
        assert fake.calls_of("OffsetCommit")[-1].node == ALIVE
        assert fake.group("g").generation == 1, "the membership goes on"


@pytest.mark.proves("B-47", "F-05")
def test_a_coordinator_that_leaves_the_metadata_is_looked_up_before_it_is_used_again() -> None:
    with hanging() as (fake, hang), reader(fake, group="g", heartbeat_interval_ms=600_000, **LONG_SESSION) as consumer:
        fake.move_coordinator("g", HUNG)
        consumer.subscribe(["t"])
        read(consumer, 1)
        before = len(fake.calls_of("FindCoordinator"))
        hang.begin()
        fake.move_coordinator("g", ALIVE)
        fake.set_leader("t", 0, ALIVE)
        hang.remove()
        wait_until(lambda: len(fake.calls_of("FindCoordinator")) > before)
        consumer.commit({PLACE: 1})
        assert set(hang.dropped) <= {"Fetch", "Metadata"}


@pytest.mark.proves("B-47", "B-22")
def test_a_join_does_not_wait_for_a_hung_coordinator() -> None:
    with hanging() as (fake, hang), reader(fake, group="g", assignors=["range"], heartbeat_interval_ms=200) as consumer:
        fake.move_coordinator("g", HUNG)
        consumer.subscribe(["t"])
        read(consumer, 1)
        hang.begin()
        consumer.enforce_rebalance()
        poll_until(consumer, lambda: "JoinGroup" in hang.dropped)
        fake.move_coordinator("g", ALIVE)
        fake.set_leader("t", 0, ALIVE)
        hang.remove()
        poll_until(consumer, lambda: any(call.node == ALIVE for call in fake.calls_of("JoinGroup")))
        poll_until(consumer, lambda: bool(consumer.assignment))


@pytest.mark.proves("B-47", "B-22")
def test_a_join_without_partitions_does_not_wait_for_a_hung_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends no other request to that broker, and a coordinator may hold this one for minutes."""
    monkeypatch.setattr(metadata_refresh, "HELD_UP_S", 0.3)
    with hanging() as (fake, hang), Consumer(fake.bootstrap, group="g", auto_offset_reset="earliest") as consumer:
        fake.move_coordinator("g", HUNG)
        fake.set_leader("t", 0, ALIVE)

        def drop(call: Call) -> Drop | None:
            hang.began = hang.began or call.node == HUNG
            return Drop() if call.node == HUNG else None

        fake.control("JoinGroup", drop)
        consumer.subscribe(["t"])
        poll_until(consumer, lambda: hang.began)
        fake.move_coordinator("g", ALIVE)
        hang.remove()
        read(consumer, 1)


@pytest.mark.proves("B-47")
def test_a_batch_is_written_to_the_new_leader_of_a_hung_broker_once() -> None:
    with hanging() as (fake, hang), Producer(fake.bootstrap, delivery_timeout_ms=1_200_000, **UNLIMITED) as producer:
        producer.send("t", b"1").result(PATIENCE_S)
        hang.begin()
        delivery = producer.send("t", b"2")
        wait_until(lambda: "Produce" in hang.dropped)
        fake.set_leader("t", 0, ALIVE)
        hang.remove()
        assert delivery.result(PATIENCE_S).offset == 2
        assert fake.end_offset("t", 0) == 3


@pytest.mark.broker
@pytest.mark.proves("B-47", "B-33", "G-12")
def test_a_frozen_broker_of_a_cluster_costs_no_request_timeout(
    cluster3: RealCluster, unique: Callable[[str], str]
) -> None:
    topic, group = unique("topic"), unique("group")
    create_topic(cluster3.bootstrap, topic, partitions=3, replicas=3)
    settings: dict[str, Any] = {"heartbeat_interval_ms": 500, **UNLIMITED}
    with Consumer(cluster3.bootstrap, group=group, auto_offset_reset="earliest", **settings) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 3)
        for partition in range(3):
            produce(cluster3.bootstrap, topic, [b"before"], partition=partition)
        read(consumer, 3)
        consumer.commit()
        frozen = node_at(cluster3, consumer.health().coordinator)
        frozen.pause()
        try:
            others = ",".join(node.bootstrap for node in cluster3.nodes if node is not frozen)
            for partition in range(3):
                produce(others, topic, [b"after"], partition=partition)
            assert sorted(record.partition for record in read(consumer, 3)) == [0, 1, 2]
            consumer.commit()
        finally:
            frozen.resume()
        assert consumer.health().generation == 1
