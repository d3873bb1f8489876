"""Subscribing, assigning and unsubscribing in turns: the last call holds, and nothing besides."""

import contextlib
import time
from collections.abc import Callable

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer, IllegalState, UnknownTopic
from kohort.network import metadata_updater
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, Witness, poll_until, read, wait_until

P0, P1 = TopicPartition("topic", 0), TopicPartition("topic", 1)


@pytest.mark.proves("F-13")
def test_a_subscription_that_is_refused_leaves_the_earlier_one_its_hooks() -> None:
    hooks = Witness()
    with FakeBroker(topics={"topic": 1}) as fake:
        with Consumer(fake.bootstrap, group="group") as consumer:
            consumer.subscribe(["topic"], hooks=hooks)
            with pytest.raises(IllegalState):
                consumer.subscribe(broker_pattern="topic", hooks=Witness())
            poll_until(consumer, lambda: consumer.assignment == {P0})
        assert hooks.kinds() == ["Assigned", "Revoked"]


def test_an_assignment_by_hand_ends_at_once_though_there_was_a_membership_before() -> None:
    with FakeBroker(topics={"topic": 1, "other": 1}) as fake, Consumer(fake.bootstrap, group="group") as consumer:
        consumer.subscribe(["other"])
        poll_until(consumer, lambda: len(consumer.assignment) == 1)
        consumer.unsubscribe()
        consumer.assign([P0])
        consumer.unsubscribe()
        assert consumer.assignment == frozenset()
        assert consumer.lag() == {}
        with pytest.raises(IllegalState):
            consumer.pause([P0])


@pytest.mark.proves("S-04")
@pytest.mark.parametrize("go_on", [lambda consumer: consumer.assign([P1]), Consumer.unsubscribe])
def test_what_is_handled_is_committed_before_another_assignment(go_on: Callable[[Consumer], None]) -> None:
    with FakeBroker(topics={"topic": 2}) as fake:
        fake.produce("topic", 0, [(None, b"v")] * 5)
        with Consumer(
            fake.bootstrap, group="group", enable_auto_commit=True, auto_commit_interval_ms=1_000_000
        ) as consumer:
            consumer.assign({P0: 0})
            read(consumer, 5)
            consumer.poll(0)  # now those are handled
            go_on(consumer)
            wait_until(lambda: any(entry.offsets for entry in consumer.commit_log()))
            consumer.assign([P0])  # again: a reader of partitions in turn goes on where each was left
            assert consumer.position(P0) == 5


@pytest.mark.proves("S-04")
@pytest.mark.parametrize("go_on", [Consumer.close, Consumer.unsubscribe, lambda _consumer: time.sleep(0.1)])
def test_an_automatic_commit_does_not_move_a_commit_of_the_caller_back(go_on: Callable[[Consumer], None]) -> None:
    with (
        FakeBroker(topics={"topic": 1}) as fake,
        Consumer(
            fake.bootstrap,
            group="group",
            enable_auto_commit=True,
            auto_commit_interval_ms=20,
            auto_offset_reset="earliest",
            max_poll_records=5,
        ) as consumer,
    ):
        fake.produce("topic", 0, [(None, b"v")] * 10)
        consumer.subscribe(["topic"])
        read(consumer, 5)
        read(consumer, 5)  # only the first five are handled, as far as an automatic commit knows
        consumer.commit()
        go_on(consumer)
        stored = [entry.offsets[P0].offset for entry in consumer.commit_log()]
        assert stored == sorted(stored)
        assert stored[-1] == 10


@pytest.mark.proves("S-04")
def test_what_is_being_committed_is_waited_for_where_a_partition_comes_back_at_once() -> None:
    with FakeBroker(topics={"topic": 2}) as fake:
        fake.produce("topic", 0, [(None, b"v")] * 5)
        with Consumer(
            fake.bootstrap,
            group="group",
            enable_auto_commit=True,
            auto_commit_interval_ms=1_000_000,
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign({P0: 0})
            read(consumer, 5)
            consumer.poll(0)  # now those are handled
            driver, core = consumer._session.driver, consumer._session.core
            with driver.lock:  # no turn of the driver in between
                for wanted in (P1, P0):
                    core.before_leave(driver.now() + PATIENCE_S)
                    core.assign(frozenset({wanted}), {}, {})
            driver.wakeup()
            assert consumer.position(P0) == 5


@pytest.mark.proves("K-07")
def test_a_hook_that_an_unsubscribe_left_over_does_not_hide_what_was_assigned_by_hand_since() -> None:
    hooks = Witness()
    with FakeBroker(topics={"topic": 2}) as fake, Consumer(fake.bootstrap, group="group") as consumer:
        consumer.subscribe(["topic"], hooks=hooks)
        poll_until(consumer, lambda: consumer.assignment == {P0, P1})
        consumer._session.call(lambda core: core.unsubscribe())  # its time is up before the member has let go
        consumer.assign({P0: 0})
        consumer.pause([P0])
        poll_until(consumer, lambda: hooks.kinds() == ["Assigned", "Revoked"])
        assert consumer.assignment == {P0}
        assert consumer.paused().keys() == {P0}


@pytest.mark.proves("B-28")
@pytest.mark.parametrize("go_on", [lambda consumer: consumer.subscribe(["topic"]), Consumer.unsubscribe])
def test_a_topic_that_is_not_meant_any_more_is_not_missed(
    go_on: Callable[[Consumer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_updater, "UNKNOWN_TOPIC_GRACE_S", 0.0)
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap, group="group") as consumer:
        consumer.subscribe(["misspelt"])
        limit = time.monotonic() + PATIENCE_S
        while not consumer._session.read(lambda core: core._errors):
            assert time.monotonic() < limit
            time.sleep(0.01)
        go_on(consumer)
        with contextlib.suppress(IllegalState):  # of a poll after unsubscribe, which is not what is missed
            consumer.poll(0.1)
        consumer.subscribe(["misspelt"])
        with pytest.raises(UnknownTopic):
            poll_until(consumer, lambda: False)


def test_an_assigned_partition_that_does_not_exist_is_reported_once_and_read_once_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata_updater, "UNKNOWN_TOPIC_GRACE_S", 0.0)
    added = TopicPartition("topic", 2)
    with FakeBroker(topics={"topic": 2}) as fake, Consumer(fake.bootstrap) as consumer:
        consumer.assign({P0: 0, added: 0})
        with pytest.raises(UnknownTopic, match="no such partition") as raised:
            poll_until(consumer, lambda: False)
        assert raised.value.place["partition"] == 2
        fake.add_partitions("topic", 3)
        fake.produce("topic", 2, [(None, b"here")])
        assert [record.value for record in read(consumer, 1)] == [b"here"]
