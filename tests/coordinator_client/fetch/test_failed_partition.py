"""A partition that cannot be read on: what has been read of it is read, and can be committed."""

from functools import partial
from uuid import UUID

import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client import AuthorizationFailed, Consumer
from kohort.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kohort.testing.fake_broker import Alter, FakeBroker
from tests.coordinator_client.consumer_helpers import poll_until, read

P0 = TopicPartition("topic", 0)
NOT_ALLOWED = 29


def refused(topic_id: UUID, response: FetchResponse) -> FetchResponse:
    """The response with an error of the partition, which a session's response lacks while nothing is new."""
    data = PartitionData(
        partition_index=0, error_code=NOT_ALLOWED, high_watermark=-1, aborted_transactions=None, records=None
    )
    return response._replace(responses=(FetchableTopicResponse(topic_id=topic_id, partitions=(data,)),))


@pytest.mark.proves("B-31", "S-05")
@pytest.mark.parametrize("automatic", [False, True])
def test_what_was_read_before_a_refusal_is_committed(automatic: bool) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        fake.produce("topic", 0, [(None, b"%d" % number) for number in range(5)])
        with Consumer(fake.bootstrap, group="group", fetch_max_wait_ms=50, enable_auto_commit=automatic) as consumer:
            consumer.assign({P0: 0})
            read(consumer, 5)
            topic_id = consumer.topic_id("topic")
            fake.control("Fetch", lambda call: Alter(partial(refused, topic_id)))
            with pytest.raises(AuthorizationFailed):
                poll_until(consumer, lambda: False)
            assert consumer.position(P0, timeout_s=1.0) == 5
            if not automatic:
                consumer.commit()
        with Consumer(fake.bootstrap, group="group") as other:
            found = other.committed([P0])[P0]
        assert found is not None
        assert found.offset == 5
