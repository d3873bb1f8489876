"""The seeded world of a producer in which time passes while requests are in flight: batches expire, numbers are
skipped, and epochs are raised."""

from itertools import groupby

import pytest

from kohort.producer import DeliveryTimeout
from tests.producer.producer_world import TOPIC, World


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
