"""How far a consumer is behind, as the brokers know it now."""

import pytest

from kohort.coordinator_client import Consumer
from kohort.fastpath.topic_partition import TopicPartition
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.kit import read

P0 = TopicPartition("topic", 0)


@pytest.mark.proves("K-09")
def test_what_is_written_behind_a_paused_position_counts() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap) as consumer:
        fake.produce("topic", 0, [(None, b"%d" % number) for number in range(5)])
        consumer.assign({P0: 0})
        read(consumer, 5)
        assert consumer.lag() == {P0: 0}
        consumer.pause([P0])
        consumer.poll(0.1)
        fake.produce("topic", 0, [(None, b"%d" % number) for number in range(5, 12)])
        consumer.poll(1.0)
        fake.produce("topic", 0, [(None, b"%d" % number) for number in range(12, 15)])
        assert consumer.lag() == {P0: 10}
        consumer.resume([P0])
        assert consumer.lag() == {P0: 10}
