"""Every kind of request of a producer loses its answer, in every way there is; each record is in the log once."""

import pytest

from kohort import Producer
from kohort.fastpath import decode
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.kit import PATIENCE_S
from tests.testing.group_client import Connection, Stage
from tests.testing.test_consumer_on_fake import FAULTS
from tests.testing.test_fake_against_real import fetch

RECORDS = 40


def values(bootstrap: str) -> list[bytes | None]:
    """All that is in the log of the topic."""
    with Connection(bootstrap) as connection:
        return [record.value for record in decode(fetch(connection, Stage(bootstrap, "topic", "group"), 0).records)]


@pytest.mark.parametrize("api", ["ApiVersions", "InitProducerId", "Metadata", "Produce"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_answer_loses_and_doubles_no_record(api: str, fault: str) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        laid = fake.control(api, FAULTS[fault], times=3)
        with Producer(
            fake.bootstrap, linger_ms=0, batch_bytes=100, request_timeout_ms=500, retry_backoff_ms=10,
            reconnect_backoff_ms=10, connection_setup_timeout_ms=500,
        ) as producer:  # fmt: skip
            for number in range(RECORDS):
                producer.send("topic", b"%d" % number)
            producer.flush(PATIENCE_S)
        laid.remove()
        assert values(fake.bootstrap) == [b"%d" % number for number in range(RECORDS)]
