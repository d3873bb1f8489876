"""A lookup of topics as they are now does not get the response to an earlier request. A partition that metadata lacks
is looked for."""

import threading
from typing import Any

import pytest

from kohort import Consumer, TopicPartition
from kohort.network.requests import ResponseReceived
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import poll_all_until, poll_until, read, wait_until
from tests.coordinator_client.core_rig import Rig, metadata

P0, P1 = TopicPartition("topic", 0), TopicPartition("topic", 1)


@pytest.mark.parametrize("everything", [True, False], ids=["all topics", "one"])
def test_a_response_that_was_under_way_is_not_how_it_is_now(everything: bool) -> None:
    rig = Rig()
    lookups = rig.core.lookups
    if everything:
        lookups.look_up_topics(30.0)  # another caller's, which is under way
    rig.turn(0.0)
    found: Any = lookups.look_up_topics(30.0) if everything else lookups.look_up_topic("t", 30.0, fresh=True)
    rig.settle("Metadata", ResponseReceived(metadata({0: 1}), 12), 0.0)
    rig.turn(0.0)
    assert not found.done()
    rig.settle("Metadata", ResponseReceived(metadata({0: 1, 1: 2}), 12), 0.0)
    rig.turn(0.0)
    partitions = found.result(0)["t"] if everything else found.result(0)
    assert [one.partition for one in partitions] == [0, 1]


@pytest.mark.proves("B-41")
def test_a_partition_that_was_added_is_read_and_looked_up_before_metadata_is_old() -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([P0])
        consumer.position(P0)
        fake.add_partitions("topic", 2)
        fake.produce("topic", 1, [(None, b"v")])
        assert consumer.end_offsets([P1]) == {P1: 1}
        fake.add_partitions("topic", 3)
        fake.produce("topic", 2, [(None, b"v")])
        consumer.assign([TopicPartition("topic", 2)])
        read(consumer, 1)


@pytest.mark.proves("B-41")
@pytest.mark.parametrize("assigned", [True, False], ids=["assigned", "looked up"])
def test_a_partition_that_does_not_exist_yet_is_looked_for_until_it_does(assigned: bool) -> None:
    with FakeBroker(topics={"topic": 1}) as fake, Consumer(fake.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([P0])
        consumer.position(P0)
        before = len(fake.calls_of("Metadata"))

        def add() -> None:
            wait_until(lambda: len(fake.calls_of("Metadata")) > before + 1)
            fake.add_partitions("topic", 2)

        adding = threading.Thread(target=add)
        adding.start()
        if assigned:
            consumer.assign([P1])
            assert consumer.position(P1) == 0
        else:
            assert consumer.end_offsets([P1]) == {P1: 0}
        adding.join()


@pytest.mark.proves("B-41", "G-13")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_reads_an_assigned_partition_that_its_metadata_lacks(protocol: Any) -> None:
    with FakeBroker(topics={"topic": 2}) as fake:
        usual: dict[str, Any] = {"group": "g", "protocol": protocol, "auto_offset_reset": "earliest"}
        with Consumer(fake.bootstrap, metadata_max_age_ms=300, **usual) as leader:
            leader.subscribe(["topic"])
            poll_until(leader, lambda: len(leader.assignment) == 2)
            with Consumer(fake.bootstrap, **usual) as other:
                other.subscribe(["topic"])
                poll_all_until([leader, other], lambda: len(leader.assignment) == len(other.assignment) == 1)
                (own,) = other.assignment
                other.position(own)
                fake.add_partitions("topic", 6)
                poll_all_until([leader, other], lambda: len(leader.assignment) == len(other.assignment) == 3)
                (new, *_) = sorted(other.assignment, reverse=True)
                fake.produce("topic", new.partition, [(None, b"v")])
                read(other, 1)


@pytest.mark.proves("B-41", "F-16")
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_new_topic_of_a_pattern_is_shared_by_members_with_older_metadata(assignor: str) -> None:
    with FakeBroker(topics={"t1": 2}) as fake:
        usual: dict[str, Any] = {"group": "g", "assignors": [assignor], "heartbeat_interval_ms": 200}
        with (
            Consumer(fake.bootstrap, metadata_max_age_ms=300, **usual) as leader,
            Consumer(fake.bootstrap, **usual) as other,
        ):
            leader.subscribe(pattern="t.*")
            poll_until(leader, lambda: len(leader.assignment) == 2)
            other.subscribe(pattern="t.*")
            poll_all_until([leader, other], lambda: len(leader.assignment) == len(other.assignment) == 1)
            before = leader.group_metadata().generation
            fake.create_topic("t2", 4)
            poll_all_until([leader, other], lambda: len(leader.assignment) == len(other.assignment) == 3)
            assert leader.group_metadata().generation == before + 1
