"""The lag of a consumer, as the brokers know it now."""

from typing import Any

import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.testing.fake_broker import Alter, FakeBroker
from tests.coordinator_client.consumer_helpers import read

P0 = TopicPartition("topic", 0)


@pytest.mark.proves("K-09")
def test_what_is_written_behind_a_paused_position_counts() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap) as consumer:
        fake.produce("topic", 0, [(None, b"%d" % number) for number in range(5)])
        consumer.assign({P0: 0})
        read(consumer, 5)
        assert consumer.lag() == {P0: 0}
        consumer.pause([P0])
        consumer.poll(0.1)
        fake.produce("topic", 0, [(None, b"%d" % number) for number in range(5, 12)])
        consumer.poll(1.0)
        fake.produce("topic", 0, [(None, b"%d" % number) for number in range(12, 15)])
        assert consumer.lag() == {P0: 10}
        consumer.resume([P0])
        assert consumer.lag() == {P0: 10}


@pytest.mark.parametrize("others", [0, 1], ids=["less", "another"])
def test_an_end_that_a_response_leaves_out_is_requested_again(others: int) -> None:
    """And an end that was not requested does not stand in for it."""
    ends = [TopicPartition("topic", number) for number in range(2)]

    def first_only(response: Any) -> Any:
        (topic,) = response.topics
        first = next(one for one in topic.partitions if one.partition_index == 0)
        reported = (first, *(first._replace(partition_index=7 + number) for number in range(others)))
        return response._replace(topics=(topic._replace(partitions=reported),))

    with FakeBroker(topics={"topic": 2}) as fake, Consumer(fake.bootstrap, retry_backoff_ms=10) as consumer:
        fake.produce("topic", 1, [(None, b"1")])
        fake.control("ListOffsets", lambda _call: Alter(first_only), times=1)
        assert consumer.end_offsets(ends, 5.0) == {ends[0]: 0, ends[1]: 1}
