"""Dead letters of share groups, which brokers of 4.4 and newer write (KIP-1191)."""

from collections.abc import Callable, Iterator

import pytest

from kohort import Admin, Consumer, ShareConsumer, TopicPartition
from kohort.fastpath import Record
from kohort.testing import RealBroker
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import produce, read, wait_until

GROUP, TOPIC, DEAD = "g", "t", "dlq.t"


@pytest.fixture
def group_with_dead_letters() -> Iterator[str]:
    """The bootstrap address of a broker where two deliveries are the limit of the group."""
    with RealBroker(version="4.4.0") as broker:
        create_topic(broker.bootstrap, TOPIC)
        create_topic(broker.bootstrap, DEAD, config={"errors.deadletterqueue.group.enable": "true"})
        with Admin(broker.bootstrap) as admin:
            admin.set_group_configs(
                GROUP,
                {
                    "share.auto.offset.reset": "earliest",
                    "share.delivery.count.limit": "2",
                    "errors.deadletterqueue.topic.name": DEAD,
                    "errors.deadletterqueue.copy.record.enable": "true",
                },
            )
        yield broker.bootstrap


def acknowledged(consumer: ShareConsumer, count: int, how: Callable[[bytes | None], str]) -> None:
    """Poll until `count` records were delivered, and acknowledge each by its value."""
    delivered = 0

    def done() -> bool:
        nonlocal delivered
        for batch in consumer.poll(0.2):
            for record in batch:
                consumer.acknowledge(record, how(record.value))
                delivered += 1
        return delivered >= count

    wait_until(done)
    assert consumer.commit() == {}


def origin(record: Record) -> dict[str, bytes | None]:
    return {name.removeprefix("__dlq.errors."): value for name, value in record.headers}


@pytest.mark.broker
def test_rejected_records_and_those_at_their_limit_become_dead_letters(group_with_dead_letters: str) -> None:
    bootstrap = group_with_dead_letters
    produce(bootstrap, TOPIC, [b"good", b"rejected", b"released"])
    ways = {b"good": "accept", b"rejected": "reject", b"released": "release"}
    with ShareConsumer(bootstrap, group=GROUP) as consumer:
        consumer.subscribe([TOPIC])
        acknowledged(consumer, 4, lambda value: ways[value or b""])  # what is released comes twice
    with Consumer(bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(DEAD, 0)])
        letters = {record.value: origin(record) for record in read(reader, 2)}
    assert letters.keys() == {b"rejected", b"released"}
    assert {value: (found["offset"], found["delivery.count"]) for value, found in letters.items()} == {
        b"rejected": (b"1", b"1"),
        b"released": (b"2", b"2"),
    }
    assert {(found["topic"], found["group"]) for found in letters.values()} == {(TOPIC.encode(), GROUP.encode())}
