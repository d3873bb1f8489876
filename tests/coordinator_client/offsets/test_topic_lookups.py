"""Lookups of topics and partitions: as last known, or as they are now."""

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kohort import AsyncConsumer, Consumer, TopicPartition
from kohort.testing.topics import serves
from tests.support.broker_selection import SelectedBroker

pytestmark = pytest.mark.broker


def grow(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.create_partitions([NewPartitions(topic, partitions)]).values()
    future.result(120)
    while not serves(bootstrap, topic, partitions):
        pass


def test_partitions_that_were_added_are_seen_by_who_asks_afresh(
    broker: SelectedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(2)
    two, four = (tuple(TopicPartition(topic, n) for n in range(count)) for count in (2, 4))
    with Consumer(broker.bootstrap) as consumer:
        assert consumer.partitions_for(topic) == two
        grow(broker.bootstrap, topic, 4)
        assert consumer.partitions_for(topic, fresh=True) == four
        assert consumer.partitions_for(topic) == four


def test_all_topics_are_those_that_are_there_now(broker: SelectedBroker, make_topic: Callable[..., str]) -> None:
    first = make_topic(1)
    with Consumer(broker.bootstrap, exclude_internal_topics=False, group=first) as consumer:
        consumer.commit({TopicPartition(first, 0): 0})
        assert consumer.topics()[first] == (TopicPartition(first, 0),)
        second = make_topic(2)
        found = consumer.topics()
        assert found[second] == (TopicPartition(second, 0), TopicPartition(second, 1))
        assert "__consumer_offsets" in found
        assert consumer.partitions_for(first) == (TopicPartition(first, 0),)

    async def send() -> tuple[dict[str, tuple[TopicPartition, ...]], tuple[TopicPartition, ...]]:
        async with AsyncConsumer(broker.bootstrap) as consumer:
            return await consumer.topics(), await consumer.partitions_for(second, fresh=True)

    everything, one = asyncio.run(send())
    assert not [name for name in everything if name.startswith("__")]
    assert (everything[first], everything[second]) == (found[first], found[second])
    assert one == found[second]
