"""An assignor may take its time: meanwhile its member heartbeats, serves its user, and can be closed."""

import threading
from collections.abc import Iterable

import pytest

from kohort.assignors import GroupView, MemberSubscription, Plan, Rebalance
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client import Consumer
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import poll_until, wait_until


class Waits:
    """Plans once it is let."""

    name = "waits"
    rebalance = Rebalance.EAGER

    def __init__(self) -> None:
        self.called = threading.Event()
        self.may_end = threading.Event()
        self.threads: set[str] = set()

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        return MemberSubscription(tuple(topics))

    def assign(self, group: GroupView) -> Plan:
        self.threads.add(threading.current_thread().name)
        self.called.set()
        assert self.may_end.wait(120)
        return Plan.of(group, {group.members[0].id: [group.partition(index) for index in range(group.size)]})


@pytest.fixture
def waits() -> Iterable[Waits]:
    assignor = Waits()
    yield assignor
    assignor.may_end.set()


def beats(fake: FakeBroker) -> int:
    return sum(call.api == "Heartbeat" for call in fake.calls)


@pytest.mark.proves("F-02", "F-04", "S-13")
def test_a_slow_assignor_stops_neither_heartbeats_nor_the_user(waits: Waits) -> None:
    with (
        FakeBroker(topics={"topic": 2}) as fake,
        Consumer(
            fake.bootstrap, group="group", assignors=[waits], heartbeat_interval_ms=100, session_timeout_ms=1_000
        ) as consumer,
    ):
        consumer.subscribe(["topic"])
        wait_until(waits.called.is_set)
        before = beats(fake)
        wait_until(lambda: beats(fake) >= before + 30)  # three seconds, three sessions
        consumer.pause(topics=["topic"])
        assert consumer.poll(0.01) == []
        assert consumer.health().state == "leading: planning the assignment"
        assert consumer.health().healthy
        consumer.resume(topics=["topic"])
        waits.may_end.set()
        poll_until(consumer, lambda: len(consumer.assignment) == 2)
        assert consumer.group_metadata().generation == 1, "the group never missed it"
        assert len(consumer.timeline()) == 1
    assert waits.threads == {"kohort-assignor"}


@pytest.mark.proves("B-36")
def test_a_consumer_is_closed_while_its_assignor_runs(waits: Waits) -> None:
    with FakeBroker(topics={"topic": 2}) as fake:
        consumer = Consumer(fake.bootstrap, group="group", assignors=[waits], session_timeout_ms=30_000)
        consumer.subscribe(["topic"])
        wait_until(waits.called.is_set)
        consumer.close(20)
        assert [call.api for call in fake.calls].count("LeaveGroup") == 1
        assert not waits.may_end.is_set()
