"""A recreated log: offsets committed in the old one do not hold up a reader of the new one."""

import time
import uuid
from contextlib import suppress
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer, OffsetReset, TopicRecreated, UnknownTopic
from kohort.network.offset_requests import LATEST
from kohort.network.requests import ResponseReceived
from kohort.protocol.apis.find_coordinator import FindCoordinatorResponse
from kohort.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kohort.protocol.apis.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker import FakeBroker, Hold
from tests.coordinator_client.consumer_helpers import PATIENCE_S, poll_until, read, wait_until
from tests.coordinator_client.core_rig import ID, Rig, metadata

P0 = TopicPartition("topic", 0)
NOTICES: dict[str, Any] = {
    "group": "group",
    "auto_offset_reset": "earliest",
    "metadata_max_age_ms": 50,
    "fetch_max_wait_ms": 50,
}


def committed(fake: FakeBroker) -> int | None:
    with Consumer(fake.bootstrap, group="group") as other:
        found = other.committed([P0])[P0]
    return None if found is None else found.offset


def read_five(fake: FakeBroker, consumer: Consumer) -> None:
    """Write five records, subscribe to their topic, and read them."""
    fake.produce("topic", 0, [(None, b"v")] * 5)
    consumer.subscribe(["topic"])
    read(consumer, 5)


def lost(consumer: Consumer) -> bool:
    """Poll. True once the consumer has no partition."""
    with suppress(UnknownTopic):
        consumer.poll(0.05)
    return not consumer.assignment


def made_anew(fake: FakeBroker, consumer: Consumer, records: int) -> None:
    """Make the topic again, and wait until the consumer has seen the new one, without a poll.

    In one step: a consumer whose metadata lacks the topic for a moment loses the partition, and begins anew.
    """
    core, before = consumer._session.core, consumer.topic_id("topic")
    fake.create_topic("topic")
    fake.produce("topic", 0, [(None, b"new")] * records)
    limit = time.monotonic() + PATIENCE_S
    while core.topic_ids.get("topic") == before:
        assert time.monotonic() < limit
        time.sleep(0.01)


@pytest.mark.proves("G-11")
def test_what_is_read_after_a_reset_can_be_committed_though_it_is_behind() -> None:
    gaps: list[OffsetReset] = []
    with FakeBroker(topics={"topic": 1}) as fake:
        fake.produce("topic", 0, [(None, b"v")] * 3)
        fake.commit("group", {P0: 500})  # in a log that was longer
        with Consumer(fake.bootstrap, group="group", auto_offset_reset="earliest", on_reset=gaps.append) as consumer:
            consumer.subscribe(["topic"])
            for columns in consumer:
                consumer.commit(columns.next_offsets)
                break
        assert [(gap.wanted, gap.start) for gap in gaps] == [(500, 0)]
        assert committed(fake) == 3


@pytest.mark.proves("B-39")
def test_what_is_read_of_a_topic_created_again_can_be_committed() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        with Consumer(fake.bootstrap, **NOTICES) as consumer:
            read_five(fake, consumer)
            consumer.commit()
            made_anew(fake, consumer, 2)
            with pytest.raises(TopicRecreated):
                poll_until(consumer, lambda: False)
            consumer.seek(P0, 0)
            read(consumer, 2)
            consumer.commit()
        assert committed(fake) == 2


@pytest.mark.proves("B-39")
def test_what_was_read_of_the_old_topic_is_not_committed_in_the_new_one() -> None:
    """A commit came between the metadata with the new topic and the poll that raises TopicRecreated."""
    with FakeBroker(topics={"topic": 1}) as fake:
        with Consumer(fake.bootstrap, **NOTICES) as consumer:
            read_five(fake, consumer)
            made_anew(fake, consumer, 7)
            with pytest.raises(TopicRecreated, match="not committed"):
                consumer.commit({P0: 5})
            with pytest.raises(TopicRecreated, match="positions are invalid"):
                poll_until(consumer, lambda: False)
            assert committed(fake) is None
            consumer.commit({P0: 3})  # the caller knows of the new topic
        assert committed(fake) == 3


@pytest.mark.proves("B-39")
def test_a_topic_that_is_created_again_after_its_partition_was_lost_is_read_from_its_beginning() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap, **NOTICES) as consumer:
        read_five(fake, consumer)
        consumer.commit()
        fake.delete_topic("topic")
        wait_until(lambda: lost(consumer))
        fake.create_topic("topic")
        fake.produce("topic", 0, [(None, b"new")] * 9)
        assert [one.offset for one in read(consumer, 9)] == list(range(9))


@pytest.mark.proves("B-39", "S-04")
def test_an_offset_of_the_topic_that_is_gone_is_not_committed_by_itself() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        by_itself: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 1_000_000}
        with Consumer(fake.bootstrap, **NOTICES, **by_itself) as consumer:
            read_five(fake, consumer)
            consumer.poll(0)  # now those are handled
            made_anew(fake, consumer, 9)
        assert committed(fake) is None, "the next owner would skip five records of the new one"


