"""ShareConsumer on a real broker: delivery, locks, limits, transactions, restarts, offsets."""

import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from kohort import Admin, KohortError, Producer, ShareConsumer, TopicPartition
from kohort.admin import GroupNotEmpty
from kohort.network.errors import ConfigError
from kohort.network.requests import ConnectionPurpose
from kohort.protocol.errors import BrokerError, ErrorCode
from kohort.share_consumer import ShareGroupsUnsupported, ShareRecords
from kohort.testing import RealBroker
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import wait_until

PATIENCE_S = 120.0
Name = Callable[[str], str]
pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def server() -> Iterator[RealBroker]:
    """A broker on which locks may be short."""
    properties = {"group.share.min.record.lock.duration.ms": 1000, "group.share.record.lock.duration.ms": 15000}
    with RealBroker(properties=properties) as broker:
        yield broker


@pytest.fixture
def group(server: RealBroker, unique: Name) -> str:
    """A share group that reads from the start."""
    name = unique("share")
    configure(server, name, {"share.auto.offset.reset": "earliest"})
    return name


def configure(server: RealBroker, group: str, settings: dict[str, str | None]) -> None:
    with Admin(server.bootstrap) as admin:
        admin.set_group_configs(group, settings)


def topic_with(server: RealBroker, name: str, records: int, partitions: int = 1) -> str:
    create_topic(server.bootstrap, name, partitions=partitions)
    send(server, name, records, partitions)
    return name


def send(server: RealBroker, topic: str, records: int, partitions: int = 1) -> None:
    with Producer(server.bootstrap) as producer:
        for number in range(records):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def read(consumer: ShareConsumer, count: int, how: str = "accept") -> list[ShareRecords]:
    """Batches with at least so many records, all acknowledged."""
    found: list[ShareRecords] = []
    limit = time.monotonic() + PATIENCE_S
    while sum(map(len, found)) < count:
        assert time.monotonic() < limit
        for batch in consumer.poll(1.0):
            consumer.acknowledge(batch, how)
            found.append(batch)
    assert consumer.commit() == {}
    return found


def values(batches: list[ShareRecords]) -> list[bytes | None]:
    return [record.value for batch in batches for record in batch]


def lag(server: RealBroker, group: str) -> int:
    with Admin(server.bootstrap) as admin:
        return sum(one.lag or 0 for one in admin.share_offsets(group))


@pytest.mark.proves("SH-37", "SH-38")
def test_each_record_above_the_limit_of_one_decoding_is_delivered_once(
    server: RealBroker, unique: Name, group: str
) -> None:
    topic = topic_with(server, unique("topic"), 0)
    with Producer(server.bootstrap, compression="zstd") as producer:
        for _ in range(40):
            producer.send(topic, bytes(100_000))
    with ShareConsumer(server.bootstrap, group=group, max_decompressed_bytes=300_000) as consumer:
        consumer.subscribe([topic])
        found = read(consumer, 40)
    assert [offset for batch in found for offset in batch.columns.offsets] == list(range(40))
    assert {batch.delivery_count for batch in found} == {1}
    assert max(map(len, found)) < 4
    assert lag(server, group) == 0


@pytest.mark.proves("SH-38", "SH-50", "SH-51", "SH-52", "SH-54")
def test_every_record_ends_accepted_or_archived(server: RealBroker, unique: Name, group: str) -> None:
    topic = topic_with(server, unique("topic"), 200, partitions=2)
    configure(server, group, {"share.delivery.count.limit": "3"})
    done: Counter[tuple[int, int]] = Counter()
    seen: Counter[tuple[int, int]] = Counter()
    draw = random.Random(7)
    with ShareConsumer(server.bootstrap, group=group) as consumer:
        consumer.subscribe([topic])
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit and not (len(seen) == 200 and lag(server, group) == 0):
            for batch in consumer.poll(0.5):
                for record in batch:
                    place = record.partition, record.offset
                    assert not done[place]
                    seen[place] += 1
                    assert seen[place] == batch.delivery_count
                    how = draw.choice(("accept", "release", "release", "reject"))
                    consumer.acknowledge(record, how)
                    done[place] += how != "release"
            assert consumer.commit() == {}
    assert len(seen) == 200
    assert max(seen.values()) == 3
    assert all(done[place] or count == 3 for place, count in seen.items())


