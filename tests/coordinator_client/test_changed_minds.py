"""Subscribing, assigning and unsubscribing in turns: what was asked for last holds, and nothing besides."""

import pytest

from kohort.coordinator_client import Consumer, IllegalState
from kohort.fastpath import TopicPartition
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.kit import Witness, poll_until

P0 = TopicPartition("topic", 0)


@pytest.mark.proves("F-13")
def test_a_subscription_that_is_refused_leaves_the_earlier_one_its_hooks() -> None:
    hooks = Witness()
    with FakeBroker(topics={"topic": 1}) as fake:
        with Consumer(fake.bootstrap, group="group") as consumer:
            consumer.subscribe(["topic"], hooks=hooks)
            with pytest.raises(IllegalState):
                consumer.subscribe(broker_pattern="topic", hooks=Witness())
            poll_until(consumer, lambda: consumer.assignment == {P0})
        assert hooks.kinds() == ["Assigned", "Revoked"]


def test_an_assignment_by_hand_ends_at_once_though_there_was_a_membership_before() -> None:
    with FakeBroker(topics={"topic": 1, "other": 1}) as fake, Consumer(fake.bootstrap, group="group") as consumer:
        consumer.subscribe(["other"])
        poll_until(consumer, lambda: len(consumer.assignment) == 1)
        consumer.unsubscribe()
        consumer.assign([P0])
        consumer.unsubscribe()
        assert consumer.assignment == frozenset()
        assert consumer.lag() == {}
        with pytest.raises(IllegalState):
            consumer.pause([P0])