@pytest.mark.proves("B-39")
def test_a_commit_that_is_answered_once_the_topic_is_another_forbids_nothing_in_the_new_one() -> None:
    with FakeBroker(topics={"topic": 1}) as fake:
        with Consumer(fake.bootstrap, **NOTICES) as consumer:
            read_five(fake, consumer)
            late = Hold(after_work=True)
            fake.control("OffsetCommit", lambda call: late, times=1)
            consumer.commit_async()
            assert late.reached.wait(PATIENCE_S)
            made_anew(fake, consumer, 2)
            late.release()
            with pytest.raises(TopicRecreated):
                poll_until(consumer, lambda: False)
            poll_until(consumer, lambda: len(consumer.commit_log()) == 1)
            consumer.seek(P0, 0)
            read(consumer, 2)
            consumer.commit()
        assert committed(fake) == 2


@pytest.mark.proves("B-39")
def test_a_committed_offset_of_the_topic_that_is_gone_forbids_no_commit_in_the_new_one() -> None:
    """The OffsetFetch response of the old topic comes after the new one is known."""
    with FakeBroker(topics={"topic": 1}) as fake:
        fake.commit("group", {P0: 500})
        late = Hold(after_work=True)
        fake.control("OffsetFetch", lambda call: late, times=1)
        with Consumer(fake.bootstrap, **NOTICES) as consumer:
            consumer.subscribe(["topic"])
            poll_until(consumer, lambda: bool(consumer.assignment) and late.reached.is_set())
            made_anew(fake, consumer, 2)
            late.release()
            read(consumer, 2)
            consumer.commit()
        assert committed(fake) == 2


@pytest.mark.proves("B-39", "I11")
def test_an_offset_of_the_topic_that_is_gone_is_no_place_to_begin_in_the_new_one() -> None:
    """The ListOffsets response of the old topic comes after the new one is known; its offset may exist in both."""
    rig = Rig()
    place = TopicPartition("t", 0)
    rig.core.seek_by_time(place, LATEST)
    rig.turn(0.0)
    rig.core.endpoints.ever_responded = True
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 1}), 12), 0.0)
    rig.turn(0.1)
    old = next(lookup for _endpoint, lookup in rig.open if lookup.api == "ListOffsets")
    again = metadata({0: 1, 1: 1})
    again = again._replace(topics=(again.topics[0]._replace(topic_id=uuid.UUID(int=99)),))
    rig.core.metadata.request_update()
    rig.turn(1.0)
    rig.settle("Metadata", ResponseReceived(again, 12), 1.0)
    rig.turn(2.0)
    one = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=500, timestamp=-1, leader_epoch=1)
    response = ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(one,)),))
    old.done(ResponseReceived(response, 6), 2.0)
    assert rig.core.positions.known_position(place) is None
    lookups = [lookup for _endpoint, lookup in rig.open if lookup.api == "ListOffsets" and lookup is not old]
    lookups[-1].done(ResponseReceived(response, 6), 2.1)
    assert rig.core.positions.known_position(place) == 500


def with_code(topic_id: uuid.UUID, code: int, offset: int = -1) -> ResponseReceived:
    one = OffsetFetchResponsePartitions(partition_index=0, committed_offset=offset, metadata="", error_code=code)
    topic = OffsetFetchResponseTopics(name="", topic_id=topic_id, partitions=(one,))
    return ResponseReceived(OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g", topics=(topic,)),)), 10)


def requested_ids(rig: Rig) -> list[uuid.UUID]:
    """The topic ids of the OffsetFetch requests in flight."""
    made = [one.request(one.max_version or 10) for _endpoint, one in rig.open if one.api == "OffsetFetch"]
    return [topic.topic_id for one in made for group in one.groups for topic in group.topics]


def test_committed_offsets_are_requested_by_the_ids_of_the_topics() -> None:
    """A request waits for its topics' metadata. A coordinator with other metadata has the request repeated."""
    new, t0 = uuid.UUID(int=7), TopicPartition("t", 0)
    rig = Rig(group="g")
    rig.core.assign(frozenset({t0}), {}, {})
    rig.core.positions.drop(t0)
    rig.core.positions.assign(t0, start=None, has_group=True, wall_ms=0)
    rig.turn(0.0)
    found = FindCoordinatorResponse(error_code=0, node_id=2, host="b2", port=9092)
    rig.settle("FindCoordinator", ResponseReceived(found, 3), 0.0)
    rig.turn(0.0)
    assert requested_ids(rig) == []
    rig.settle("Metadata", ResponseReceived(metadata({0: 1}), 12), 0.0)
    rig.turn(0.0)
    assert requested_ids(rig) == [ID]
    rig.settle("OffsetFetch", with_code(ID, ErrorCode.UNKNOWN_TOPIC_ID), 1.0)
    rig.turn(1.0)
    anew = metadata({0: 1})
    rig.settle("Metadata", ResponseReceived(anew._replace(topics=(anew.topics[0]._replace(topic_id=new),)), 12), 1.0)
    rig.turn(2.0)
    assert requested_ids(rig) == [new]
    rig.settle("OffsetFetch", with_code(new, 0, 5), 2.0)
    assert rig.core.positions.known_position(t0) == 5