@pytest.mark.proves("SH-40")
def test_record_limit_is_hard_and_batches_are_whole_otherwise(server: RealBroker, unique: Name, group: str) -> None:
    topic = topic_with(server, unique("topic"), 30)
    with ShareConsumer(server.bootstrap, group=group, max_poll_records=4, acquire_mode="record_limit") as consumer:
        consumer.subscribe([topic])
        assert max(map(len, read(consumer, 12))) <= 4


@pytest.mark.proves("SH-44", "SH-46")
def test_groups_are_apart_and_the_default_start_is_the_end(server: RealBroker, unique: Name, group: str) -> None:
    topic = topic_with(server, unique("topic"), 10)
    with (
        ShareConsumer(server.bootstrap, group=unique("late")) as late,
        ShareConsumer(server.bootstrap, group=group) as consumer,
    ):
        for one in (late, consumer):
            one.subscribe([topic])
        assert len(values(read(consumer, 10))) == 10
        limit = time.monotonic() + PATIENCE_S
        while not late.assignment and time.monotonic() < limit:
            assert late.poll(0.1) == []
        assert late.poll(2.0) == []
        send(server, topic, 1)
        assert values(read(late, 1)) == [b"0"]


@pytest.mark.proves("SH-53", "SH-60", "SH-63")
def test_a_lock_is_renewed_or_expires(server: RealBroker, unique: Name, group: str) -> None:
    topic = topic_with(server, unique("topic"), 2)
    configure(server, group, {"share.record.lock.duration.ms": "2000"})
    with ShareConsumer(server.bootstrap, group=group, acknowledgement_mode="explicit") as consumer:
        consumer.subscribe([topic])
        (batch,) = consumer.poll(PATIENCE_S)
        assert consumer.lock_timeout_ms == 2000
        kept, late = batch
        for _ in range(4):
            consumer.acknowledge(kept, "renew")
            assert consumer.commit() == {}
            time.sleep(1.0)
        consumer.acknowledge(kept)
        assert consumer.commit() == {}
        consumer.acknowledge(late)
        failures = consumer.commit()
        error = failures[TopicPartition(topic, 0)][late.offset]
        assert isinstance(error, BrokerError)
        assert error.code == ErrorCode.INVALID_RECORD_STATE
        (again,) = read(consumer, 1)
        assert (list(again.columns.offsets), again.delivery_count) == ([late.offset], 2)


@pytest.mark.proves("SH-50", "SH-70")
def test_control_records_are_settled_and_aborted_ones_hidden(server: RealBroker, unique: Name, group: str) -> None:
    topic = topic_with(server, unique("topic"), 0)
    configure(server, group, {"share.isolation.level": "read_committed"})
    with Producer(server.bootstrap, transactional_id=unique("transaction")) as producer:
        for commits in (True, False, True):
            producer.begin()
            producer.send(topic, b"kept" if commits else b"dropped", partition=0)
            producer.flush()
            producer.commit() if commits else producer.abort()
    with ShareConsumer(server.bootstrap, group=group) as consumer:
        consumer.subscribe([topic])
        assert values(read(consumer, 2)) == [b"kept", b"kept"]
        limit = time.monotonic() + PATIENCE_S
        while lag(server, group) and time.monotonic() < limit:
            consumer.poll(0.2)
        assert lag(server, group) == 0


@pytest.mark.proves("SH-69", "SH-68")
def test_modes(server: RealBroker, unique: Name, group: str) -> None:
    topic = topic_with(server, unique("topic"), 4)
    with ShareConsumer(server.bootstrap, group=group, acknowledgement_mode="explicit") as consumer:
        consumer.subscribe([topic])
        (batch,) = consumer.poll(PATIENCE_S)
        consumer.acknowledge(batch.columns[0], "reject")
        with pytest.raises(KohortError, match="3 records"):
            consumer.poll(0)
    with ShareConsumer(server.bootstrap, group=group) as consumer:
        consumer.subscribe([topic])
        (batch,) = consumer.poll(PATIENCE_S)
        assert (list(batch.columns.offsets), batch.delivery_count) == ([1, 2, 3], 2)


@pytest.mark.proves("SH-18")
def test_a_consumer_group_is_no_share_group(server: RealBroker, unique: Name) -> None:
    from kohort import Consumer

    topic, name = topic_with(server, unique("topic"), 1), unique("group")
    with Consumer(server.bootstrap, group=name, auto_offset_reset="earliest") as other:
        other.subscribe([topic])
        assert other.poll(PATIENCE_S)
        with ShareConsumer(server.bootstrap, group=name) as consumer:
            consumer.subscribe([topic])
            with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
                consumer.poll(PATIENCE_S)


