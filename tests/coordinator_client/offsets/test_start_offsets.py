"""Starts that are given again: `assign` with an offset, and `on_assigned` for a partition that was kept."""

from collections.abc import Mapping
from typing import Any

import pytest

from kohort.common import TopicPartition
from kohort.coordinator_client import Assigned, Consumer, OffsetAndMetadata, RebalanceHooks, Truncation
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.coordinator_client.group.ready import MemberView
from kohort.coordinator_client.hooks import Start
from kohort.coordinator_client.subscription_state import AssignedPartitions, Subscription
from kohort.testing.fake_broker import FakeBroker
from tests.coordinator_client.consumer_helpers import poll_until, read
from tests.coordinator_client.core_rig import Rig
from tests.coordinator_client.offsets.test_fenced_commit_queue import VIEW

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def filled(count: int = 10) -> FakeBroker:
    fake = FakeBroker(topics={"t": 2})
    for number in range(count):
        fake.produce("t", 0, [(None, b"%d" % number)])
    return fake


@pytest.mark.proves("G-11")
def test_assign_with_a_start_goes_there_each_time_and_without_one_moves_nothing() -> None:
    with filled() as fake, Consumer(fake.bootstrap) as consumer:
        for _ in range(2):
            consumer.assign({P0: 0})
            assert consumer.position(P0) == 0
            assert [record.offset for record in read(consumer, 10)] == list(range(10))
        consumer.assign([P0])
        assert consumer.position(P0) == 10
        consumer.assign([P0, P1])
        assert consumer.position(P0) == 10
        consumer.assign({P0: 1})
        consumer.seek(P0, 7)
        consumer.assign([P0])
        assert consumer.position(P0) == 7
        consumer.assign({P0: 1, P1: 0})
        assert consumer.position(P0) == 1
        assert [record.offset for record in read(consumer, 9)] == list(range(1, 10))


@pytest.mark.proves("G-11", "I11")
def test_assign_with_the_start_it_had_voids_what_was_fetched_as_a_seek_does() -> None:
    rig = Rig()
    rig.core.positions.consumed(P0, rig.core.positions.state(P0).serial, 5)
    rig.core.positions.last_timestamps[P0] = 1
    kept = rig.core.positions.state(P1)
    serial = rig.core.positions.state(P0).serial
    rig.core.assign(frozenset({P0, P1}), {P0: 0}, {})
    assert rig.core.positions.state(P0).offset == 0
    assert rig.core.positions.state(P0).serial != serial
    assert P0 not in rig.core.positions.last_timestamps
    assert rig.core.positions.state(P1) == kept
    rig.core.positions.fail(P0, RuntimeError(), adrift=True)  # type: ignore[arg-type]
    rig.core.assign(frozenset({P0, P1}), {P0: 0}, {})
    assert rig.core.positions.known_position(P0) == 0
    assert rig.core.take_error() is None, "an error about the old place is settled, as by a seek"


class Restarts(RebalanceHooks):
    """Returns offset 3 of P0 at each call."""

    def __init__(self) -> None:
        self.calls = 0

    def on_assigned(self, event: Assigned) -> Mapping[TopicPartition, int]:
        self.calls += 1
        return {P0: 3}


@pytest.mark.proves("G-11", "CR-15")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_on_assigned_seeks_a_kept_partition_each_time_it_returns_an_offset(protocol: GroupProtocol) -> None:
    hooks = Restarts()
    assignors: dict[str, Any] = {} if protocol == "consumer" else {"assignors": ["cooperative-sticky"]}
    with (
        filled() as fake,
        Consumer(
            fake.bootstrap,
            group="g",
            auto_offset_reset="earliest",
            protocol=protocol,
            heartbeat_interval_ms=100,
            **assignors,
        ) as consumer,
    ):
        consumer.subscribe(["t"], hooks=hooks)
        assert [record.offset for record in read(consumer, 7)] == list(range(3, 10))
        fake.create_topic("u")
        before = hooks.calls
        consumer.subscribe(["t", "u"], hooks=hooks)
        again = poll_until(consumer, lambda: hooks.calls > before and consumer.position(P0) == 10)
        assert [record.offset for record in again] == list(range(3, 10)) * (hooks.calls - before)


