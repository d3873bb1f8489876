"""What a callback may do: it runs inside poll like a hook, and unlike one it may close."""

import threading

import pytest

from kohort.coordinator_client import Consumer
from kohort.fastpath import TopicPartition
from kohort.testing.fake_broker import FakeBroker

P0 = TopicPartition("topic", 0)


@pytest.mark.proves("S-08", "B-36")
def test_iteration_ends_when_a_callback_closes_the_consumer() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        consumer = Consumer(fake.bootstrap, group="group")
        consumer.assign({P0: 0})
        consumer.commit_async({P0: 0}, lambda _offsets, _error: consumer.close())
        iterating = threading.Thread(target=lambda: list(consumer), daemon=True)
        iterating.start()
        iterating.join(10)
        assert not iterating.is_alive()
