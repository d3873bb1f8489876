"""Three brokers in three racks: the nearest replica is read, leaders move and say where to, a log is cut for good."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import Admin, Producer
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client import Consumer, OffsetReset
from kohort.protocol import tape
from kohort.testing import RealCluster
from kohort.testing.kafka_node import KafkaNode
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import PATIENCE_S, addresses, numbers, poll_until, produce, read

RACKS = ("a", "b", "c")
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
NOT_LEADER, FENCED_EPOCH = 6, 74

Name = Callable[[str], str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    properties = {
        "replica.selector.class": SELECTOR,
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "auto.leader.rebalance.enable": False,
    }
    with RealCluster(3, racks=RACKS, properties=properties) as running:
        yield running


def first_partition(cluster: RealCluster, topic: str) -> Any:
    """The metadata of partition 0, as a broker that is up says it. A topic that was created just now is awaited."""
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": ",".join(node.bootstrap for node in cluster.nodes if node.running)})
    known: dict[int, Any] = {}

    def is_known() -> bool:
        known.update(client.list_topics(topic, timeout=20).topics[topic].partitions)
        return 0 in known

    wait_for(is_known, f"no broker knows {topic}")
    return known[0]


def leader_of(cluster: RealCluster, topic: str) -> tuple[KafkaNode, list[KafkaNode]]:
    """(the leader's node, the other replicas' nodes) of partition 0."""
    reported = first_partition(cluster, topic)
    nodes = {node.node_id: node for node in cluster.nodes}
    return nodes[reported.leader], [nodes[one] for one in reported.replicas if one != reported.leader]


def in_sync(cluster: RealCluster, topic: str) -> set[int]:
    return set(first_partition(cluster, topic).isrs)


def wait_for(reached: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < limit, what
        time.sleep(0.1)


def start(node: KafkaNode, brokers: int) -> None:
    node.launch(remove_if_orphaned=None)
    node.wait_ready(brokers=brokers, timeout_s=150)


def fetched_from(path: Path, node: KafkaNode) -> list[Any]:
    """The Fetch responses on the tape that came from `node`."""
    responses = [each for each in tape.read(path.read_text().splitlines()) if each.direction == "response"]
    return [tape.value(each) for each in responses if each.api == "Fetch" and each.node in addresses(node)]


@pytest.mark.broker
@pytest.mark.proves("E-07")
def test_the_nearest_replica_is_read_and_the_leader_when_that_one_dies(
    cluster: RealCluster, unique: Name, tmp_path: Path
) -> None:
    topic = unique("near")
    tp = TopicPartition(topic, 0)
    create_topic(cluster.bootstrap, topic, replicas=3)
    leader, (near, _) = leader_of(cluster, topic)
    path = tmp_path / "tape"
    with Consumer(
        cluster.bootstrap, rack=RACKS[near.node_id], auto_offset_reset="earliest", tape=str(path)
    ) as consumer:
        consumer.assign([tp])
        produce(cluster.bootstrap, topic, numbers(0, 20))
        assert [record.value for record in read(consumer, 20)] == numbers(0, 20)
        produce(cluster.bootstrap, topic, numbers(20, 20))
        assert [record.value for record in read(consumer, 20)] == numbers(20, 20)
        with_records = [
            data
            for fetched in fetched_from(path, near)
            for response in fetched.responses
            for data in response.partitions
            if data.records
        ]
        assert with_records, "records came from the replica in our own rack"
        near.kill()
        produce(leader.bootstrap, topic, numbers(40, 20))
        assert [record.value for record in read(consumer, 20, patience_s=120)] == numbers(40, 20)
    start(near, 3)


@pytest.mark.broker
@pytest.mark.proves("E-07")
def test_a_leader_that_moves_says_where_to(cluster: RealCluster, unique: Name, tmp_path: Path) -> None:
    from confluent_kafka import ElectionType
    from confluent_kafka import TopicPartition as Peer
    from confluent_kafka.admin import AdminClient

    topic = unique("moved")
    create_topic(cluster.bootstrap, topic, replicas=3)
    preferred, others = leader_of(cluster, topic)
    preferred.kill()
    wait_for(lambda: leader_of(cluster, topic)[0] in others, "no other broker leads")
    interim = leader_of(cluster, topic)[0]
    start(preferred, 3)
    wait_for(lambda: len(in_sync(cluster, topic)) == 3, "not in sync again")
    path = tmp_path / "tape"
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest", tape=str(path)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        produce(cluster.bootstrap, topic, numbers(0, 10))
        read(consumer, 10)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.elect_leaders(ElectionType.PREFERRED, [Peer(topic, 0)]).result(120)
        produce(cluster.bootstrap, topic, numbers(10, 10))
        assert [record.value for record in read(consumer, 10)] == numbers(10, 10)
    refusals = [
        (data, fetched.node_endpoints)
        for fetched in fetched_from(path, interim)
        for response in fetched.responses
        for data in response.partitions
        if data.error_code in (NOT_LEADER, FENCED_EPOCH)
    ]
    assert refusals
    data, endpoints = refusals[0]
    assert data.current_leader.leader_id == preferred.node_id
    (said,) = endpoints
    assert f"{said.host}:{said.port}" in addresses(preferred)
    assert fetched_from(path, preferred), "and was fetched from"


@pytest.mark.broker
@pytest.mark.proves("B-38", "E-08")
def test_an_unclean_election_is_found_out_and_read_on_where_both_logs_agree(cluster: RealCluster, unique: Name) -> None:
    topic = unique("cut")
    create_topic(cluster.bootstrap, topic, replicas=2, config={"unclean.leader.election.enable": "true"})
    leader, (follower,) = leader_of(cluster, topic)
    third = next(node for node in cluster.nodes if node not in (leader, follower))
    gaps: list[OffsetReset] = []
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest", on_reset=gaps.append) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        produce(cluster.bootstrap, topic, numbers(0, 10), acks="all")
        read(consumer, 10)
        follower.kill()
        wait_for(lambda: in_sync(cluster, topic) == {leader.node_id}, "the follower still counts")
        produce(leader.bootstrap, topic, numbers(10, 10))
        read(consumer, 10)  # ten records that only the leader has
        leader.kill()
        start(follower, 2)
        wait_for(lambda: leader_of(cluster, topic)[0] is follower, "no unclean election")
        alive = f"{follower.bootstrap},{third.bootstrap}"
        produce(alive, topic, numbers(100, 5))
        again = read(consumer, 5, patience_s=120)
        assert [(record.offset, record.value) for record in again] == [(10 + n, b"%d" % (100 + n)) for n in range(5)]
        poll_until(consumer, lambda: any(gap.wanted == 20 for gap in gaps))
    assert [(gap.wanted, gap.start) for gap in gaps if gap.wanted is not None] == [(20, 10)]
    start(leader, 3)


@pytest.mark.broker
@pytest.mark.proves("B-38", "E-08")
def test_an_unclean_election_after_a_seek_to_the_end_skips_nothing_silently(cluster: RealCluster, unique: Name) -> None:
    """No record has been read, so the only epoch to find the truncation by is that of the ListOffsets response."""
    topic = unique("end")
    tp = TopicPartition(topic, 0)
    create_topic(cluster.bootstrap, topic, replicas=2, config={"unclean.leader.election.enable": "true"})
    leader, (follower,) = leader_of(cluster, topic)
    third = next(node for node in cluster.nodes if node not in (leader, follower))
    gaps: list[OffsetReset] = []
    with Consumer(cluster.bootstrap, auto_offset_reset="latest", on_reset=gaps.append) as consumer:
        consumer.assign([tp])
        produce(cluster.bootstrap, topic, numbers(0, 10), acks="all")
        follower.kill()
        wait_for(lambda: in_sync(cluster, topic) == {leader.node_id}, "the follower still counts")
        produce(leader.bootstrap, topic, numbers(10, 10))
        consumer.seek_to_end()
        poll_until(consumer, lambda: consumer.position(tp) == 20)
        epoch = consumer.position_of(tp).leader_epoch
        assert epoch >= 0
        leader.kill()
        start(follower, 2)
        wait_for(lambda: leader_of(cluster, topic)[0] is follower, "no unclean election")
        produce(f"{follower.bootstrap},{third.bootstrap}", topic, numbers(100, 15))  # the log grows beyond the position
        again = read(consumer, 15, patience_s=120)
        assert [(record.offset, record.value) for record in again] == [(10 + n, b"%d" % (100 + n)) for n in range(15)]
        assert consumer.position_of(tp).leader_epoch > epoch
        poll_until(consumer, lambda: any(gap.wanted == 20 for gap in gaps))
    assert [(gap.wanted, gap.start) for gap in gaps if gap.wanted is not None] == [(20, 10)]
    start(leader, 3)


@pytest.mark.broker
def test_a_producer_writes_records_without_a_key_to_leaders_in_its_rack(
    cluster: RealCluster, unique: Callable[[str], str]
) -> None:
    topic = unique("topic")
    create_topic(cluster.bootstrap, topic, partitions=6)
    racks = {node.node_id: rack for node, rack in zip(cluster.nodes, RACKS, strict=True)}
    here = RACKS[0]
    with (
        Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap, rack=here, rack_aware_partitioning=True, linger_ms=0) as producer,
    ):
        used = {producer.send(topic, b"x").result(PATIENCE_S).partition for _ in range(40)}
        leaders = {one.partition: one.leader for one in admin.describe_topic(topic).partitions}
    assert used == {partition for partition, leader in leaders.items() if racks[leader] == here}
