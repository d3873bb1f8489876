"""A connection that ends while nothing waits for a response in it."""

import pytest

from kohort import Consumer, TopicPartition
from kohort.testing import FakeBroker
from tests.coordinator_client.consumer_helpers import poll_until


def end_connection(fake: FakeBroker, number: int) -> None:
    _node, writer = fake._writers[number]
    fake._do(writer.close)


@pytest.mark.proves("F-05")
def test_only_the_coordinators_own_connection_says_that_the_coordinator_has_gone() -> None:
    with (
        FakeBroker(topics={"t": 1}) as fake,
        Consumer(fake.bootstrap, group="g", heartbeat_interval_ms=60_000, session_timeout_ms=180_000) as consumer,
    ):
        consumer.subscribe(["t"])
        poll_until(consumer, lambda: bool(consumer.assignment))
        poll_until(consumer, lambda: bool(fake.calls_of("Fetch")))
        control, group = (fake.calls_of(api)[-1].connection for api in ("Metadata", "SyncGroup"))
        assert control != group
        end_connection(fake, control)
        poll_until(consumer, lambda: consumer.metrics().connection_close_total == 1)
        consumer.end_offsets([TopicPartition("t", 0)])  # the driver has taken turns since
        assert len(fake.calls_of("FindCoordinator")) == 1
        end_connection(fake, group)
        poll_until(consumer, lambda: consumer.metrics().connection_close_total == 2)
        poll_until(consumer, lambda: len(fake.calls_of("FindCoordinator")) == 2)
        assert [one.kind for one in consumer.notices()].count("coordinator_gone") == 1
        assert consumer.health().state == "in the group"
