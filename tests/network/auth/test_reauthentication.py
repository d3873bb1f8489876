"""KIP-368: a session that ends is renewed on the connection that it belongs to, and no request is lost over it."""

import time
from collections.abc import Callable, Iterator

import pytest

from kohort.coordinator_client import Consumer
from kohort.network.client_settings import SaslMechanism
from kohort.testing import RealBroker
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce, read

LIFETIME_MS = 1_500


@pytest.fixture(scope="module")
def impatient() -> Iterator[RealBroker]:
    """A broker whose sessions end after LIFETIME_MS."""
    properties = {"connections.max.reauth.ms": str(LIFETIME_MS)}
    with RealBroker(users={"alice": "s3cret"}, properties=properties) as broker:
        yield broker


@pytest.mark.broker
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_sessions_are_renewed_without_a_new_connection(
    mechanism: SaslMechanism, impatient: RealBroker, unique: Callable[[str], str]
) -> None:
    topic = unique("topic")
    create_topic(impatient.bootstrap, topic, partitions=1)
    with Consumer(
        impatient.bootstrap_sasl,
        group=unique("group"),
        auto_offset_reset="earliest",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username="alice",
        sasl_password="s3cret",
    ) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 1)
        produce(impatient.bootstrap, topic, numbers(0, 1))
        read(consumer, 1)
        channels = consumer._session.driver._channels
        before = {line: channel.connection for line, channel in channels.items()}
        ends = time.monotonic() + 4 * LIFETIME_MS / 1000
        written = 1
        while time.monotonic() < ends:
            produce(impatient.bootstrap, topic, numbers(written, 1))
            assert [record.value for record in read(consumer, 1)] == numbers(written, 1)
            consumer.commit()
            written += 1
        assert {line: channel.connection for line, channel in channels.items() if line in before} == before
        reading = [connection for connection in before.values() if connection._authentications >= 3]
        assert len(reading) >= 2  # the one that fetches and the coordinator's, each several times
        assert len(consumer.timeline()) == 1
