"""Random calls of group members that consume and produce in transactions. Each record has exactly one result.

Members join, close, abort, and are fenced by another one with their transactional id. A seed fixes the calls. How far a
rebalance is at a call depends on time.
"""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kohort import Consumer, Producer
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import CommitFailed
from kohort.fastpath import RecordColumns
from kohort.producer import ProducerFenced, TransactionAborted
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Call, Close, Delay
from kohort.testing.fake_broker.interventions import Action
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.support.random_calls import call_at_random

SEEDS = 8
CALLS = 50
MOST_MEMBERS = 3
GROUP, READ, WRITTEN = "group", "read", "written"
APIS = ("AddOffsetsToTxn", "AddPartitionsToTxn", "EndTxn", "InitProducerId", "Produce", "TxnOffsetCommit")
PROTOCOLS: tuple[dict[str, Any], ...] = (
    {"assignors": ["range"], "heartbeat_interval_ms": 100},
    {"assignors": ["cooperative-sticky"], "heartbeat_interval_ms": 100},
    {"protocol": "consumer"},
)
WEIGHTS = {"produce": 4, "step": 10, "join": 2, "close": 1, "fence": 1}


class Member:
    """A consumer and a producer, whose transactions have the consumer's offsets."""

    def __init__(self, bootstrap: str, name: str, chance: random.Random, settings: dict[str, Any]) -> None:
        self.name, self.chance = name, chance
        self.producer = Producer(bootstrap, transactional_id=name)
        self.consumer = Consumer(
            bootstrap,
            group=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_records=chance.choice([1, 7, 500]),
            **settings,
        )
        self.consumer.subscribe([READ])

    def close(self) -> None:
        for close in self.chance.sample([self.producer.close, self.consumer.close], 2):
            with contextlib.suppress(ProducerFenced):
                close()

    def step(self) -> None:
        """One poll and its transaction. Raises ProducerFenced."""
        slices = self.consumer.poll(self.chance.choice([0, 0.01, 0.03]))
        try:
            if slices and not self.transact(slices):
                self.go_back(slices)
        except (CommitFailed, TransactionAborted):
            self.producer.abort()
            self.go_back(slices)

    def transact(self, slices: list[RecordColumns]) -> bool:
        """Returns False if the transaction was aborted."""
        self.producer.begin()
        offsets: dict[TopicPartition, Any] = {}
        for columns in slices:
            for record in columns:
                self.producer.send(WRITTEN, record.value)
            offsets |= columns.next_offsets
        self.producer.send_offsets(offsets, self.consumer.group_metadata())
        commits = self.chance.random() < 0.9
        (self.producer.commit if commits else self.producer.abort)()
        return commits

    def go_back(self, slices: list[RecordColumns]) -> None:
        firsts: dict[TopicPartition, int] = {}
        for columns in slices:
            firsts.setdefault(TopicPartition(columns.topic, columns.partition), columns[0].offset)
        owned = [one for one in firsts if one in self.consumer.assignment]
        for one, found in self.consumer.committed(owned).items():
            self.consumer.seek(one, firsts[one] if found is None else found.offset)


class ModelledGroup:
    """Members, and the number of records that they read."""

    def __init__(self, fake: FakeBroker, partitions: int, chance: random.Random) -> None:
        self.fake, self.partitions, self.chance = fake, partitions, chance
        self.settings = chance.choice(PROTOCOLS)
        self.members: list[Member] = []
        self.names = iter(f"member-{number}" for number in range(CALLS))
        self.records = 0

    def produce(self) -> None:
        count = self.chance.choice([1, 3, 20])
        values = [b"%d" % (self.records + number) for number in range(count)]
        self.fake.produce(READ, self.chance.randrange(self.partitions), [(None, value) for value in values])
        self.records += count

    def add(self, name: str) -> None:
        self.members.append(Member(self.fake.bootstrap, name, self.chance, self.settings))

    def join(self) -> None:
        if len(self.members) < MOST_MEMBERS:
            self.add(next(self.names))

    def fence(self) -> None:
        """A member with the transactional id of another one, which is fenced at its next transaction."""
        if len(self.members) < MOST_MEMBERS:
            self.add(self.chance.choice(self.members).name)

    def close(self) -> None:
        if len(self.members) > 1:
            self.leave(self.chance.choice(self.members))

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.close()

    def step(self) -> None:
        for member in list(self.members):
            try:
                member.step()
            except ProducerFenced:
                self.leave(member)
        if not self.members:
            self.join()

    def drain(self) -> None:
        results: Counter[int] = Counter()
        limit = time.monotonic() + PATIENCE_S
        with Consumer(self.fake.bootstrap, isolation_level="read_committed") as reader:
            reader.assign({TopicPartition(WRITTEN, 0): 0, TopicPartition(WRITTEN, 1): 0})
            while len(results) < self.records:
                assert time.monotonic() < limit, self.records - len(results)
                self.step()
                results.update(int(record.value or b"") for columns in reader.poll(0.01) for record in columns)
            results.update(int(record.value or b"") for columns in reader.poll(0.1) for record in columns)
        assert results == Counter(range(self.records))


def faults(chance: random.Random) -> Callable[[Call], Action]:
    """A late response, or a connection that ends."""

    def act(_call: Call) -> Action:
        number = chance.random()
        if number < 0.03:
            return Delay(0.02)
        return Close(after_work=chance.random() < 0.5) if number < 0.05 else None

    return act


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_record_has_one_result_whatever_the_members_do(seed: int) -> None:
    chance = random.Random(seed)
    partitions = chance.choice([1, 2, 4])
    features = None if chance.random() < 0.5 else {"transaction.version": 1}
    with FakeBroker(topics={READ: partitions, WRITTEN: 2}, features=features) as fake:
        act = faults(random.Random(seed))
        for api in APIS:
            fake.control(api, act)
        group = ModelledGroup(fake, partitions, chance)
        try:
            group.join()
            call_at_random(group, WEIGHTS, CALLS, chance)
            group.drain()
        finally:
            with contextlib.suppress(KohortError):
                for member in group.members:
                    member.close()
