"""Without a policy a partition has no start position; after a seek, no error about that is raised."""

from collections.abc import Mapping

import pytest

from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client import Assigned, Consumer, NoOffset, RebalanceHooks
from kohort.fastpath import Record
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, read

P0, P1 = TopicPartition("topic", 0), TopicPartition("topic", 1)


def filled() -> FakeBroker:
    fake = FakeBroker(topics={"topic": 2})
    for number in range(10):
        fake.produce("topic", number % 2, [(None, b"%d" % number)])
    return fake


@pytest.mark.proves("G-11")
@pytest.mark.parametrize("group", [None, "group"])
def test_a_seek_after_assign_is_a_place_to_begin(group: str | None) -> None:
    with filled() as fake, Consumer(fake.bootstrap, group=group, auto_offset_reset="none") as consumer:
        consumer.assign([P0, P1])
        consumer.seek(P0, 3)
        records: list[Record] = []
        with pytest.raises(NoOffset) as caught:  # the other one has none, which is raised before or after these
            records.extend(record for columns in consumer for record in columns)
        assert caught.value.place["partition"] == 1
        records += read(consumer, 2 - len(records))
        assert [record.offset for record in records] == [3, 4]
        consumer.seek_to_beginning([P1])
        assert [record.offset for record in read(consumer, 5)] == [0, 1, 2, 3, 4]


@pytest.mark.proves("G-11")
def test_a_mapping_given_to_assign_is_a_place_to_begin() -> None:
    with filled() as fake, Consumer(fake.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign({P0: 4, P1: 4})
        assert {record.offset for record in read(consumer, 2)} == {4}


@pytest.mark.proves("G-11")
def test_a_position_that_cannot_be_found_raises_the_error_before_and_after_poll() -> None:
    with filled() as fake, Consumer(fake.bootstrap, group="group", auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        for call in (
            lambda: consumer.position(P0),
            lambda: consumer.position_of(P0),
            consumer.lag,
            lambda: consumer.poll(PATIENCE_S),
            lambda: consumer.position(P0),
        ):
            with pytest.raises(NoOffset):
                call()
        consumer.seek(P0, 3)
        assert consumer.position(P0) == 3
        consumer.seek_to_end([P0])
        assert consumer.position_of(P0).offset == 5


class Responses(RebalanceHooks):
    """Says where to begin, once everything else has had the time to go wrong."""

    def __init__(self, consumer: Consumer, how: str) -> None:
        self.consumer, self.how = consumer, how

    def on_assigned(self, event: Assigned) -> Mapping[TopicPartition, int] | None:
        core = self.consumer._session.core
        while not core.positions.errors:  # nothing is committed, and that is found out meanwhile
            self.consumer._session.wait_quietly(self.consumer._session.driver.now() + 20)
        if self.how == "answer":
            return dict.fromkeys(event.partitions, 3)
        for partition in event.partitions:
            self.consumer.seek(partition, 3)
        return None


@pytest.mark.proves("G-11", "CR-15")
@pytest.mark.parametrize("how", ["answer", "seek"])
def test_what_on_assigned_says_is_a_place_to_begin(how: str) -> None:
    with filled() as fake, Consumer(fake.bootstrap, group="group", auto_offset_reset="none") as consumer:
        consumer.subscribe(["topic"], hooks=Responses(consumer, how))
        assert sorted(record.offset for record in read(consumer, 4)) == [3, 3, 4, 4]
