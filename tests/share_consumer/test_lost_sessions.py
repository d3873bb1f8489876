"""Records of share sessions that were lost, of partitions that a session has no more, and of unsubscribed topics.

Locks last ten minutes here. So a record that comes again was released, and its lock has not expired.
"""

from collections.abc import Iterator

import pytest

from kohort import ShareConsumer, TopicPartition
from kohort.fastpath import encode
from kohort.network.errors import IllegalState
from kohort.network.requests import ConnectionPurpose
from kohort.protocol.apis.metadata import MetadataResponse
from kohort.protocol.apis.share_fetch import ShareFetchRequest, ShareFetchResponse
from kohort.protocol.errors import ErrorCode
from kohort.share_consumer import LockLost, ShareRecords
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Hold, OffsetState
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


@pytest.mark.proves("SH-65")
def test_returned_records_of_a_lost_session_are_not_fetched_again_before_the_next_poll(fake: FakeBroker) -> None:
    """They could not be acknowledged once the same consumer had acquired them again."""
    with member(fake, acknowledgement_mode="explicit") as consumer:
        (batch,) = consumer.poll(PATIENCE_S)
        requests = len(fake.calls_of("ShareFetch"))
        lose_connections(fake, consumer)
        until(lambda: OffsetState.AVAILABLE in states(fake))
        consumer._driver.execute(lambda _core: None)  # a turn that could request them
        later = [call.request for call in fake.calls_of("ShareFetch")[requests:]]
        assert all(isinstance(one, ShareFetchRequest) and one.max_records == 0 for one in later)
        for record in batch:
            consumer.acknowledge(record)
        (error, *_) = consumer.commit()[P0].values()
        assert isinstance(error, LockLost)


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


@pytest.mark.proves("SH-65", "SH-74")
def test_a_leader_that_came_back_since_the_last_metadata_keeps_its_session() -> None:
    with broker_with(0, nodes=2) as broker, member(broker, acknowledgement_mode="explicit") as consumer:
        broker.set_leader(TOPIC, 0, 2)
        broker.produce(TOPIC, 0, [(b"", b"of the other leader")])
        accepted(consumer)
        assert consumer.commit() == {}
        core = consumer._driver.core
        away = broker.control("Metadata", lambda _call: Alter(without_the_first_broker))
        consumer._driver.execute(lambda core: core.metadata.request_update())
        until(lambda: bool(core.cluster.removed))
        hold = Hold()
        broker.control("Metadata", lambda _call: hold)
        away.remove()
        broker.set_leader(TOPIC, 0, 1)
        broker.produce(TOPIC, 0, [(b"", b"of the leader that came back")])
        accepted(consumer)
        assert broker.calls_of("ShareFetch")[-1].node == 1
        assert core.cluster.removed
        assert consumer.commit() == {}
        hold.release()


def without_the_first_broker(response: MetadataResponse) -> MetadataResponse:
    return response._replace(brokers=tuple(one for one in response.brokers if one.node_id != 1))


@pytest.mark.proves("SH-37")
def test_later_parts_of_a_lost_session_are_not_returned() -> None:
    with broker_with(0) as broker:
        broker.configure_group(GROUP, {"share.auto.offset.reset": "earliest", **LONG})
        for _ in range(2):
            broker.append(TOPIC, 0, encode([(b"", b"v")] * 3, codec="gzip"))
        with member(broker, max_decompressed_bytes=100) as consumer:
            assert offsets(next_batch(consumer)) == [0, 1, 2]
            assert consumer.commit() == {}
            lose_connections(broker, consumer)
            again = next_batch(consumer)
            assert (offsets(again), again.delivery_count) == ([3, 4, 5], 2)


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


@pytest.mark.proves("SH-65", "SH-83")
def test_a_batch_of_a_lost_session_is_refused_once_a_poll_has_dropped_it(fake: FakeBroker) -> None:
    """Without the error, the caller would believe that its records are done."""
    with member(fake) as consumer:
        batch = next_batch(consumer)
        consumer.acknowledge(batch, "renew")
        assert consumer.commit() == {}
        lose_connections(fake, consumer)
        consumer.poll(0)
        for use in (consumer.acknowledge, consumer.hold):
            with pytest.raises(IllegalState, match="not acquired"):
                use(batch)


def test_records_of_a_topic_that_was_made_again_are_not_those_of_the_old_one(fake: FakeBroker) -> None:
    with member(fake, acknowledgement_mode="explicit") as consumer:
        old = next_batch(consumer)
        consumer.hold(old)
        fake.create_topic(TOPIC)
        fake.append(TOPIC, 0, encode([(b"", b"new")] * 2, timestamp_ms=1))
        while not (found := consumer.poll(0.1)):
            pass
        consumer.acknowledge(old.columns[0], "reject")
        consumer.acknowledge(found[0].columns[1], "reject")
        assert list(consumer.commit()[P0]) == [0]
        now = fake.share_states(GROUP, TOPIC, 0)[1]
        assert [now[0][0], now[1][0]] == [OffsetState.ACQUIRED, OffsetState.ARCHIVED]


def test_of_equal_records_of_a_topic_that_was_made_again_the_new_one_is_acknowledged(fake: FakeBroker) -> None:
    with member(fake, acknowledgement_mode="explicit") as consumer:
        old = next_batch(consumer)
        consumer.hold(old)
        fake.create_topic(TOPIC)
        fake.append(TOPIC, 0, encode([(b"", b"new")], timestamp_ms=old.columns[0].timestamp_ms))
        while not (found := consumer.poll(0.1)):
            pass
        consumer.acknowledge(found[0].columns[0], "reject")
        assert consumer.commit() == {}
        assert fake.share_states(GROUP, TOPIC, 0) == (1, {})


@pytest.mark.proves("SH-79")
def test_records_that_a_failed_fetch_has_acquired_are_released(fake: FakeBroker) -> None:
    """As a broker fails the fetch of all topics if one of them was deleted."""

    def failed(response: ShareFetchResponse) -> ShareFetchResponse:
        assert response.responses[0].partitions[0].acquired_records
        return response._replace(error_code=ErrorCode.UNKNOWN_TOPIC_ID, responses=())

    fake.control("ShareFetch", lambda _call: Alter(failed), times=1)
    with member(fake) as consumer:
        assert next_batch(consumer).delivery_count == 2