class Resumes(RebalanceHooks):
    """Returns offset 8 of P0, as it was read in the leader's epoch 0, for the call of this number."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.calls = 0

    def on_assigned(self, event: Assigned) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self.calls += 1
        return {P0: OffsetAndMetadata(8, 0)} if self.calls == self._number else {}


@pytest.mark.proves("B-38", "G-11")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("number", [1, 2])
def test_the_epoch_of_an_offset_that_on_assigned_returns_finds_a_truncation(
    protocol: GroupProtocol, number: int
) -> None:
    """The log was cut to 5 records and has 15 again. The second call keeps P0."""
    hooks = Resumes(number)
    assignors: dict[str, Any] = {} if protocol == "consumer" else {"assignors": ["cooperative-sticky"]}
    with filled() as fake:
        fake.truncate("t", 0, 5)
        fake.produce("t", 0, [(None, b"new")] * 10)
        with Consumer(
            fake.bootstrap,
            group="g",
            auto_offset_reset="none",
            protocol=protocol,
            heartbeat_interval_ms=100,
            **assignors,
        ) as consumer:
            fake.create_topic("u")
            consumer.commit({P0: 14, P1: 0, TopicPartition("u", 0): 0})
            consumer.subscribe(["t"], hooks=hooks)
            if number == 2:
                assert [record.offset for record in read(consumer, 1)] == [14]
                consumer.subscribe(["t", "u"], hooks=hooks)
            with pytest.raises(Truncation) as caught:
                poll_until(consumer, lambda: False)
            assert caught.value.place["offset"] == 8


def subscribed(core: ConsumerCore, assignment: AssignedPartitions) -> None:
    """Publish a member's view with this assignment."""
    core.view = VIEW._replace(assignment=assignment, fetchable=assignment.partitions)
    assert isinstance(core.view, MemberView)
    core.poll(0.0, 0)


@pytest.mark.proves("G-11")
def test_an_assignment_that_is_repeated_without_a_hook_seeks_nothing() -> None:
    """As KIP-848 reconciliations and cooperative rounds do: the kept partition's start was given once."""
    rig = Rig(group="g")
    rig.core.unsubscribe()
    rig.core.subscription = Subscription.of(["t"])
    first = AssignedPartitions().brought([P0]).started({P0: Start(3)})
    subscribed(rig.core, first)
    assert rig.core.positions.known_position(P0) == 3
    rig.core.positions.consumed(P0, rig.core.positions.state(P0).serial, 8)
    for repeated in (first, first.brought([P1]), first.brought([P1]).without([P1]), first.started({})):
        subscribed(rig.core, repeated)
        assert rig.core.positions.known_position(P0) == 8
    subscribed(rig.core, first.brought([P1]).started({P0: Start(3)}))
    assert rig.core.positions.known_position(P0) == 3


@pytest.mark.parametrize("leaves", ["assign", "seek"])
def test_when_the_last_record_was_written_is_forgotten_with_the_position(leaves: str) -> None:
    rig = Rig()
    rig.turn(0.0)
    rig.core.positions.last_timestamps |= {P0: 5, P1: 6}
    assert rig.core.waiting_since_ms(P0) == 5
    if leaves == "seek":
        rig.core.seek(P0, 3)
    else:
        rig.core.assign(frozenset({P1}), {}, {})
        rig.turn(0.0)
        rig.core.assign(frozenset({P0, P1}), {P0: 3}, {})
        rig.turn(0.0)
    assert rig.core.waiting_since_ms(P0) is None
    assert rig.core.waiting_since_ms(P1) == 6
