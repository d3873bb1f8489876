"""Random histories of transforms on a fake broker. Each record has the results that its handler sends for it, once.

Transforms start, stop, fail in their handlers, are removed from the group, and are replaced under their names. Their
group refuses some transactions. A seed fixes the calls. How far a transaction is at a call depends on time.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from typing import Any

import pytest

from kohort import Admin, Consumer, KohortError, Producer, TopicPartition, Transform
from kohort.coordinator_client import CommitFailed, FencedInstance, UnreleasedInstance
from kohort.fastpath import RecordColumns
from kohort.network.errors import OperationTimeout
from kohort.producer import ProducerFenced, TransactionAborted
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter
from kohort.transform import transform as module
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.support.random_calls import call_at_random
from tests.transform.test_exactly_once_model import APIS, PROTOCOLS, faults
from tests.transform.test_transform import refused

SEEDS = 8
CALLS = 60
NAMES = ("one", "two", "three")  # few, since the partitions of a static member wait for its return
GROUP, READ, WRITTEN = "group", "read", "written"
WEIGHTS = {"produce": 6, "abort_records": 2, "wait": 4, "start": 4, "replace": 1, "remove": 1, "stop": 2, "fail": 1}
SLOW_S = (0.0, 0.0, 0.01, 0.03)


class HandlerBroken(Exception):
    """The error of a handler that fails."""


class Life:
    """A transform on a thread of its own."""

    def __init__(self, bootstrap: str, name: str, chance: random.Random, settings: dict[str, Any]) -> None:
        self.name, self.chance = name, chance
        self.fails = self.fenced = False
        self.error: BaseException | None = None
        reads: Any = {**settings, "max_poll_records": chance.choice([1, 7, 500])}
        self.transform = Transform(
            bootstrap,
            group=GROUP,
            name=name,
            topics=[READ],
            handler=self.handle,
            consumer=reads,
        )
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def handle(self, columns: RecordColumns, producer: Producer) -> None:
        for record in columns:
            for result in results_of(int(record.value or b"")):
                producer.send(WRITTEN, result)
        time.sleep(self.chance.choice(SLOW_S))
        if self.fails:
            raise HandlerBroken

    def run(self) -> None:
        try:
            self.transform.run()
        except BaseException as error:
            self.error = error

    def ended(self) -> None:
        """Wait for the end. Its error is one that the history explains."""
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive(), self.name
        expected: tuple[type[BaseException], ...] = (CommitFailed, OperationTimeout, TransactionAborted)  # after `stop`
        if self.fails:
            expected += (HandlerBroken,)
        if self.fenced:
            expected += (ProducerFenced, FencedInstance, UnreleasedInstance)
        assert self.error is None or isinstance(self.error, expected), repr(self.error)


def results_of(number: int) -> list[bytes]:
    """None, one or two."""
    return [b"%d.%d" % (number, one) for one in range(number % 3)]


class ModelledTransforms:
    """Lives, and the numbers that they read."""

    def __init__(self, fake: FakeBroker, partitions: int, chance: random.Random) -> None:
        self.fake, self.partitions, self.chance = fake, partitions, chance
        self.settings = chance.choice(PROTOCOLS)
        self.lives: list[Life] = []
        self.number = 0
        self.wanted: Counter[bytes] = Counter()

    def produce(self) -> None:
        for one in self.next_numbers():
            self.fake.produce(READ, self.chance.randrange(self.partitions), [(None, b"%d" % one)])
            self.wanted.update(results_of(one))

    def abort_records(self) -> None:
        """Records of an aborted transaction, which have no result."""
        with Producer(self.fake.bootstrap, transactional_id="input") as producer:
            producer.begin()
            for one in self.next_numbers():
                producer.send(READ, b"%d" % one, partition=self.chance.randrange(self.partitions))
            producer.flush(PATIENCE_S)
            producer.abort()

    def next_numbers(self) -> range:
        first = self.number
        self.number += self.chance.choice([1, 3, 20])
        return range(first, self.number)

    def wait(self) -> None:
        time.sleep(self.chance.choice([0.001, 0.01, 0.05]))

    def add(self, name: str) -> None:
        self.lives.append(Life(self.fake.bootstrap, name, self.chance, self.settings))

    def start(self) -> None:
        if free := [name for name in NAMES if all(life.name != name for life in self.lives)]:
            self.add(self.chance.choice(free))

    def replace(self) -> None:
        """Start another process with the name of one that runs. One of them ends the other."""
        if self.lives and len(self.lives) < len(NAMES):
            name = self.chance.choice(self.lives).name
            self.add(name)
            for life in self.lives:
                life.fenced |= life.name == name

    def remove(self) -> None:
        """Remove a member from the group. Its open transaction is refused, and others read its partitions."""
        if self.lives:
            name = self.chance.choice(self.lives).name
            for life in self.lives:
                life.fenced |= life.name == name
            with Admin(self.fake.bootstrap) as admin, contextlib.suppress(KohortError):  # it may not have joined yet
                admin.remove_members(GROUP, [name])

    def stop(self) -> None:
        if self.lives:
            life = self.lives.pop(self.chance.randrange(len(self.lives)))
            life.transform.stop()
            life.ended()

    def fail(self) -> None:
        """Have a handler raise from now on. The next life goes on."""
        if self.lives:
            self.chance.choice(self.lives).fails = True

    def drain(self) -> None:
        while self.lives:
            self.stop()
        for name in NAMES:
            self.add(name)
        found: Counter[bytes] = Counter()
        until = time.monotonic() + PATIENCE_S
        with Consumer(self.fake.bootstrap, isolation_level="read_committed") as reader:
            reader.assign({TopicPartition(WRITTEN, 0): 0, TopicPartition(WRITTEN, 1): 0})
            while found.total() < self.wanted.total():
                assert time.monotonic() < until, self.wanted - found
                found.update(bytes(record.value or b"") for columns in reader.poll(0.01) for record in columns)
            while self.lives:
                self.stop()
            found.update(bytes(record.value or b"") for columns in reader.poll(0.1) for record in columns)
        assert found == self.wanted


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_record_has_its_results_once_whatever_happens_to_transforms(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACKOFF", module.BACKOFF._replace(initial_ms=1, max_ms=20))
    chance = random.Random(seed)
    partitions = chance.choice([1, 2, 4])
    features = None if chance.random() < 0.5 else {"transaction.version": 1}
    with FakeBroker(topics={READ: partitions, WRITTEN: 2}, features=features) as fake:
        act = faults(random.Random(seed))
        for api in APIS:
            fake.control(api, act)
        refuses = random.Random(seed)
        fake.control("TxnOffsetCommit", lambda _call: Alter(refused) if refuses.random() < 0.1 else None)
        group = ModelledTransforms(fake, partitions, chance)
        try:
            group.start()
            call_at_random(group, WEIGHTS, CALLS, chance)
            group.drain()
        finally:
            for life in group.lives:
                life.transform.stop()
                life.thread.join(PATIENCE_S)
