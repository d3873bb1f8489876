"""Brokers that die, connections that break: what a consumer loses (nothing) and what it says."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kohort.admin import Admin
from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer, Lost
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.testing import RealBroker, RealCluster
from kohort.testing.fault_proxy import ProxiedCluster
from kohort.testing.faults import TO_CLIENT, BlackHole, Reset
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import Witness, node_at, numbers, poll_until, produce, read
from tests.support.broker_selection import wanted_version

Name = Callable[[str], str]
EPOCHS = int(wanted_version().partition(".")[0]) >= 4  # KIP-848 is on from Kafka 4.0


@pytest.mark.broker
@pytest.mark.proves("B-27", "B-25", "F-05", "F-07", "G-12")
def test_a_broker_killed_and_started_again_costs_time_and_nothing_else(unique: Name) -> None:
    group, tp = unique("group"), TopicPartition("t", 0)
    hooks = Witness()
    with RealBroker() as broker:
        create_topic(broker.bootstrap, "t")
        produce(broker.bootstrap, "t", numbers(0, 10))
        with Consumer(broker.bootstrap, group=group, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"], hooks=hooks)
            read(consumer, 10)
            consumer.commit({tp: 10})
            generation = consumer.group_metadata().generation
            broker.kill()
            limit = time.monotonic() + 120
            while consumer.health().healthy:
                consumer.poll(0.1)
                assert time.monotonic() < limit
            assert "no broker responds" in consumer.health().reason
            broker.start()
            produce(broker.bootstrap, "t", numbers(10, 10))
            assert [record.value for record in read(consumer, 10)] == numbers(10, 10)
            consumer.commit({tp: 20})
            assert consumer.health().healthy
            assert consumer.group_metadata().generation == generation
            assert hooks.kinds() == ["Assigned"]


@pytest.mark.broker
def test_an_offset_of_a_topic_that_was_created_again_without_its_coordinator_is_not_used(unique: Name) -> None:
    """The coordinator is away while it would delete the offsets of a deleted topic, so it keeps them."""
    if wanted_version() < "4.1":
        pytest.skip("OffsetFetch has topic ids since 4.1")
    group, topic = unique("group"), unique("topic")
    partition = TopicPartition(topic, 0)
    with RealCluster(3, version=wanted_version(), properties={"offsets.topic.replication.factor": 1}) as cluster:
        create_topic(cluster.bootstrap, topic)
        produce(cluster.bootstrap, topic, numbers(0, 10))
        with Consumer(cluster.bootstrap, group=group) as consumer:
            consumer.assign({partition: 0})
            consumer.commit({partition: 10})
            coordinator = node_at(cluster, consumer.health().coordinator)
        coordinator.stop()
        alive = ",".join(node.bootstrap for node in cluster.nodes if node is not coordinator)
        with Admin(alive) as admin:
            admin.delete_topics(topic)
        create_topic(alive, topic)
        produce(alive, topic, numbers(10, 20))
        cluster.start()
        with Consumer(cluster.bootstrap, group=group, auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            assert [record.value for record in read(consumer, 20)] == numbers(10, 20)


@pytest.mark.broker
@pytest.mark.proves("G-12", "B-21", "B-22", "B-23", "F-05", "F-06", "F-07", "G-01")
def test_the_coordinator_dies_and_the_member_stays_where_it_is(unique: Name) -> None:
    group, topic = unique("group"), unique("topic")
    hooks = Witness()
    with RealCluster(3, properties={"offsets.topic.replication.factor": 3}) as cluster:
        create_topic(cluster.bootstrap, topic, partitions=3, replicas=3)
        with Consumer(cluster.bootstrap, group=group, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic], hooks=hooks)
            poll_until(consumer, lambda: len(consumer.assignment) == 3)
            consumer.commit({TopicPartition(topic, 0): 0})
            generation = consumer.group_metadata().generation
            coordinator = consumer.health().coordinator
            victim = node_at(cluster, coordinator)
            victim.kill()
            outcome: list[Exception | None] = []
            consumer.commit_async({TopicPartition(topic, 1): 0}, lambda _offsets, error: outcome.append(error))
            alive = ",".join(node.bootstrap for node in cluster.nodes if node is not victim)
            for partition in range(3):
                produce(alive, topic, numbers(partition * 10, 10), partition=partition)
            records = read(consumer, 30, patience_s=120)
            assert sorted(record.value or b"" for record in records) == sorted(numbers(0, 30))
            poll_until(consumer, lambda: bool(outcome), patience_s=120)
            assert outcome == [None]  # the commit that was under way was stored in the end
            consumer.commit({TopicPartition(topic, 2): 20})
            assert consumer.health().coordinator != coordinator
            assert consumer.group_metadata().generation == generation
            assert hooks.kinds() == ["Assigned"]


@pytest.mark.broker
@pytest.mark.proves("B-26", "B-25", "B-33", "I11", "F-04")
def test_a_member_cut_off_longer_than_its_session_emits_and_commits_nothing_more(unique: Name) -> None:
    group, topic = unique("group"), unique("topic")
    tp = TopicPartition(topic, 0)
    hooks = Witness()
    with ProxiedCluster(1) as proxied:
        direct = proxied.cluster.bootstrap
        create_topic(direct, topic)
        produce(direct, topic, numbers(0, 5))
        zombie = Consumer(
            proxied.bootstrap,
            group=group,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
            request_timeout_ms=2000,
        )
        with zombie, Consumer(direct, group=group, auto_offset_reset="earliest") as heir:
            zombie.subscribe([topic], hooks=hooks)
            read(zombie, 5)
            zombie.commit({tp: 2})
            proxied.proxies[0].add(BlackHole())
            heir.subscribe([topic])
            inherited = threading.Event()

            def inherit() -> None:
                read(heir, 3, patience_s=120)
                inherited.set()

            thread = threading.Thread(target=inherit)
            thread.start()
            emitted = 0
            limit = time.monotonic() + 120
            while not inherited.is_set():
                assert time.monotonic() < limit
                emitted += sum(map(len, zombie.poll(0.1)))
            thread.join()
            assert emitted == 0
            produce(direct, topic, numbers(5, 5))
            proxied.proxies[0].clear()
            proxied.proxies[0].reset_connections()
            poll_until(zombie, lambda: "Lost" in hooks.kinds())
            lost = next(event for event in hooks.reported if isinstance(event, Lost))
            assert lost.partitions == {tp}


@pytest.mark.broker
@pytest.mark.proves("B-23", "B-25")
@pytest.mark.parametrize(
    ("api", "protocol"),
    [
        *((api, "classic") for api in ("OffsetCommit", "Fetch", "Heartbeat", "Metadata", "ListOffsets", "OffsetFetch")),
        *((api, "classic") for api in ("JoinGroup", "SyncGroup")),
        *((api, "consumer") for api in ("ConsumerGroupHeartbeat", "OffsetCommit", "OffsetFetch") if EPOCHS),
    ],
)
def test_a_response_lost_to_a_reset_is_requested_again(
    api: str, protocol: GroupProtocol, unique: Name, proxied: ProxiedCluster
) -> None:
    group, topic = unique("group"), unique("topic")
    tp = TopicPartition(topic, 0)
    direct = proxied.cluster.bootstrap
    create_topic(direct, topic)
    produce(direct, topic, numbers(0, 5))
    laid = proxied.proxies[0].add(Reset(), direction=TO_CLIENT, api=api, times=1)
    with Consumer(
        proxied.bootstrap, group=group, auto_offset_reset="earliest", heartbeat_interval_ms=100, protocol=protocol
    ) as consumer:
        consumer.subscribe([topic])
        assert [record.value for record in read(consumer, 5)] == numbers(0, 5)
        poll_until(consumer, lambda: consumer.health().last_heartbeat_s is not None)
        consumer.commit({tp: 5})
        produce(direct, topic, numbers(5, 5))
        assert [record.value for record in read(consumer, 5)] == numbers(5, 5)
        stored = consumer.committed([tp])[tp]
        assert stored is not None
        assert stored.offset == 5
    assert laid.hits == 1
    laid.remove()


@pytest.fixture(scope="module")
def proxied() -> Iterator[ProxiedCluster]:
    with ProxiedCluster(1) as cluster:
        yield cluster
