"""Every kind of request of a producer loses its answer, in every way there is; each record is in the log once."""

import pytest

from kohort import Producer
from kohort.fastpath import decode
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.kit import PATIENCE_S
from tests.testing.group_client import Connection
from tests.testing.test_consumer_on_fake import FAULTS

RECORDS = 40


def values(bootstrap: str) -> list[bytes | None]:
    """All that is in the log of the topic."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    request = {"max_wait_ms": 0, "min_bytes": 0, "topics": [{"topic": "topic", "partitions": [partition]}]}
    with Connection(bootstrap) as connection:
        records = connection.ask("Fetch", {**request, "forgotten_topics_data": []}, at_most=12)
    return [record.value for record in decode(records.responses[0].partitions[0].records)]


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
