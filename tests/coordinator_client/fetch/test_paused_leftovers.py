"""The rest of a slice after `max_poll_records`, when the partition is paused before the rest could be returned."""

from collections.abc import Callable

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from tests.coordinator_client.consumer_helpers import numbers, produce, read
from tests.support.broker_selection import SelectedBroker

Name = Callable[[str], str]
MakeTopic = Callable[..., str]


@pytest.mark.broker
@pytest.mark.proves("K-09", "X-04")
@pytest.mark.parametrize("whole", [False, True], ids=["partition", "whole consumer"])
def test_the_rest_of_a_slice_waits_for_the_resume(
    broker: SelectedBroker, make_topic: MakeTopic, unique: Name, whole: bool
) -> None:
    """Fetches go on behind the parked records, so a dropped rest was skipped for good. The reader stood still at its
    position, with nothing left to fetch before it."""
    tp = TopicPartition(make_topic(1), 0)
    produce(broker.bootstrap, tp.topic, numbers(0, 100))
    with Consumer(
        broker.bootstrap, group=unique("group"), auto_offset_reset="earliest", max_poll_records=10
    ) as consumer:
        consumer.subscribe([tp.topic])
        assert [record.offset for record in read(consumer, 10)] == list(range(10))
        consumer.pause() if whole else consumer.pause([tp])
        for _ in range(5):
            assert consumer.poll(0.05) == []
        assert consumer.position(tp) == 10
        consumer.resume() if whole else consumer.resume([tp])
        assert [record.offset for record in read(consumer, 40)] == list(range(10, 50))
        consumer.pause([tp])
        consumer.poll(0.05)
        consumer.seek(tp, 20)
        consumer.resume([tp])
        assert [record.offset for record in read(consumer, 10)] == list(range(20, 30)), "a seek voids the rest"
