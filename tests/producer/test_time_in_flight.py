"""Time that passes while requests are in flight or held: batches expire, numbers are skipped, and epochs are raised."""

from itertools import groupby
from typing import Any

import pytest

from kohort.network.errors import ConnectionFailed
from kohort.network.requests import NoResponse, ResponseReceived
from kohort.network.throttle import LONGEST_S
from kohort.producer import DeliveryTimeout
from tests.producer.producer_world import TOPIC, World
from tests.producer.test_producer_machine import P0, ready


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_nothing_acknowledged_is_lost_doubled_or_out_of_order_while_batches_expire(first: int) -> None:
    expired = acknowledged = raised = 0
    for seed in range(first, first + 25):
        world = World(seed, request_timeout_ms=200, delivery_timeout_ms=1_500)
        world.jumps = 0.15
        world.run(600)
        world.calm()
        sent = {value: number for number, (_, value) in enumerate(world.sent)}
        for place, log in world.logs.items():
            assert len(set(log.values)) == len(log.values), f"seed {seed}: doubled"
            numbers = [sent[value] for value in log.values]
            assert numbers == sorted(numbers), f"seed {seed}: out of order"
            raised += log.epoch > 0
            assert place.topic == TOPIC
        for delivery, value in world.sent:
            assert delivery.done(), f"seed {seed}"
            error = delivery.batch.error
            if error is None:
                reported = delivery.result()
                assert world.logs[reported[:2]].values[reported.offset] == value, f"seed {seed}: lost"  # type: ignore[index]
                acknowledged += 1
            else:
                assert isinstance(error, DeliveryTimeout), f"seed {seed}"
                place = delivery.batch.partition
                assert error.place["sent"] or value not in world.logs[place].values, f"seed {seed}: sent after all"
                expired += 1
        assert world.core.accumulator.buffered == 0
    assert acknowledged > 25 * 50
    assert expired > 25  # numbers were skipped
    assert raised > 25  # and epochs taken because of that


def test_the_jumps_of_time_are_all_that_differs() -> None:
    """Without them no batch expires, so that the other worlds stay as they are."""
    world = World(3, request_timeout_ms=200, delivery_timeout_ms=60_000)
    world.run(600)
    world.calm()
    outcomes = [delivery.batch.error is None for delivery, _ in world.sent]
    assert [well for well, _ in groupby(outcomes)] == [True]


def throttled(throttle_ms: int, **settings: Any) -> World:
    """A world whose only broker has just throttled the producer."""
    world = ready(nodes=1, partitions=1, linger_ms=0, **settings)
    world.send(b"first", 0)
    world.turn()
    (pipe,) = [pipe for pipe in world._pipes.values() if pipe]
    pending = pipe.popleft()
    outcome = world.carry_out(pending)
    assert isinstance(outcome, ResponseReceived)
    pending.done(outcome._replace(value=outcome.value._replace(throttle_time_ms=throttle_ms)), world.now)
    return world


def test_a_record_expires_in_time_in_a_throttle_time() -> None:
    """A request that the connection holds is in flight, and so are its batches, which would not expire."""
    world = throttled(9_000, delivery_timeout_ms=2_000, request_timeout_ms=1_000)
    began, batch = world.now, world.send(b"held", 0)
    assert batch is not None
    while not batch.done:
        world.now += 0.1
        world.turn()
        assert not any(world._pipes.values())
    assert isinstance(batch.error, DeliveryTimeout)
    assert batch.error.place["sent"] is False
    assert world.now - began == pytest.approx(2.0, abs=0.2)
    world.now += 9
    world.send(b"later", 0)
    world.calm()
    assert world.logs[P0].values == [b"first", b"later"]


@pytest.mark.parametrize(("throttle_ms", "ends_s"), [(9_000, 9.0), (24 * 3_600_000, LONGEST_S)])
def test_a_record_is_sent_at_the_end_of_a_throttle_time(throttle_ms: int, ends_s: float) -> None:
    world = throttled(throttle_ms)
    began = world.now
    world.send(b"held", 0)
    while not any(world._pipes.values()):
        world.turn()
        world.now = max(world.now, min(world._polls_at, began + ends_s))
    assert world.now - began == pytest.approx(ends_s, abs=0.1)


def test_a_throttle_time_ends_with_its_connection() -> None:
    world = ready(nodes=1, partitions=1, linger_ms=0, max_in_flight=2)
    for value in (b"known", b"first", b"second"):
        world.send(value, 0)
        world.turn()
        if value == b"known":
            world.calm()
    (pipe,) = [pipe for pipe in world._pipes.values() if pipe]
    first, second = pipe.popleft(), pipe.popleft()
    outcome = world.carry_out(first)
    assert isinstance(outcome, ResponseReceived)
    first.done(outcome._replace(value=outcome.value._replace(throttle_time_ms=9_000)), world.now)
    second.done(NoResponse(ConnectionFailed("it broke")), world.now)
    world.now += 2  # a backoff, which is shorter than the throttle time
    world.turn()
    assert any(world._pipes.values())
