"""Records of share sessions that were lost, of partitions that a session has no more, and of unsubscribed topics.

Locks last ten minutes here. So a record that comes again was released, and its lock has not expired.
"""

from collections.abc import Iterator

import pytest

from kohort import ShareConsumer, TopicPartition
from kohort.network.requests import ConnectionPurpose
from kohort.share_consumer import LockLost, ShareRecords
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Hold, OffsetState
from tests.share_consumer.test_share_consumer import (
    GROUP,
    P0,
    PATIENCE_S,
    TOPIC,
    broker_with,
    member,
    next_batch,
    offsets,
    until,
)

LONG = {"share.record.lock.duration.ms": "600000"}


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with broker_with(10) as broker:
        broker.configure_group(GROUP, {"share.auto.offset.reset": "earliest", **LONG})
        yield broker
        assert broker.faults == []


def lose_connections(fake: FakeBroker, consumer: ShareConsumer) -> None:
    """The broker ends all connections, and the client has noticed it."""
    driver = consumer._driver
    lines = {key: one for key, one in driver._channels.items() if key[0] is ConnectionPurpose.DATA}
    fake.disconnect()
    until(lambda: all(driver._channels.get(key) is not one for key, one in lines.items()))


def accepted(consumer: ShareConsumer) -> ShareRecords:
    batch = next_batch(consumer)
    consumer.acknowledge(batch)
    return batch


def states(fake: FakeBroker, topic: str = TOPIC, partition: int = 0) -> set[OffsetState]:
    return {state for state, _count in fake.share_states(GROUP, topic, partition)[1].values()}


@pytest.mark.proves("SH-65")
def test_the_end_of_an_idle_connection_ends_the_session_at_once(fake: FakeBroker) -> None:
    with member(fake, acknowledgement_mode="explicit", max_poll_records=5, acquire_mode="record_limit") as consumer:
        batch = next_batch(consumer)
        consumer.acknowledge(batch.columns[0])
        lose_connections(fake, consumer)
        (error,) = consumer.commit()[P0].values()
        assert isinstance(error, LockLost)
        seen = [offset for _ in range(2) for offset in offsets(accepted(consumer))]
        assert sorted(seen) == list(range(10))
        assert consumer.commit() == {}


@pytest.mark.proves("SH-65", "SH-83")
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_a_session_that_is_lost_before_the_first_acknowledgement_makes_it_fail(fake: FakeBroker, mode: str) -> None:
    """Without a failure the caller would believe that the records are done."""
    with member(fake, acknowledgement_mode=mode) as consumer:
        batch = next_batch(consumer)
        lose_connections(fake, consumer)
        if mode == "explicit":
            consumer.acknowledge(batch)
        failures = consumer.commit()[P0]
        assert {offset: type(error) for offset, error in failures.items()} == dict.fromkeys(range(10), LockLost)


@pytest.mark.proves("SH-65", "SH-78")
def test_held_records_of_a_lost_session_are_reported(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        batch = next_batch(consumer)
        consumer.acknowledge(batch.columns[0])
        assert consumer.commit() == {}  # and the others are accepted, since the mode is implicit
        fake.produce(TOPIC, 0, [(b"", b"held")] * 3)
        consumer.hold(next_batch(consumer))
        lose_connections(fake, consumer)
        assert {offset: type(error) for offset, error in consumer.commit()[P0].items()} == dict.fromkeys(
            (10, 11, 12), LockLost
        )
        assert next_batch(consumer).delivery_count == 2


@pytest.mark.proves("SH-37")
def test_parked_records_of_a_lost_session_are_not_returned(fake: FakeBroker) -> None:
    with member(fake, max_poll_records=5, acquire_mode="record_limit") as consumer:
        hold = Hold(after_work=True)
        fake.control("ShareFetch", lambda _call: hold, times=1)
        while not hold.reached.is_set():
            assert consumer.poll(0.05) == []
        hold.release()
        until(lambda: bool(consumer._driver.core.fetcher.parked))
        lose_connections(fake, consumer)
        batch = next_batch(consumer)
        assert (offsets(batch), batch.delivery_count) == ([0, 1, 2, 3, 4], 2)


def test_polls_that_do_not_wait_bring_records_in_time(fake: FakeBroker) -> None:
    with member(fake) as consumer:
        found: list[ShareRecords] = []

        def has_records() -> bool:
            found.extend(consumer.poll(0))
            return bool(found)

        until(has_records)
        assert len(found[0]) == 10


@pytest.mark.proves("SH-80")
def test_close_releases_records_of_a_partition_that_the_session_has_no_more() -> None:
    with broker_with(4, partitions=2) as broker:
        broker.configure_group(GROUP, {"share.auto.offset.reset": "earliest", **LONG})
        with member(broker) as consumer:
            found: set[int] = set()
            while len(found) < 2:
                for batch in consumer.poll(PATIENCE_S):
                    consumer.hold(batch)
                    found.add(batch.partition)
            with member(broker) as other:
                until(lambda: len(consumer.assignment) == len(other.assignment) == 1)
                while len(consumer._driver.core.fetcher.sessions[1].partitions) > 1:
                    consumer.poll(0.05)
        assert states(broker, partition=0) == states(broker, partition=1) == {OffsetState.AVAILABLE}


def test_records_of_a_topic_that_is_unsubscribed_before_they_are_returned_are_released() -> None:
    with FakeBroker(topics={TOPIC: 1, "other": 1}) as broker:
        broker.configure_group(GROUP, {"share.auto.offset.reset": "earliest", **LONG})
        for topic in (TOPIC, "other"):
            broker.produce(topic, 0, [(b"", b"v")] * 3)
        with ShareConsumer(broker.bootstrap, group=GROUP) as consumer:
            consumer.subscribe([TOPIC, "other"])
            kept: set[str] = set()
            while len(kept) < 2 and not consumer._driver.core.fetcher.parked:
                batch = next(iter(consumer))
                kept.add(batch.topic)
                consumer.hold(batch)
            left = next((one.topic for one in consumer._driver.core.fetcher.parked), None)
            consumer.subscribe(["later"])
            if left is not None:
                until(lambda: states(broker, left) == {OffsetState.AVAILABLE})
            assert TopicPartition(TOPIC, 0) not in consumer.assignment