def test_the_admin_reads_and_moves_offsets(server: RealBroker, unique: Name, group: str) -> None:
    topic = topic_with(server, unique("topic"), 10)
    with Admin(server.bootstrap) as admin:
        with ShareConsumer(server.bootstrap, group=group) as consumer:
            consumer.subscribe([topic])
            read(consumer, 10)
            described = admin.describe_group(group)
            assert (described.type, described.state, len(described.members)) == ("share", "Stable", 1)
            assert described.members[0].owned == {TopicPartition(topic, 0)}
            with pytest.raises(GroupNotEmpty):
                admin.alter_share_offsets(group, {TopicPartition(topic, 0): 3})
        assert admin.share_offsets(group)[0].lag == 0
        admin.alter_share_offsets(group, {TopicPartition(topic, 0): 7})
        assert admin.share_offsets(group)[0].lag == 3
        with ShareConsumer(server.bootstrap, group=group) as consumer:
            consumer.subscribe([topic])
            assert values(read(consumer, 3)) == [b"7", b"8", b"9"]
        admin.delete_share_offsets(group, topic)
        assert admin.share_offsets(group) == []
        assert admin.group_configs([group])[group]["share.auto.offset.reset"] == "earliest"
        with pytest.raises(ConfigError):
            admin.set_group_configs(group, {"share.delivery.count.limit": "1000"})
        admin.delete_groups(group)


@pytest.mark.proves("SH-28", "SH-50", "SH-65")
def test_a_broker_that_restarts_inside_a_session_loses_nothing(unique: Name) -> None:
    with RealBroker() as broker:
        group = unique("share")
        configure(broker, group, {"share.auto.offset.reset": "earliest"})
        topic = topic_with(broker, unique("topic"), 100)
        accepted: set[int] = set()
        with ShareConsumer(broker.bootstrap, group=group, max_poll_records=20, acquire_mode="record_limit") as consumer:
            consumer.subscribe([topic])
            restarts = iter((40,))
            stop_at = next(restarts)
            limit = time.monotonic() + PATIENCE_S
            while len(accepted) < 100:
                assert time.monotonic() < limit
                for batch in consumer.poll(1.0):
                    if len(accepted) >= stop_at:
                        stop_at = 1000
                        broker.stop()
                        broker.start()
                    consumer.acknowledge(batch)
                    failures = consumer.commit().get(TopicPartition(topic, 0), {})
                    assert all(isinstance(error, KohortError) for error in failures.values())
                    fresh = {offset for offset in batch.columns.offsets if offset not in failures}
                    assert not fresh & accepted
                    accepted |= fresh
            assert stop_at == 1000
            assert lag(broker, group) == 0


@pytest.mark.proves("SH-79")
def test_records_of_a_connection_whose_end_the_broker_does_not_notice_are_released(
    server: RealBroker, unique: Name, group: str
) -> None:
    topic = topic_with(server, unique("topic"), 10)
    configure(server, group, {"share.record.lock.duration.ms": "60000"})
    with ShareConsumer(server.bootstrap, group=group, acknowledgement_mode="explicit") as consumer:
        consumer.subscribe([topic])
        (first,) = consumer.poll(PATIENCE_S)
        (sock,) = [
            one.sock for key, one in consumer._driver._channels.items() if key[0] is ConnectionPurpose.DATA and one.sock
        ]
        kept = os.dup(sock.fileno())
        try:
            sock.shutdown(socket.SHUT_RD)  # the client reads an end, and the broker sees nothing
            wait_until(lambda: not first.session.alive)
            again = read(consumer, 10)
            assert time.monotonic() < first.lock_until
            assert {*values(again)} == {record.value for record in first}
            assert {batch.delivery_count for batch in again} == {2}
        finally:
            os.close(kept)


@pytest.mark.full
@pytest.mark.proves("SH-76")
def test_an_old_broker_has_no_share_groups(unique: Name) -> None:
    with RealBroker(version="3.9.1") as broker:
        topic = topic_with(broker, unique("topic"), 1)
        with ShareConsumer(broker.bootstrap, group="jobs") as consumer:
            consumer.subscribe([topic])
            with pytest.raises(ShareGroupsUnsupported, match=r"share\.version=1"):
                consumer.poll(PATIENCE_S)
