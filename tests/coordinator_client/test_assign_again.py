"""A manual assignment that is given up and taken again."""

from collections.abc import Callable

import pytest

from kohort import Consumer, TopicPartition
from kohort.producer import Producer
from tests.support.broker_selection import SelectedBroker

pytestmark = pytest.mark.broker


def test_a_partition_that_is_assigned_again_begins_at_its_new_start(
    broker: SelectedBroker, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(1)
    place = TopicPartition(topic, 0)
    with Producer(broker.bootstrap) as producer:
        for n in range(50):
            producer.send(topic, b"%d" % n)
    with Consumer(broker.bootstrap, auto_offset_reset="none") as consumer:
        for _ in range(3):
            consumer.assign({place: 0})
            found: list[int] = []
            while len(found) < 50:
                found += [offset for columns in consumer.poll(10.0) for offset in columns.offsets]
            assert found == list(range(50))
            consumer.unsubscribe()
