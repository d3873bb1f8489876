"""A producer on real brokers: acknowledged records are there once, in order, for every reader."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from kohort import Consumer, Producer, Record, TopicPartition
from kohort.common import KohortError
from kohort.coordinator_client import ConfigError, IllegalState, OperationTimeout, UnknownTopic
from kohort.fastpath import Codec
from kohort.producer import BufferFull, Delivery, DeliveryTimeout, ProducerClosed, ProducerConfig
from kohort.producer.producer_settings import CompressionType
from kohort.protocol.errors import BrokerError
from kohort.testing.fault_proxy import ProxiedCluster
from kohort.testing.faults import TO_BROKER, TO_CLIENT, Reset
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import numbers, read
from tests.support.broker_selection import SelectedBroker

Name = Callable[[str], str]
MakeTopic = Callable[..., str]


def everything(bootstrap: str, topic: str, count: int, partitions: int = 1, **settings: Any) -> list[Record]:
    """All records of a topic, by partition and offset."""
    with Consumer(bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(partitions)])
        return sorted(read(consumer, count), key=lambda record: (record.partition, record.offset))


@pytest.mark.broker
@pytest.mark.parametrize("codec", [codec.name.lower() for codec in Codec])
def test_what_is_sent_is_what_others_read(
    broker: SelectedBroker, make_topic: MakeTopic, codec: CompressionType
) -> None:
    from confluent_kafka import Consumer as Librdkafka
    from confluent_kafka import TopicPartition as PeerPartition

    topic = make_topic(2)
    with Producer(broker.bootstrap, compression=codec) as producer:
        sent = [
            producer.send(topic, b"v%d" % n, b"k%d" % n, headers=[("a", b"1"), ("a", None)], timestamp_ms=1_000 + n)
            for n in range(300)
        ]
        sent += [producer.send(topic, None, b"gone"), producer.send(topic, b"", partition=1)]
        places = {(reported.partition, reported.offset) for reported in (delivery.result(120) for delivery in sent)}
    assert len(places) == 302
    peer = Librdkafka({"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    peer.assign([PeerPartition(topic, number, 0) for number in range(2)])
    got: list[Any] = []
    limit = time.monotonic() + 120
    while len(got) < 302 and time.monotonic() < limit:
        got += peer.consume(302 - len(got), 1.0)
    peer.close()
    assert {(one.partition(), one.offset()) for one in got} == places
    by_key = {one.key(): one for one in got if one.key()}
    assert by_key[b"k7"].value() == b"v7"
    assert by_key[b"k7"].timestamp()[1] == 1_007
    assert by_key[b"k7"].headers() == [("a", b"1"), ("a", None)]
    assert by_key[b"gone"].value() is None


@pytest.mark.broker
def test_records_behind_a_first_batch_that_is_too_large_stay_behind_it(broker: SelectedBroker, unique: Name) -> None:
    """A broker has no number of a new producer id, so it would take the second batch while the first one is split."""
    topic = unique("topic")
    create_topic(broker.bootstrap, topic, config={"max.message.bytes": "2000"})
    for _ in range(6):
        with Producer(broker.bootstrap, linger_ms=0) as producer:
            for value in numbers(0, 20):
                producer.send(topic, value + b" " * 120)
            for value in numbers(20, 30):
                producer.send(topic, value)
                time.sleep(0.002)
    values = [int(record.value or b"") for record in everything(broker.bootstrap, topic, 300)]
    assert values == 6 * list(range(50))


@pytest.mark.broker
def test_a_batch_that_is_larger_than_a_segment_is_sent_in_parts(broker: SelectedBroker, unique: Name) -> None:
    topic = unique("topic")
    create_topic(broker.bootstrap, topic, config={"segment.bytes": "1048576", "max.message.bytes": "4000000"})
    with Producer(broker.bootstrap, transactional_id=topic, batch_bytes=3_000_000) as producer, producer.transaction():
        producer.send_arrow(topic, pa.table({"value": [bytes(400_000)] * 6}))
    assert len(everything(broker.bootstrap, topic, 6, isolation_level="read_committed")) == 6


@pytest.mark.broker
def test_broken_connections_double_nothing_and_lose_nothing() -> None:
    with ProxiedCluster() as proxied:
        create_topic(proxied.cluster.bootstrap, "t", partitions=3)
        (proxy,) = proxied.proxies
        stop = threading.Event()

        def harm() -> None:
            for n in range(10_000):
                # In turn: a request that never arrives, one that is cut, one that is done and whose response is lost.
                # With pauses: the last partition's batch goes alone, once a second, and some time has to get through.
                where, fault = (
                    (TO_BROKER, Reset()),
                    (TO_BROKER, Reset(500)),
                    (TO_CLIENT, Reset()),
                )[n % 3]
                laid = proxy.add(fault, direction=where, api="Produce", times=1)
                stop.wait(0.15)
                laid.remove()
                if stop.wait(0.15):
                    break

        with Producer(proxied.bootstrap, linger_ms=1, batch_bytes=2_000) as producer:
            producer.send("t", b"0", partition=0).result(120)
            thread = threading.Thread(target=harm)
            thread.start()
            try:
                sent = []
                for n in range(1, 6_000):
                    sent.append(producer.send("t", b"%d" % n, partition=n % 3))
                    if n % 100 == 0:
                        time.sleep(0.02)
                reported = [delivery.result(120) for delivery in sent]
            finally:
                stop.set()
                thread.join()
            ended = producer.metrics()["connection_close_total"]
        assert ended >= 3
        records = everything(proxied.cluster.bootstrap, "t", 6_000, 3)
    for partition in range(3):
        values = [record.value for record in records if record.partition == partition]
        assert values == [b"%d" % n for n in range(partition, 6_000, 3)]
    at = {(record.partition, record.offset): record.value for record in records}
    assert [at[one.partition, one.offset] for one in reported] == numbers(1, 5_999)


@pytest.mark.broker
def test_arrow_columns_arrive_as_records(broker: SelectedBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    keys = [None if n % 5 == 0 else b"k%d" % n for n in range(5_000)]
    table = pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([f"v{n}" if n % 7 else None for n in range(5_000)], pa.string()),
            "timestamp": pa.array(range(5_000), pa.timestamp("ms")),
        }
    )
    with Producer(broker.bootstrap, compression="zstd", batch_bytes=5_000) as producer:
        sent = producer.send_arrow(topic, pa.concat_tables([table.slice(0, 10), table.slice(10)]))
        assert len(sent) == 5_000
        counts = sent.result(120)
        alone = [producer.send(topic, b"", key=key).result(120).partition for key in keys[1:5] if key]
    assert sum(counts.values()) == 5_000
    records = everything(broker.bootstrap, topic, 5_000 + len(alone), 3)
    columnar = {record.timestamp_ms: record for record in records if record.value != b""}
    assert len(columnar) == 5_000
    for n, record in columnar.items():
        assert (record.key, record.value) == (keys[n], b"v%d" % n if n % 7 else None)
    assert [columnar[n].partition for n in range(1, 5)] == alone
    for partition in range(3):
        mine = [one for one in records if one.partition == partition and one.key and one.value != b""]
        order = [one.timestamp_ms for one in mine]
        assert order == sorted(order)


@pytest.mark.broker
def test_arrow_rows_may_name_partitions_and_carry_headers(broker: SelectedBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    pairs = [[{"key": "h", "value": b"1"}], None, []]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "value": pa.array([b"a", b"b", b"c"], pa.large_binary()),
            "partition": pa.array([1, 0, 1], pa.int64()),
            "headers": pa.array(pairs, kind),
        }
    )
    with Producer(broker.bootstrap) as producer:
        producer.send_arrow(topic, table).result(120)
        producer.send_arrow(topic, table.drop_columns(["headers"])).result(120)
        producer.send_arrow(topic, table.select(["value"]), partition=0).result(120)
        with pytest.raises(KohortError, match="no record has a column 'what'"):
            producer.send_arrow(topic, pa.table({"value": [b""], "what": [1]}))
        with pytest.raises(KohortError, match="cast it to binary"):
            producer.send_arrow(topic, pa.table({"value": [1]}))
        with pytest.raises(UnknownTopic, match="the topic has 2 partitions"):
            producer.send_arrow(topic, pa.table({"value": [b""], "partition": [2]}))
    records = everything(broker.bootstrap, topic, 9, 2)
    assert [(one.partition, one.value, one.headers) for one in records] == [
        (0, b"b", ()),
        (0, b"b", ()),
        (0, b"a", ()),
        (0, b"b", ()),
        (0, b"c", ()),
        (1, b"a", (("h", b"1"),)),
        (1, b"c", ()),
        (1, b"a", ()),
        (1, b"c", ()),
    ]


@pytest.mark.broker
def test_what_cannot_be_sent_says_why(broker: SelectedBroker, make_topic: MakeTopic, unique: Name) -> None:
    topic = make_topic(1, config={"max.message.bytes": "1000"})
    with Producer(broker.bootstrap, max_block_ms=8_000) as producer:
        with pytest.raises(UnknownTopic):
            producer.send(unique("nowhere"), b"x")
        with pytest.raises(UnknownTopic, match="1 partition "):
            producer.send(topic, b"x", partition=1)
        delivery = producer.send(topic, b"x" * 2_000)
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE") as raised:
            delivery.result(120)
        assert raised.value.place["partition"] == 0
        producer.flush(120)  # reported already
        producer.send(topic, b"x" * 2_000)
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            producer.flush(120)
        assert producer.send(topic, b"fits").result(120).offset == 0
        with pytest.raises(IllegalState, match="no transactions"):
            producer.commit()
    with pytest.raises(ProducerClosed):
        producer.send(topic, b"x")


@pytest.mark.broker
def test_a_broker_that_is_away_fills_the_buffer_and_then_time_is_up(make_topic: MakeTopic) -> None:
    with ProxiedCluster() as proxied:
        create_topic(proxied.cluster.bootstrap, "t")
        producer = Producer(
            proxied.bootstrap,
            max_block_ms=3_000,
            request_timeout_ms=1_000,
            delivery_timeout_ms=6_000,
            linger_ms=0,
            buffer_bytes=3_000,
            max_request_bytes=1_000,
            batch_bytes=1_000,
        )
        producer.send("t", b"x").result(120)
        proxied.proxies[0].add(Reset(), direction=TO_BROKER)
        sent: list[Delivery] = []
        with pytest.raises(BufferFull) as full:
            sent.extend(producer.send("t", b"x" * 500) for _ in range(100))
        assert full.value.place["buffer_bytes"] == 3_000
        assert producer.buffered_bytes <= 3_000
        with pytest.raises(OperationTimeout):
            sent[0].result(0.01)
        with pytest.raises(DeliveryTimeout):
            sent[0].result(120)
        with pytest.raises(DeliveryTimeout):
            producer.close(30)


def test_settings_that_cannot_work_are_refused_at_once() -> None:
    for settings, wrong in (
        ({"linger": 5}, "linger_ms"),
        ({"compression": "brotli"}, "compression must be one of"),
        ({"batch_bytes": 100, "max_request_bytes": 50}, "batch_bytes"),
        ({"buffer_bytes": 100}, "buffer_bytes"),
        ({"buffer_bytes": 1 << 63}, "buffer_bytes"),
        ({"delivery_timeout_ms": 100}, "delivery_timeout_ms"),
        ({"compression": "gzip", "compression_level": -1}, "compression_level"),
        ({"compression": "lz4", "compression_level": -1}, "compression_level"),
        ({"group": "g"}, "unknown setting 'group'"),
    ):
        with pytest.raises(ConfigError, match=wrong):
            Producer("127.0.0.1:1", **settings)
    with pytest.raises(ConfigError, match="acks must be"):
        Producer.from_config({"bootstrap.servers": "127.0.0.1:1", "acks": "2"})


@pytest.mark.parametrize("value", [True, "true", "True", "TRUE"])
def test_what_is_always_so_may_be_written_as_any_other_property(value: Any) -> None:
    reported = ProducerConfig.from_kafka(
        {"bootstrap.servers": "localhost:1", "enable.idempotence": value, "allow.auto.create.topics": value}
    )
    assert reported == ProducerConfig.of(bootstrap="localhost:1", allow_auto_create_topics=True)


def test_other_names_of_librdkafka_are_known() -> None:
    properties = {"message.timeout.ms": "90000", "compression.codec": "lz4", "max.in.flight": "3"}
    assert ProducerConfig.from_kafka({"bootstrap.servers": "b:1", **properties}) == ProducerConfig.of(
        bootstrap="b:1", delivery_timeout_ms=90_000, compression="lz4", max_in_flight=3
    )


@pytest.mark.broker
def test_a_java_properties_file_works(broker: SelectedBroker, make_topic: MakeTopic) -> None:
    topic = make_topic(1)
    properties = {"bootstrap.servers": broker.bootstrap, "acks": "all", "compression.type": "lz4", "linger.ms": "0"}
    with Producer.from_config(properties) as producer:
        assert producer.send(topic, b"x").result(120).offset == 0
