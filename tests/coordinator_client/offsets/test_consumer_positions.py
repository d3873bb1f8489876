"""Positions as users see them: with what a later reader needs to find the same place again."""

import time
import uuid
from collections.abc import Callable

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer, IllegalState, Position
from kohort.coordinator_client.fetch.completed_fetch import written_ms as read_written_ms
from kohort.fastpath import encode
from kohort.network.metadata import NOTHING_KNOWN
from kohort.testing.fake_broker import FakeBroker
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import numbers, produce, read
from tests.coordinator_client.offsets.test_positions import P0, cluster, fetching
from tests.support.broker_selection import SelectedBroker


def test_a_position_has_the_epoch_of_the_last_record_and_the_id_of_the_topic() -> None:
    one = fetching(offset=10, epoch=3)
    assert one.position_with_epoch(P0, cluster()) == Position(10, 3, uuid.UUID(int=1))
    assert one.position_with_epoch(P0, NOTHING_KNOWN) is None, "an id that is not known yet is waited for"
    one.seek(P0, 4)
    assert one.position_with_epoch(P0, cluster()) == Position(4, -1, uuid.UUID(int=1))


def test_the_epoch_of_a_position_within_a_response_is_that_of_the_last_record() -> None:
    """The response has records of two leaders."""
    with (
        FakeBroker(topics={"t": 1}, nodes=2) as fake,
        Consumer(fake.bootstrap, auto_offset_reset="earliest", max_poll_records=2) as consumer,
    ):
        for node in (1, 2):
            fake.set_leader("t", 0, node)
            fake.produce("t", 0, [(None, b"v")] * 4)
        consumer.assign([P0])
        epochs = []
        for _ in range(4):
            read(consumer, 2)
            epochs.append(consumer.position_of(P0).leader_epoch)
    assert epochs == [1, 1, 2, 2]


def written_ms_of(records: bytes) -> int | None:
    return read_written_ms(memoryview(records))


def test_lag_in_seconds_is_how_long_the_next_record_has_waited() -> None:
    def seconds(consumer: Consumer) -> float | None:
        return consumer.lag_s()[P0]

    written_ms = time.time_ns() // 1_000_000 - 60_000
    with (
        FakeBroker(topics={"t": 1}) as fake,
        Consumer(fake.bootstrap, auto_offset_reset="earliest", max_poll_records=1, fetch_max_wait_ms=50) as consumer,
    ):
        for number in range(3):  # a batch a minute ago, one of half a minute ago, one of now
            fake.produce("t", 0, [(None, b"v", written_ms + number * 30_000)])
        consumer.assign([P0])
        limit = time.monotonic() + 120
        while consumer._session.read(lambda core: core.fetcher.parked.first(P0)) is None:
            assert time.monotonic() < limit
            time.sleep(0.01)
        assert consumer.lag() == {P0: 3}
        assert 60 <= (seconds(consumer) or 0) < 90
        read(consumer, 1)
        assert consumer.lag() == {P0: 2}
        assert 30 <= (seconds(consumer) or 0) < 120, "no less than the next record has waited"
        read(consumer, 2)
        assert consumer.lag_s() == {P0: 0.0}
        consumer.seek(P0, 1)
        consumer.pause()
        assert seconds(consumer) is None or 30 <= (seconds(consumer) or 0) < 90, "what was returned before says nothing"
    assert written_ms_of(b"") is None
    assert written_ms_of(bytes(61)) is None, "magic 0 has no such place"


def test_a_record_without_a_timestamp_says_nothing_of_how_long_the_next_has_waited() -> None:
    with (
        FakeBroker(topics={"t": 1}) as fake,
        Consumer(fake.bootstrap, auto_offset_reset="earliest", max_poll_records=1, fetch_max_wait_ms=50) as consumer,
    ):
        fake.produce("t", 0, [(None, b"v", -1), (None, b"w", -1)])
        consumer.assign([P0])
        read(consumer, 1)
        assert consumer.lag() == {P0: 1}
        assert consumer.lag_s() == {P0: None}


@pytest.mark.parametrize("attribute", [0x08, 0x40], ids=["LogAppendTime", "delete horizon"])
def test_a_batch_whose_first_timestamp_is_none_was_written_at_its_last_one(attribute: int) -> None:
    batch = bytearray(encode([(None, b"v", 5_000), (None, b"w", 7_000)]))
    assert written_ms_of(bytes(batch)) == 5_000
    batch[22] |= attribute
    assert written_ms_of(bytes(batch)) == 7_000


@pytest.mark.broker
@pytest.mark.proves("B-39")
def test_a_topic_created_again_is_recognised_by_its_position(
    broker: SelectedBroker, unique: Callable[[str], str]
) -> None:
    topic = unique("again")
    create_topic(broker.bootstrap, topic)
    tp = TopicPartition(topic, 0)
    produce(broker.bootstrap, topic, numbers(0, 5))
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign({tp: 2})
        at_first = consumer.position_of(tp)
        assert at_first.offset == 2
        assert at_first.topic_id.int != 0
        read(consumer, 3)
        read_up_to = consumer.position_of(tp)
        assert read_up_to == Position(5, 0, at_first.topic_id)
        assert consumer.position(tp) == 5
        with pytest.raises(IllegalState):
            consumer.position_of(TopicPartition(topic, 7))
        consumer.seek(tp, read_up_to.offset, leader_epoch=read_up_to.leader_epoch)  # and is found to be the same log
        produce(broker.bootstrap, topic, numbers(5, 1))
        assert [record.offset for record in read(consumer, 1)] == [5]
    from confluent_kafka.admin import AdminClient

    peer = AdminClient({"bootstrap.servers": broker.bootstrap})
    peer.delete_topics([topic])[topic].result(120)
    limit = time.monotonic() + 120
    while True:
        try:
            create_topic(broker.bootstrap, topic)
            break
        except Exception:  # the old one may not be gone everywhere yet
            assert time.monotonic() < limit
            time.sleep(0.2)
    with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign({tp: read_up_to.offset})
        assert consumer.position_of(tp).topic_id not in (at_first.topic_id, uuid.UUID(int=0))
