"""Transactions on a real broker: seen together or never, zombies fenced, offsets fenced by the group's generation."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import Consumer, Producer, TopicPartition
from kohort.coordinator_client import CommitFailed, IllegalState
from kohort.coordinator_client.consumer_settings import IsolationLevel
from kohort.producer import ProducerFenced, TransactionAborted, transaction_manager
from kohort.producer.transaction_version import V1
from kohort.protocol.errors import BrokerError
from kohort.testing import RealBroker
from kohort.testing.fault_proxy import ProxiedCluster
from kohort.testing.faults import TO_CLIENT, Reset
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce, read
from tests.coordinator_client.group.test_consumer_group import PROTOCOLS
from tests.support.broker_selection import SelectedBroker

Name = Callable[[str], str]
MakeTopic = Callable[..., str]


def seen(
    broker: SelectedBroker | Any, topic: str, count: int, isolation: IsolationLevel = "read_committed"
) -> list[bytes | None]:
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [record.value for record in read(consumer, count)]


def seen_by_librdkafka(broker: SelectedBroker, topic: str, group: str, count: int) -> list[bytes]:
    from confluent_kafka import Consumer as Librdkafka
    from confluent_kafka import TopicPartition as PeerPartition

    peer = Librdkafka(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    peer.assign([PeerPartition(topic, 0, 0)])
    got: list[Any] = []
    limit = time.monotonic() + 120
    while len(got) < count and time.monotonic() < limit:
        got += peer.consume(count, 1.0)
    peer.close()
    return [one.value() for one in got]


@pytest.mark.broker
def test_committed_is_seen_and_aborted_never(broker: SelectedBroker, make_topic: MakeTopic, unique: Name) -> None:
    topic = make_topic(1)
    with Producer(broker.bootstrap, transactional_id=unique("txn")) as producer:
        with pytest.raises(IllegalState, match="begin"):
            producer.send(topic, b"outside")
        with producer.transaction():
            for value in numbers(0, 5):
                producer.send(topic, value)
        producer.begin()
        assert producer.send(topic, b"aborted").result(120).offset >= 0
        producer.abort()
        with pytest.raises(TypeError), producer.transaction():
            producer.send(topic, 1)  # type: ignore[arg-type]
        producer.begin()
        producer.commit()  # of nothing
        with producer.transaction():
            producer.send(topic, b"5")
        with pytest.raises(IllegalState, match="no transaction to commit"):
            producer.commit()
    assert seen(broker, topic, 6) == numbers(0, 6)
    assert seen_by_librdkafka(broker, topic, unique("group"), 6) == numbers(0, 6)
    assert b"aborted" in seen(broker, topic, 7, "read_uncommitted")


@pytest.mark.broker
def test_of_two_with_the_same_id_the_newer_wins(coordinator: SelectedBroker, unique: Name) -> None:
    topic, name = made(coordinator, unique), unique("txn")
    old = Producer(coordinator.bootstrap, transactional_id=name)
    old.begin()
    old.send(topic, b"of the zombie").result(120)
    with Producer(coordinator.bootstrap, transactional_id=name) as new:
        new.begin()
        new.send(topic, b"of the newer").result(120)
        with pytest.raises(ProducerFenced):
            old.commit()
        with pytest.raises(ProducerFenced):
            old.abort()
        with pytest.raises(ProducerFenced):
            old.send(topic, b"x")
        old.close()
        new.commit()  # which the zombie's failure has not fenced
    silent = Producer(coordinator.bootstrap, transactional_id=unique("other"))
    silent.begin()
    with Producer(coordinator.bootstrap, transactional_id=silent._config.transactional_id) as newer:
        newer.begin()
        silent.send(topic, b"late")
        with pytest.raises(ProducerFenced):
            silent.commit()
    silent.close()
    assert seen(coordinator, topic, 1) == [b"of the newer"]


@pytest.mark.broker
def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    source, target, group = make_topic(1), make_topic(1), unique("group")
    tp = TopicPartition(source, 0)
    with (
        Producer(broker.bootstrap, transactional_id=unique("txn")) as producer,
        Consumer(broker.bootstrap, group=group, auto_offset_reset="earliest", session_timeout_ms=6_000) as consumer,
    ):
        consumer.subscribe([source])
        poll_until(consumer, lambda: tp in consumer.assignment)
        with producer.transaction():
            producer.send(target, b"1")
            producer.send_offsets({tp: 11}, consumer.group_metadata())
        assert consumer.committed([tp])[tp] == (11, -1, "")
        producer.begin()
        producer.send(target, b"2")
        producer.send_offsets({tp: 12}, consumer.group_metadata())
        producer.abort()
        assert consumer.committed([tp])[tp] == (11, -1, "")
        # A member of an older generation is a zombie to its group (KIP-447).
        stale = consumer.group_metadata()._replace(generation=consumer.group_metadata().generation + 7)
        producer.begin()
        producer.send(target, b"3")
        with pytest.raises(CommitFailed, match="ILLEGAL_GENERATION"):
            producer.send_offsets({tp: 13}, stale)
        with pytest.raises(TransactionAborted) as raised:
            producer.commit()
        assert isinstance(raised.value.__cause__, CommitFailed)
        producer.abort()
        with producer.transaction():
            producer.send(target, b"4")
            producer.send_offsets({tp: 14}, consumer.group_metadata())
        assert consumer.committed([tp])[tp] == (14, -1, "")
    assert seen(broker, target, 2) == [b"1", b"4"]


@pytest.mark.broker
@pytest.mark.proves("S-13", "S-09")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_of_a_member_that_lost_its_partitions_are_refused_before_it_knows_the_loss(
    protocol: str, broker: SelectedBroker, make_topic: MakeTopic, unique: Name
) -> None:
    """It took too long over what it had read; the heir has read and committed the same, and gone. The zombie's offsets,
    and with them its output, must not come after that, though the group is empty by then."""
    source, target, group = make_topic(1), make_topic(1), unique("group")
    tp = TopicPartition(source, 0)
    produce(broker.bootstrap, source, numbers(0, 4))
    settings: dict[str, Any] = {"group": group, "protocol": protocol, "auto_offset_reset": "earliest"}
    with (
        Producer(broker.bootstrap, transactional_id=unique("txn")) as late,
        Consumer(broker.bootstrap, max_poll_interval_ms=600, max_poll_records=2, **settings) as zombie,
    ):
        zombie.subscribe([source])
        assert len(read(zombie, 2)) == 2
        member = zombie.group_metadata()
        assert member.generation >= 1
        late.begin()
        late.send(target, b"twice")
        with Consumer(broker.bootstrap, **settings) as heir:
            heir.subscribe([source])
            read(heir, 4)  # the zombie's time is up
            heir.commit({tp: 4})
        assert zombie.group_metadata() == member
        with pytest.raises(CommitFailed):
            late.send_offsets({tp: 2}, zombie.group_metadata())
        late.abort()
        with late.transaction():
            late.send(target, b"once")
        stored = zombie.committed([tp])[tp]
        assert stored is not None
        assert stored.offset == 4
        poll_until(zombie, lambda: zombie.group_metadata() != member)
    assert seen(broker, target, 1) == [b"once"]


@pytest.mark.broker
def test_a_record_that_is_refused_fails_the_transaction_and_the_next_one_works(
    coordinator: SelectedBroker, unique: Name
) -> None:
    topic = made(coordinator, unique, config={"max.message.bytes": "1000"})
    with Producer(coordinator.bootstrap, transactional_id=unique("txn")) as producer:
        producer.begin()
        producer.send(topic, b"fits").result(120)
        producer.send(topic, b"x" * 2_000)
        with pytest.raises(TransactionAborted) as raised:
            producer.commit()
        assert isinstance(raised.value.__cause__, BrokerError)
        with pytest.raises(TransactionAborted):
            producer.send(topic, b"x")
        producer.abort()
        with producer.transaction():
            producer.send(topic, b"good")
    assert seen(coordinator, topic, 1) == [b"good"]


@pytest.mark.broker
def test_a_transaction_that_took_too_long_is_aborted(coordinator: SelectedBroker, unique: Name) -> None:
    """In version 1 the coordinator fences the producer by that, so that another one has to begin again."""
    topic, name = made(coordinator, unique), unique("txn")
    with Producer(coordinator.bootstrap, transactional_id=name, transaction_timeout_ms=1_000) as producer:
        producer.begin()
        producer.send(topic, b"slow").result(120)
        # The coordinator looks for such transactions every ten seconds.
        limit = time.monotonic() + 120
        with Consumer(coordinator.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            while consumer.end_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)] < 2:
                assert time.monotonic() < limit
                time.sleep(0.2)
        if producer._driver.core.transactions.version.implicit:
            with pytest.raises(TransactionAborted):
                producer.commit()
            producer.abort()
            again = producer
        else:
            with pytest.raises(ProducerFenced, match="transaction_timeout_ms"):
                producer.commit()
            again = Producer(coordinator.bootstrap, transactional_id=name)
        with again, again.transaction():
            again.send(topic, b"quick")
    assert seen(coordinator, topic, 1) == [b"quick"]


@pytest.fixture(scope="module")
def older() -> Iterator[RealBroker]:
    """A broker whose coordinator has version 1 of transactions only."""
    with RealBroker(version="3.9.1") as broker:
        yield broker


@pytest.fixture(params=["older", "of the run"])
def coordinator(request: pytest.FixtureRequest, older: RealBroker, broker: SelectedBroker) -> SelectedBroker:
    """A broker with version 1 of transactions, and the one of the run."""
    return older if request.param == "older" else broker


def made(broker: SelectedBroker, unique: Name, config: dict[str, str] | None = None) -> str:
    """A topic of one partition."""
    topic = unique("topic")
    create_topic(broker.bootstrap, topic, config=config)
    return topic


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A version of transactions. Version 1 is that of older brokers and clients, which newer brokers support."""
    if request.param == 1:
        monkeypatch.setattr(transaction_manager, "agreed", lambda _features: V1)
    return int(request.param)


@pytest.mark.broker
def test_lost_responses_of_coordinators_cost_nothing(version: int, unique: Name) -> None:
    with ProxiedCluster() as proxied:
        create_topic(proxied.cluster.bootstrap, "t")
        (proxy,) = proxied.proxies
        with Producer(proxied.bootstrap, transactional_id=unique("txn")) as producer:
            proxy.add(Reset(), direction=TO_CLIENT, api="InitProducerId", times=1)
            producer.begin()
            implicit = producer._driver.core.transactions.version.implicit
            producer.abort()
            assert not (version == 1 and implicit)
            apis = ("Produce", "EndTxn") if implicit else ("AddPartitionsToTxn", "Produce", "EndTxn")
            for n, api in enumerate(apis):
                laid = proxy.add(Reset(), direction=TO_CLIENT, api=api, times=1)
                with producer.transaction():
                    producer.send("t", b"%d" % n)
                assert laid.hits == 1
        assert seen(proxied.cluster, "t", len(apis)) == numbers(0, len(apis))
