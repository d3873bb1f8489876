"""A partition that cannot be read on: what has been read of it is read, and can be committed."""

from typing import Any

import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client import AuthorizationFailed, Consumer
from kohort.testing.fake_broker import Alter, FakeBroker
from tests.coordinator_client.consumer_helpers import poll_until, read

P0 = TopicPartition("topic", 0)
NOT_ALLOWED = 29


def refused(answer: Any) -> Any:
    def row(one: Any) -> Any:
        return one._replace(error_code=NOT_ALLOWED, records=None)

    topics = tuple(one._replace(partitions=tuple(map(row, one.partitions))) for one in answer.responses)
    return answer._replace(responses=topics)


@pytest.mark.proves("B-31", "S-05")
@pytest.mark.parametrize("automatic", [False, True])
def test_what_was_read_before_a_refusal_is_committed(automatic: bool) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        fake.produce("topic", 0, [(None, b"%d" % number) for number in range(5)])
        with Consumer(fake.bootstrap, group="group", fetch_max_wait_ms=50, enable_auto_commit=automatic) as consumer:
            consumer.assign({P0: 0})
            read(consumer, 5)
            fake.control("Fetch", lambda call: Alter(refused))
            fake.produce("topic", 0, [(None, b"refused")])
            with pytest.raises(AuthorizationFailed):
                poll_until(consumer, lambda: False)
            assert consumer.position(P0, timeout_s=1.0) == 5
            if not automatic:
                consumer.commit()
        with Consumer(fake.bootstrap, group="group") as other:
            found = other.committed([P0])[P0]
        assert found is not None
        assert found.offset == 5
