"""Histories of a producer with splits, callbacks, faults and passing time, each out of one seed.

KOHORT_PRODUCER_SEEDS: the number of histories; KOHORT_PRODUCER_FIRST: the first seed.
"""

import os
from collections import defaultdict

from kohort.common import TopicPartition
from kohort.producer import Delivery, DeliveryTimeout
from kohort.producer.callback_queue import CallbackQueue
from kohort.protocol.errors import BrokerError
from tests.producer.producer_world import TOO_LARGE, World

SEEDS = int(os.environ.get("KOHORT_PRODUCER_SEEDS", "60"))
FIRST = int(os.environ.get("KOHORT_PRODUCER_FIRST", "0"))
STEPS, MOST_BYTES = 400, 260


class History:
    """A world whose records have callbacks, and whose broker takes small batches only."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, batch_bytes=600, request_timeout_ms=200, delivery_timeout_ms=2_500)
        self.world.most_bytes, self.world.jumps = MOST_BYTES, 0.05
        self.called: dict[TopicPartition, list[int]] = defaultdict(list)
        self.calls: dict[int, Delivery] = {}
        self._queue = CallbackQueue(self.world.core.accumulator.callbacks, lambda: None)

    def send(self) -> None:
        world, number = self.world, len(self.world.sent)

        def note(delivery: Delivery) -> None:
            assert delivery.done()
            assert number not in self.calls, "called twice"
            self.calls[number] = delivery
            self.called[delivery.batch.partition].append(number)

        value = b"%d:" % number + b"x" * world.chance.choice((1, 20, 60, 120, 200))
        world.send(value, world.chance.choice((None, 0, 1, 2)), note)

    def run(self) -> None:
        for _ in range(STEPS):
            happening = self.world.chance.random()
            if happening < 0.4:
                self.send()
            elif happening < 0.65:
                self.world.turn()
            elif happening < 0.95:
                self.world.respond_to_one()
            else:
                self._queue.call()
        self.world.calm()
        self._queue.call()

    def check(self) -> None:
        world = self.world
        number_of = {value: number for number, (_, value) in enumerate(world.sent)}
        for log in world.logs.values():
            numbers = [number_of[value] for value in log.values]
            assert numbers == sorted(set(numbers)), "doubled, or out of order"
        assert self.calls.keys() == set(range(len(world.sent))), "no callback"
        assert all(numbers == sorted(numbers) for numbers in self.called.values()), "callbacks out of order"
        for delivery, value in world.sent:
            sent, index = delivery.batch.place(delivery.index)
            if sent.error is None:
                assert world.logs[sent.partition].values[sent.base_offset + index] == value, "lost"
            elif isinstance(sent.error, DeliveryTimeout):
                assert sent.error.place["sent"] or value not in world.logs[sent.partition].values, "sent after all"
            else:
                assert isinstance(sent.error, BrokerError)
                assert (sent.error.code, len(value) > MOST_BYTES - 100) == (TOO_LARGE, True)
        assert world.core.accumulator.buffered == 0


def test_nothing_is_lost_doubled_or_out_of_order_and_each_callback_is_called_once_in_order() -> None:
    splits = expired = 0
    for seed in range(FIRST, FIRST + SEEDS):
        history = History(seed)
        try:
            history.run()
            history.check()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        splits += history.world.core.sensors.splits
        expired += sum(isinstance(one.exception(0), DeliveryTimeout) for one, _ in history.world.sent)
    assert splits > SEEDS
    assert expired > SEEDS // 10
