"""Commits of a whole consumer: whose answer an answer is."""

import time

import pytest

from kohort import Consumer
from kohort.coordinator_client.errors import OperationTimeout
from kohort.fastpath.topic_partition import TopicPartition
from kohort.protocol.apis.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.protocol.errors import BrokerError
from kohort.testing.fake_broker import Answer, FakeBroker, Hold
from tests.coordinator_client.kit import poll_until

P0 = TopicPartition("topic", 0)
INVALID_COMMIT_OFFSET_SIZE = 28


@pytest.mark.proves("B-23", "S-08")
def test_the_late_answer_of_a_commit_that_was_given_up_is_not_that_of_the_next() -> None:
    refusal = OffsetCommitResponse(
        topics=(
            OffsetCommitResponseTopic(
                name="topic",
                partitions=(OffsetCommitResponsePartition(partition_index=0, error_code=INVALID_COMMIT_OFFSET_SIZE),),
            ),
        )
    )
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap, group="group") as consumer:
        held = Hold()
        fake.control("OffsetCommit", lambda call: held if call.number == 0 else Answer(refusal), times=2)
        consumer.assign([P0])
        with pytest.raises(OperationTimeout, match="unknown"):
            consumer.commit({P0: 1}, timeout_s=0.3)
        ended: list[Exception | None] = []
        consumer.commit_async({P0: 2}, lambda _offsets, error: ended.append(error))
        time.sleep(0.1)  # it is on its way, behind the one that is not answered yet
        held.release()
        poll_until(consumer, lambda: bool(ended))
        assert isinstance(ended[0], BrokerError)
