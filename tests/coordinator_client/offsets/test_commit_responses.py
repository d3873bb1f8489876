"""Commits of a whole consumer: the matching of responses, and the members that may commit."""

import time
from collections.abc import Callable

import pytest

from kohort import Consumer
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.network.errors import OperationTimeout
from kohort.protocol.errors import BrokerError
from kohort.testing.fake_broker import Alter, Delay, FakeBroker, Hold
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until, read, refuse_commits
from tests.coordinator_client.group.test_consumer_group import PROTOCOLS

P0, P1 = TopicPartition("topic", 0), TopicPartition("topic", 1)
INVALID_COMMIT_OFFSET_SIZE = 28


@pytest.mark.proves("B-23", "S-08")
def test_the_late_response_of_a_commit_that_was_given_up_is_not_that_of_the_next() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap, group="group") as consumer:
        held = Hold()
        fake.control(
            "OffsetCommit", lambda call: refuse_commits(INVALID_COMMIT_OFFSET_SIZE) if call.number else held, times=2
        )
        consumer.assign([P0])
        with pytest.raises(OperationTimeout, match="unknown"):
            consumer.commit({P0: 1}, timeout_s=0.3)
        ended: list[Exception | None] = []
        consumer.commit_async({P0: 2}, lambda _offsets, error: ended.append(error))
        time.sleep(0.1)  # it is on its way, behind the one without a response
        held.release()
        poll_until(consumer, lambda: bool(ended))
        assert isinstance(ended[0], BrokerError)


@pytest.mark.proves("B-23")
def test_a_partition_that_a_response_leaves_out_was_not_committed() -> None:
    with FakeBroker(topics={"topic": 2}) as fake, Consumer(fake.bootstrap, group="group") as consumer:
        consumer.assign([P0, P1])
        fake.control("OffsetCommit", lambda call: Alter(lambda response: response._replace(topics=())), times=1)
        with pytest.raises(BrokerError, match="topic"):
            consumer.commit({P0: 1, P1: 1})
        consumer.commit({P0: 1, P1: 1})


@pytest.mark.proves("S-08")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_committed_without_waiting_is_stored_before_the_goodbye(protocol: GroupProtocol) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        reported: list[Exception | None] = []
        with Consumer(fake.bootstrap, group="group", protocol=protocol) as consumer:
            consumer.subscribe(["topic"])
            poll_until(consumer, lambda: consumer.assignment == {P0})
            fake.control("OffsetCommit", lambda call: Delay(0.1))
            for offset in (20, 21, 22):
                consumer.commit_async({P0: offset}, lambda _offsets, error: reported.append(error))
        snapshot = fake.group("group") if protocol == "classic" else fake.consumer_group("group")
        assert snapshot.offsets[P0].offset == 22
        assert reported == [None] * 3


def subscribes(consumer: Consumer) -> None:
    consumer.subscribe(["topic"])


def assigns(consumer: Consumer) -> None:
    consumer.assign([P0])


@pytest.mark.proves("S-04")
@pytest.mark.parametrize("reads", [subscribes, assigns])
@pytest.mark.parametrize("interval_ms", [50, 3_600_000])
def test_a_consumer_that_has_sought_back_is_committed_there_by_itself(
    reads: Callable[[Consumer], None], interval_ms: int
) -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        fake.produce("topic", 0, [(None, b"%d" % number) for number in range(20)])
        fake.commit("group", {P0: 15})
        with Consumer(
            fake.bootstrap, group="group", enable_auto_commit=True, auto_commit_interval_ms=interval_ms
        ) as consumer:
            reads(consumer)
            read(consumer, 5)
            consumer.seek(P0, 3)
            consumer.pause([P0])  # or it would read on from there
            consumer.poll(0.3)
            consumer.poll(0.3)
        assert fake.group("group").offsets[P0].offset == 3


@pytest.mark.proves("S-04")
def test_a_close_that_commits_ends_with_the_response_to_that() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        consumer = Consumer(
            fake.bootstrap,
            group="group",
            enable_auto_commit=True,
            auto_commit_interval_ms=3_600_000,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )
        consumer.assign([P0])
        consumer.poll(0)
        time.sleep(0.2)  # an automatic commit is due once at the start, and finds nothing
        fake.produce("topic", 0, [(None, b"value")])
        read(consumer, 1)
        consumer.pause([P0])
        consumer.poll(0.5)  # until no Fetch response is due that would wake a thread
        began = time.monotonic()
        consumer.close(PATIENCE_S)
        assert time.monotonic() - began < PATIENCE_S / 2
        assert fake.group("group").offsets[P0].offset == 1
