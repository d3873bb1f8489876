"""The rights of a callback: it runs inside poll like a hook, and unlike one it may close."""

import threading

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer, OffsetReset
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until

P0 = TopicPartition("topic", 0)


@pytest.mark.proves("S-08", "B-36")
def test_iteration_ends_when_a_callback_closes_the_consumer() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        consumer = Consumer(fake.bootstrap, group="group")
        consumer.assign({P0: 0})
        consumer.commit_async({P0: 0}, lambda _offsets, _error: consumer.close())
        iterating = threading.Thread(target=lambda: list(consumer), daemon=True)
        iterating.start()
        iterating.join(120)
        assert not iterating.is_alive()


@pytest.mark.proves("G-11")
def test_a_reset_is_reported_though_the_function_raised_for_another() -> None:
    reported: list[TopicPartition] = []

    def on_reset(gap: OffsetReset) -> None:
        reported.append(gap.partition)
        if len(reported) == 1:
            raise ZeroDivisionError("the user's own")

    wanted = {TopicPartition("topic", number) for number in range(3)}
    with FakeBroker(topics={"topic": 3}) as fake, Consumer(fake.bootstrap, on_reset=on_reset) as consumer:
        consumer.assign(wanted)
        for partition in wanted:
            consumer.position(partition, PATIENCE_S)  # all are found before the first callback
        with pytest.raises(ZeroDivisionError):
            consumer.poll(0)
        poll_until(consumer, lambda: len(reported) == 3)
        assert set(reported) == wanted
