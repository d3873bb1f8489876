"""The lag assignor in a live group: its leader asks the broker how many records wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from kohort.assignors.lag import LagAssignor, lag_from_offsets
from kohort.coordinator_client import Consumer
from kohort.fastpath import TopicPartition
from kohort.testing.selection import Broker


@pytest.mark.broker
def test_the_partition_that_waits_most_gets_a_member_of_its_own(
    broker: Broker, make_topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    from confluent_kafka import Producer

    topic, group = make_topic(5), unique("lag")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition, waiting in enumerate((3, 3, 200, 3, 3)):
        for _ in range(waiting):
            producer.produce(topic, b"x", partition=partition)
    assert producer.flush(20) == 0

    def lag_of(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        with Consumer(broker.bootstrap, group=group) as offsets:
            stored = offsets.committed(partitions)
            committed = {each: one.offset if (one := stored[each]) else None for each in partitions}
            return lag_from_offsets(committed, offsets.end_offsets(partitions), offsets.beginning_offsets(partitions))

    def join() -> Consumer:
        consumer = Consumer(broker.bootstrap, group=group, assignors=[LagAssignor(lag_of)], heartbeat_interval_ms=100)
        consumer.subscribe([topic])
        return consumer

    with join() as first, join() as second:
        limit = time.monotonic() + 40
        shares: set[frozenset[int]] = set()
        while shares != {frozenset({2}), frozenset({0, 1, 3, 4})}:
            assert time.monotonic() < limit, shares
            for consumer in (first, second):
                consumer.poll(0.05)
                consumer.pause(consumer.assignment)
            shares = {frozenset(each.partition for each in consumer.assignment) for consumer in (first, second)}
