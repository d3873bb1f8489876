"""Random calls of one consumer beside a model of it: what a poll returns, positions, commits.

A seed fixes the calls, except how much a poll with a short wait finds. The broker is a fake one in this process. There
is one thread, and no failure.
"""

import random
import time
from typing import Any

import pytest

from kohort import Consumer
from kohort.common import TopicPartition
from kohort.fastpath import RecordColumns
from kohort.testing import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S

SEEDS = 40
CALLS = 60
GROUP = "group"
TOPIC = "topic"
WEIGHTS = {
    "produce": 2,
    "poll": 4,
    "drain": 1,
    "assign": 1,
    "assign_at": 1,
    "unsubscribe": 1,
    "seek": 1,
    "seek_to_beginning": 1,
    "seek_to_end": 1,
    "pause": 1,
    "resume": 1,
    "hold": 1,
    "release": 1,
    "commit": 1,
    "commit_by_hand": 1,
    "committed": 1,
    "position": 1,
    "lag": 1,
    "trim": 1,
}


class ModelledConsumer:
    """A consumer with manual assignment, and what it must know by its calls so far."""

    def __init__(self, fake: FakeBroker, consumer: Consumer, partitions: int, chance: random.Random) -> None:
        self.fake, self.consumer, self.chance = fake, consumer, chance
        self.all = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self.logs: dict[TopicPartition, list[bytes]] = {one: [] for one in self.all}
        self.starts = dict.fromkeys(self.all, 0)
        self.positions: dict[TopicPartition, int] = {}  # of what is assigned
        self.committed: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.held: set[TopicPartition] = set()
        for _ in range(3 * partitions):
            self.produce()

    def some(self, partitions: set[TopicPartition] | list[TopicPartition]) -> set[TopicPartition]:
        chosen = sorted(partitions)
        return set(self.chance.sample(chosen, self.chance.randint(min(1, len(chosen)), len(chosen))))

    @property
    def assigned(self) -> set[TopicPartition]:
        return set(self.positions)

    def produce(self) -> None:
        one = self.chance.choice(self.all)
        log = self.logs[one]
        records = self.chance.choice([1, 2, 30, 200])
        values = [b"%d:%d" % (one.partition, len(log) + number) for number in range(records)]
        codec = self.chance.choice(["none", "gzip"])
        assert self.fake.produce(TOPIC, one.partition, [(None, value) for value in values], codec=codec) == len(log)
        log += values

    def trim(self) -> None:
        one = self.chance.choice(self.all)
        last = self.positions.get(one, len(self.logs[one]))  # what may be buffered stays
        if last > self.starts[one]:
            self.starts[one] = self.chance.randint(self.starts[one], last)
            self.fake.trim(TOPIC, one.partition, self.starts[one])

    def check(self, returned: list[RecordColumns]) -> None:
        for columns in returned:
            one = TopicPartition(columns.topic, columns.partition)
            assert one in self.assigned
            assert one not in self.paused | self.held
            for record in columns:
                if self.positions[one] < self.starts[one]:
                    self.positions[one] = self.starts[one]  # by auto_offset_reset
                assert record.offset == self.positions[one]
                assert record.value == self.logs[one][record.offset]
                self.positions[one] += 1

    def poll(self) -> None:
        self.check(self.consumer.poll(self.chance.choice([0, 0.001, 0.02])))

    def drain(self) -> None:
        limit = time.monotonic() + PATIENCE_S
        readable = self.assigned - self.paused - self.held
        while any(self.positions[one] < len(self.logs[one]) for one in readable):
            assert time.monotonic() < limit
            self.check(self.consumer.poll(0.2))

    def assign(self) -> None:
        wanted = self.some(self.all) if self.chance.random() < 0.8 else set()
        self.consumer.assign(wanted)
        self._assigned({one: self._start(one) for one in wanted})

    def assign_at(self) -> None:
        starts = {one: self.chance.randint(self.starts[one], len(self.logs[one])) for one in self.some(self.all)}
        self.consumer.assign(starts)
        self._assigned(starts)

    def _start(self, one: TopicPartition) -> int:
        return self.positions.get(one, self.committed.get(one, self.starts[one]))

    def _assigned(self, positions: dict[TopicPartition, int]) -> None:
        self.positions = positions
        self.paused &= self.assigned

    def unsubscribe(self) -> None:
        self.consumer.unsubscribe()
        self._assigned({})

    def seek(self) -> None:
        for one in self.some(self.assigned):
            self.positions[one] = self.chance.randint(self.starts[one], len(self.logs[one]))
            self.consumer.seek(one, self.positions[one])

    def seek_to_beginning(self) -> None:
        chosen = self.some(self.assigned)
        self.consumer.seek_to_beginning(chosen)
        for one in chosen:
            self.positions[one] = self.starts[one]
            assert self.consumer.position(one) == self.positions[one]

    def seek_to_end(self) -> None:
        chosen = self.some(self.assigned)
        self.consumer.seek_to_end(chosen)
        for one in chosen:
            self.positions[one] = len(self.logs[one])
            assert self.consumer.position(one) == self.positions[one]

    def pause(self) -> None:
        chosen = self.some(self.assigned)
        self.consumer.pause(chosen)
        self.paused |= chosen

    def resume(self) -> None:
        chosen = self.some(self.assigned)
        self.consumer.resume(chosen)
        self.paused -= chosen

    def hold(self) -> None:
        chosen = self.some(self.all)
        self.consumer.hold(chosen)
        self.held |= chosen

    def release(self) -> None:
        chosen = self.some(self.all)
        self.consumer.release(chosen)
        self.held -= chosen

    def commit(self) -> None:
        for one in self.assigned:
            self.position_of(one)  # a position that has yet to be looked up is not committed
        self.consumer.commit(allow_rewind=True)
        self.committed |= self.positions

    def commit_by_hand(self) -> None:
        for one in self.assigned:
            self.position_of(one)  # a position that has yet to be looked up is at this offset afterwards
        offsets = {one: self.chance.randint(self.starts[one], len(self.logs[one])) for one in self.some(self.all)}
        self.consumer.commit(offsets, allow_rewind=True)
        self.committed |= offsets

    def read_committed(self) -> None:
        found = self.consumer.committed(self.all)
        assert {one: stored.offset for one, stored in found.items() if stored} == self.committed

    def position_of(self, one: TopicPartition) -> None:
        found = self.consumer.position(one)
        if self.positions[one] < self.starts[one] == found:
            self.positions[one] = found  # it was reset already
        assert found == self.positions[one]

    def position(self) -> None:
        for one in self.some(self.assigned):
            self.position_of(one)

    def lag(self) -> None:
        for one, records in self.consumer.lag().items():
            assert 0 <= records <= len(self.logs[one]) - self.positions[one]


@pytest.mark.proves("S-03")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_calls_do_what_the_model_does(seed: int) -> None:
    chance = random.Random(seed)
    partitions = chance.choice([1, 2, 4])
    settings: dict[str, Any] = {"max_poll_records": chance.choice([1, 7, 50])} if chance.random() < 0.4 else {}
    calls = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=CALLS)
    with (
        FakeBroker(topics={TOPIC: partitions}) as fake,
        Consumer(fake.bootstrap, group=GROUP, auto_offset_reset="earliest", **settings) as consumer,
    ):
        model = ModelledConsumer(fake, consumer, partitions, chance)
        for call in calls:
            if model.assigned or call not in {"poll", "drain", "seek", "seek_to_beginning", "seek_to_end", "lag"}:
                getattr(model, "read_committed" if call == "committed" else call)()
        model.release()
        if model.assigned:
            model.drain()
