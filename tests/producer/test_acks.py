"""acks=1 and acks=0: without a producer id, and what each gives up."""

from typing import Any

import pytest

from kohort import Consumer, Producer
from kohort.common import TopicPartition
from kohort.fastpath.batches import batches
from kohort.network.errors import ConfigError
from kohort.producer import Delivered, ProducerConfig
from kohort.producer.producer_settings import Acks
from kohort.testing.fake_broker import Close, FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.producer.producer_world import TOPIC, World
from tests.producer.test_producer_interrupts import HASTY

P0 = TopicPartition(TOPIC, 0)


@pytest.mark.parametrize(
    ("given", "acks"), [(0, "0"), ("0", "0"), (1, "1"), ("all", "all"), (-1, "all"), ("-1", "all")]
)
def test_acks_is_a_number_or_all(given: Any, acks: str) -> None:
    assert ProducerConfig.of(bootstrap="b:1", acks=given).acks == acks
    config = ProducerConfig.from_kafka({"bootstrap.servers": "b:1", "acks": given})
    assert (config.acks, config.idempotent) == (acks, acks == "all")


@pytest.mark.parametrize("given", [2, "two", True, None])
def test_other_acks_are_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="acks must be 0, 1 or 'all'"):
        ProducerConfig.of(bootstrap="b:1", acks=given)


def test_a_transaction_needs_acks_of_all() -> None:
    with pytest.raises(ConfigError, match="acks=all, not 1"):
        ProducerConfig.of(bootstrap="b:1", acks=1, transactional_id="t")


@pytest.mark.parametrize(("acks", "idempotence", "right"), [("all", "false", "true"), ("1", True, "false")])
def test_idempotence_follows_from_acks(acks: str, idempotence: Any, right: str) -> None:
    properties = {"bootstrap.servers": "b:1", "acks": acks}
    with pytest.raises(ConfigError, match=f"enable.idempotence is always {right} with acks={acks}"):
        ProducerConfig.from_kafka(properties | {"enable.idempotence": idempotence})
    assert ProducerConfig.from_kafka(properties | {"enable.idempotence": right}).acks == acks


@pytest.mark.parametrize(("acks", "offset"), [(1, 1), (0, -1)])
def test_records_are_sent_without_a_producer_id(acks: Acks, offset: int) -> None:
    with FakeBroker(topics={"t": 1}) as fake:
        with Producer(fake.bootstrap, acks=acks, linger_ms=0) as producer:
            producer.send("t", b"x").result(PATIENCE_S)
            assert producer.send("t", b"y").result(PATIENCE_S) == Delivered("t", 0, offset)
            producer.flush(PATIENCE_S)
            assert producer.metrics().request_latency_avg_ms is not None, "to its response, or until it is written"
            assert producer.metrics()["request_failures_total"] == 0
        with Consumer(fake.bootstrap, auto_offset_reset="earliest") as reader:  # without a response, they may be late
            reader.assign([TopicPartition("t", 0)])
            while reader.position(TopicPartition("t", 0)) < 2:
                reader.poll(PATIENCE_S)
        assert fake.calls_of("InitProducerId") == []
        (head, *_) = batches(bytes(fake.calls_of("Produce")[0].request.topic_data[0].partition_data[0].records))  # type: ignore[attr-defined]
        assert (head.producer_id, head.base_sequence) == (-1, -1)
        assert fake.end_offset("t", 0) == 2


def test_many_records_without_acknowledgement_are_all_written() -> None:
    """Their requests are over when they are written: none waits for a response, and the buffer is free again."""
    with FakeBroker(topics={"t": 2}) as fake:
        with Producer(
            fake.bootstrap, acks=0, batch_bytes=2_000, buffer_bytes=20_000, max_request_bytes=4_000
        ) as producer:
            for number in range(3_000):
                producer.send("t", b"%06d" % number * 10, partition=number % 2)
            producer.flush(PATIENCE_S)
            assert producer.buffered_bytes == 0
            producer.send("t", b"last").result(PATIENCE_S)
        assert producer.metrics()["connection_close_total"] == 0


def test_under_acks_1_a_lost_response_doubles_a_record_which_idempotence_prevents() -> None:
    cases: tuple[tuple[Acks, int], ...] = ((1, 2), ("all", 1))
    for acks, expected in cases:
        with FakeBroker(topics={"t": 1}) as fake, Producer(fake.bootstrap, acks=acks, **HASTY) as producer:
            laid = fake.control("Produce", lambda _call: Close(after_work=True), times=1)
            producer.send("t", b"x").result(PATIENCE_S)
            laid.remove()
            assert fake.end_offset("t", 0) == expected


@pytest.mark.parametrize("seed", range(20))
def test_under_acks_1_each_delivery_says_where_its_record_is(seed: int) -> None:
    """Faults double and reorder, but no record is lost, and with one request in flight the order is kept."""
    world = World(seed, acks=1, max_in_flight=1)
    for log in world.logs.values():
        log.append = lambda records, log=log: _append(log, records)  # type: ignore[method-assign, misc]
    world.run(600)
    world.calm()
    at = {place.partition: -1 for place in world.logs}
    for delivery, value in world.sent:
        reported = delivery.result()
        assert reported.offset > at[reported.partition]
        at[reported.partition] = reported.offset
        assert world.logs[TopicPartition(TOPIC, reported.partition)].values[reported.offset] == value


def _append(log: Any, records: bytes) -> tuple[int, int]:
    from tests.producer.test_producer_machine import _values

    offset = len(log.values)
    log.values += _values(records)
    return 0, offset
