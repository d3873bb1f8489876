"""A broker that is starting does not know the cluster yet, and responds all the same: there is nothing."""

from typing import Any

import pytest

from kohort.coordinator_client import Consumer
from kohort.testing.fake_broker import Alter, Call, FakeBroker
from tests.coordinator_client.consumer_helpers import poll_until

UNKNOWN_TOPIC = 3


@pytest.mark.proves("B-18")
@pytest.mark.parametrize("subscription", [{"topics": ["topic"]}, {"pattern": "top.*"}], ids=["by name", "by pattern"])
def test_a_response_without_brokers_takes_no_topic_away(subscription: dict[str, Any]) -> None:
    requested: list[Call] = []

    def know_nothing(response: Any) -> Any:
        named = requested[-1].request.topics  # type: ignore[attr-defined]
        gone = [one._replace(error_code=UNKNOWN_TOPIC, partitions=()) for one in response.topics]
        return response._replace(brokers=(), controller_id=-1, topics=() if named is None else tuple(gone))

    def starting(call: Call) -> Alter:
        requested.append(call)
        return Alter(know_nothing)

    with (
        FakeBroker(topics={"topic": 2}) as fake,
        Consumer(fake.bootstrap, group="group", metadata_max_age_ms=50, retry_backoff_ms=10) as consumer,
    ):
        consumer.subscribe(**subscription)
        poll_until(consumer, lambda: len(consumer.assignment) == 2)
        before = consumer.health().generation
        fake.control("Metadata", starting)
        poll_until(consumer, lambda: len(requested) > 5)
        fake.control("Metadata", lambda call: None)
        known = len(fake.calls_of("Metadata"))
        poll_until(consumer, lambda: len(fake.calls_of("Metadata")) > known + 2)
        assert len(consumer.assignment) == 2
        assert consumer.health().generation == before
