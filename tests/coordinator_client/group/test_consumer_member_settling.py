"""KIP-848 members that settle at once: every assignment is acknowledged, and a lost join holds no instance id for good.

A member that owes an acknowledgement waits until the rebalance timeout, which is `max_poll_interval_ms`. Here that is a
minute, and no test waits for so long.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer, Revoked, TopicRecreated
from kohort.coordinator_client.group.error_actions import UnreleasedInstance
from kohort.fastpath import Record
from kohort.protocol.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.testing.fake_broker import Close, ConsumerGroupState, CoordinatorSettings, Drop, FakeBroker, Hold
from kohort.testing.topics import create_topic
from tests.coordinator_client.consumer_helpers import Witness, numbers, poll_all_until, poll_until, produce, read
from tests.support.broker_selection import SelectedBroker, wanted_version
from tests.testing.group_client import EpochClient, Stage

Name = Callable[[str], str]
MakeTopic = Callable[..., str]

HEARTBEAT = "ConsumerGroupHeartbeat"
REBALANCE_TIMEOUT_MS = 60_000
PATIENCE_S = 120.0

on_a_broker = [
    pytest.mark.broker,
    pytest.mark.skipif(int(wanted_version().partition(".")[0]) < 4, reason="KIP-848 is on from Kafka 4.0"),
]


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    """A broker with a short heartbeat interval that, like Kafka, plans some time after it saw a change (KIP-1263)."""
    settings = CoordinatorSettings(group_consumer_heartbeat_interval_ms=200, group_consumer_assignment_interval_ms=400)
    with FakeBroker(topics={"a": 6, "b": 2}, settings=settings) as broker:
        yield broker
        assert broker.faults == []


def member(bootstrap: str, group: str = "g", **settings: Any) -> Consumer:
    usual: dict[str, Any] = {"auto_offset_reset": "earliest", "max_poll_interval_ms": REBALANCE_TIMEOUT_MS}
    return Consumer(bootstrap, group=group, protocol="consumer", **usual | settings)


def all_of(topic: str, partitions: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in range(partitions))


def heartbeats(fake: FakeBroker) -> list[ConsumerGroupHeartbeatRequest]:
    return [call.request for call in fake.calls_of(HEARTBEAT)]  # type: ignore[misc]


def poll_past_recreation(consumer: Consumer, reached: Callable[[list[Record]], bool]) -> None:
    """Poll until what came is enough. A member that sees the new topic before the coordinator does raises an error."""
    records: list[Record] = []
    limit = time.monotonic() + PATIENCE_S
    while not reached(records):
        assert time.monotonic() < limit, f"it did not come to that; {consumer.health()}"
        with suppress(TopicRecreated):
            records += [record for columns in consumer.poll(0.1) for record in columns]


def partitions_of(topic: str, records: list[Record]) -> set[int]:
    return {record.partition for record in records if record.topic == topic}


# --------------------------------------------------------------------------------------------- acknowledgements


@pytest.mark.proves("G-13", "G-15")
def test_a_subscription_that_changes_while_the_first_assignment_is_on_its_way(fake: FakeBroker) -> None:
    hold, hooks = Hold(after_work=True), Witness()
    fake.control(HEARTBEAT, lambda call: hold, times=1)
    with member(fake.bootstrap) as consumer:
        consumer.subscribe(["a"], hooks=hooks)
        poll_until(consumer, hold.reached.is_set)
        consumer.subscribe(["b"], hooks=hooks)
        hold.release()
        poll_until(consumer, lambda: consumer.assignment == all_of("b", 2), patience_s=PATIENCE_S)
        poll_until(consumer, lambda: fake.consumer_group("g").state is ConsumerGroupState.STABLE, patience_s=PATIENCE_S)
    assert "Lost" not in hooks.kinds()
    joined, changed = heartbeats(fake)[:2]
    assert (joined.subscribed_topic_names, changed.subscribed_topic_names) == (("a",), ("b",))
    assert changed.topic_partitions == ()


@pytest.mark.proves("B-39", "G-15")
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "once it is missed"])
def test_a_topic_that_is_deleted_and_created_again_costs_nothing_else(fake: FakeBroker, waits: bool) -> None:
    hooks = Witness()
    with member(fake.bootstrap, metadata_max_age_ms=100) as consumer:
        consumer.subscribe(["a", "b"], hooks=hooks)
        poll_until(consumer, lambda: consumer.assignment == all_of("a", 6) | all_of("b", 2))
        fake.delete_topic("a")
        if waits:
            poll_past_recreation(consumer, lambda _: consumer.assignment == all_of("b", 2))
        fake.create_topic("a", 3)
        for partition in range(3):
            fake.produce("a", partition, [(None, b"new")])
        poll_past_recreation(consumer, lambda records: partitions_of("a", records) == {0, 1, 2})
        poll_until(consumer, lambda: fake.consumer_group("g").state is ConsumerGroupState.STABLE, patience_s=PATIENCE_S)
        revoked = [event.partitions for event in hooks.reported if isinstance(event, Revoked)]
        assert revoked == [all_of("a", 6)], "the other topic is never touched"
        assert "Lost" not in hooks.kinds()


@pytest.mark.proves("B-39")
def test_a_topic_created_again_that_metadata_shows_before_the_coordinator_is_let_go_without_an_error(
    fake: FakeBroker,
) -> None:
    for partition in range(2):
        fake.produce("b", partition, [(None, b"old")] * 3)
    with member(fake.bootstrap, metadata_max_age_ms=100) as consumer:
        consumer.subscribe(["b"])
        read(consumer, 6)
        hold = Hold()
        fake.control(HEARTBEAT, lambda call: hold)
        poll_until(consumer, hold.reached.is_set, patience_s=PATIENCE_S)
        fake.delete_topic("b")
        fake.create_topic("b", 2)
        for partition in range(2):
            fake.produce("b", partition, [(None, b"new")] * 5)
        assert poll_until(consumer, lambda: not consumer.assignment, patience_s=PATIENCE_S) == []
        hold.release()
        found = read(consumer, 10)
        assert [bytes(record.value or b"") for record in found] == [b"new"] * 10


@pytest.mark.parametrize("lost", [Close(after_work=True), Close(), Drop(after_work=True)], ids=repr)
def test_an_acknowledgement_that_is_lost_is_made_up_for(fake: FakeBroker, lost: Any) -> None:
    with member(fake.bootstrap, request_timeout_ms=1_000) as first:
        first.subscribe(["a"])
        poll_until(first, lambda: len(first.assignment) == 6)
        # What is lost is the first report of the partitions that stay.
        fake.control(HEARTBEAT, lambda call: lost if reports(call.request) == 3 else None, times=1)
        with member(fake.bootstrap) as second:
            second.subscribe(["a"])
            poll_all_until([first, second], lambda: len(first.assignment) == len(second.assignment) == 3)
            settled = lambda: fake.consumer_group("g").state is ConsumerGroupState.STABLE  # noqa: E731
            poll_all_until([first, second], settled)
            assert not first.assignment & second.assignment


def reports(request: Any) -> int:
    """The number of owned partitions in a heartbeat; -1 if the heartbeat leaves them out."""
    said = request.topic_partitions
    return -1 if said is None else sum(len(one.partitions) for one in said)


# --------------------------------------------------------------------------------------------- held instance ids


@pytest.mark.proves("G-17", "E-09")
@pytest.mark.parametrize("reset", [False, True])
def test_a_static_member_whose_join_response_is_lost_joins_again(fake: FakeBroker, reset: bool) -> None:
    fake.control(HEARTBEAT, lambda call: Close(after_work=True, reset=reset), times=1)
    with member(fake.bootstrap, group_instance_id="i") as consumer:
        consumer.subscribe(["a"])
        poll_until(consumer, lambda: consumer.assignment == all_of("a", 6), patience_s=PATIENCE_S)
        assert len(fake.consumer_group("g").members) == 1
    assert [one.member_epoch for one in heartbeats(fake)][:4] == [0, 0, -2, 0]


@pytest.mark.proves("G-17", "E-09")
def test_a_static_member_that_is_restarted_waits_for_the_session_of_its_dead_predecessor() -> None:
    settings = CoordinatorSettings(group_consumer_session_timeout_ms=1_500)
    with FakeBroker(topics={"a": 2}, settings=settings) as fake:
        dead = member(fake.bootstrap, group_instance_id="i")
        try:
            dead.subscribe(["a"])
            poll_until(dead, lambda: len(dead.assignment) == 2)
            mute = fake.control(
                HEARTBEAT,
                lambda call: Drop() if call.request.member_id == name else None,  # type: ignore[attr-defined]
            )
            name = dead.group_metadata().member_id
            with member(fake.bootstrap, group_instance_id="i") as again:
                again.subscribe(["a"])
                poll_until(again, lambda: len(again.assignment) == 2, patience_s=PATIENCE_S)
                assert [one.kind for one in again.notices()].count("instance_held") == 1
        finally:
            mute.remove()
            dead.close(0)


@pytest.mark.proves("G-17", "E-09")
def test_the_second_of_two_living_holders_is_refused_after_a_session_and_the_first_notices_nothing(
    fake: FakeBroker,
) -> None:
    hooks = Witness()
    with member(fake.bootstrap, group_instance_id="i") as first:
        first.subscribe(["a"], hooks=hooks)
        poll_until(first, lambda: len(first.assignment) == 6)
        reported = len(hooks.reported)
        with member(
            fake.bootstrap, group_instance_id="i", session_timeout_ms=1_000, heartbeat_interval_ms=300
        ) as second:
            second.subscribe(["a"])
            with pytest.raises(UnreleasedInstance, match="instance_id=i") as caught:
                poll_until(second, lambda: bool(first.poll(0)), patience_s=PATIENCE_S)
        assert caught.value.place["group"] == "g"
        first.poll(0.1)
        assert len(hooks.reported) == reported
        assert first.assignment == all_of("a", 6)


@pytest.mark.proves("G-17", "F-16")
def test_names_take_the_place_of_a_pattern_that_an_earlier_static_member_had(fake: FakeBroker) -> None:
    with member(fake.bootstrap, group_instance_id="i") as before:
        before.subscribe(broker_pattern="a.*")
        poll_until(before, lambda: before.assignment == all_of("a", 6))
    with member(fake.bootstrap) as other, member(fake.bootstrap, group_instance_id="i") as after:
        other.subscribe(["a"])
        after.subscribe(["b"])
        poll_all_until([other, after], lambda: (other.assignment, after.assignment) == (all_of("a", 6), all_of("b", 2)))


# ------------------------------------------------------------------------------------------------- on a real broker


class TestOnABroker:
    pytestmark = on_a_broker

    @pytest.mark.proves("G-13", "G-15")
    @pytest.mark.parametrize("polled_s", [0.0, 0.01, 0.03, 0.1])
    def test_a_subscription_that_changes_at_once(
        self, polled_s: float, broker: SelectedBroker, make_topic: MakeTopic, unique: Name
    ) -> None:
        one, two, hooks = make_topic(2), make_topic(2), Witness()
        with member(broker.bootstrap, unique("group")) as consumer:
            consumer.subscribe([one], hooks=hooks)
            until = time.monotonic() + polled_s
            while time.monotonic() < until:
                consumer.poll(0.005)
            consumer.subscribe([two], hooks=hooks)
            poll_until(consumer, lambda: consumer.assignment == all_of(two, 2), patience_s=PATIENCE_S)
            assert "Lost" not in hooks.kinds()

    @pytest.mark.proves("B-39", "G-15")
    @pytest.mark.parametrize("attempt", range(2))
    @pytest.mark.parametrize("missed", [False, True], ids=["at once", "once it is missed"])
    def test_a_topic_that_is_deleted_and_created_again(
        self, missed: bool, attempt: int, broker: SelectedBroker, make_topic: MakeTopic, unique: Name
    ) -> None:
        from confluent_kafka.admin import AdminClient

        goes, stays, hooks = make_topic(2), make_topic(2), Witness()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        with member(broker.bootstrap, unique("group"), metadata_max_age_ms=1_000) as consumer:
            consumer.subscribe([goes, stays], hooks=hooks)
            poll_until(consumer, lambda: consumer.assignment == all_of(goes, 2) | all_of(stays, 2))
            admin.delete_topics([goes])[goes].result()
            if missed:
                poll_past_recreation(consumer, lambda _: consumer.assignment == all_of(stays, 2))
            create_topic(broker.bootstrap, goes, partitions=3)
            for partition in range(3):
                produce(broker.bootstrap, goes, numbers(partition, 1), partition=partition)
            poll_past_recreation(consumer, lambda records: partitions_of(goes, records) == {0, 1, 2})
            assert consumer.assignment == all_of(goes, 3) | all_of(stays, 2)
            assert "Lost" not in hooks.kinds()

    @pytest.mark.proves("G-17", "F-16")
    def test_names_take_the_place_of_a_pattern_that_an_earlier_static_member_had(
        self, broker: SelectedBroker, make_topic: MakeTopic, unique: Name
    ) -> None:
        one, two, group = make_topic(6), make_topic(1), unique("group")
        with member(broker.bootstrap, group, group_instance_id="i") as before:
            before.subscribe(broker_pattern=one)
            poll_until(before, lambda: before.assignment == all_of(one, 6))
        with member(broker.bootstrap, group) as other, member(broker.bootstrap, group, group_instance_id="i") as after:
            other.subscribe([one])
            after.subscribe([two])
            poll_all_until(
                [other, after],
                lambda: (other.assignment, after.assignment) == (all_of(one, 6), all_of(two, 1)),
                patience_s=PATIENCE_S,
            )

    @pytest.mark.proves("G-17", "E-09")
    def test_a_static_member_with_a_join_that_was_never_responded_to(
        self, broker: SelectedBroker, topic: str, unique: Name
    ) -> None:
        group = unique("group")
        with member(broker.bootstrap, group, group_instance_id="i") as consumer:
            consumer.subscribe([topic])
            poll_until(consumer, lambda: consumer.assignment == all_of(topic, 3))
            member_id = consumer.group_metadata().member_id
            consumer.unsubscribe()
            with EpochClient(Stage(broker.bootstrap, topic, group), instance_id="i") as unanswered:
                unanswered.member_id = member_id
                assert unanswered.enter().error_code == 0
            consumer.subscribe([topic])
            poll_until(consumer, lambda: consumer.assignment == all_of(topic, 3), patience_s=PATIENCE_S)
            assert consumer.group_metadata().member_id == member_id
