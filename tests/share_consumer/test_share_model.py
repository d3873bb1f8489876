"""Random calls of the members of a share group beside a model: which records come, and to which member.

A seed fixes the calls. How many records a poll returns depends on time. In half of the seeds connections end, and
leaders move. An acknowledgement may fail then, and its record may come again.
"""

import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from kohort import ShareConsumer
from kohort.common import TopicPartition
from kohort.fastpath import Record
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Call, Close, Delay
from kohort.testing.fake_broker.interventions import Action
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.support.random_calls import call_at_random

SEEDS = 16
CALLS = 60
MOST_MEMBERS = 4
GROUP, TOPIC = "group", "topic"
DELIVERIES = 1000  # of a record, at most
APIS = ("FindCoordinator", "ShareAcknowledge", "ShareFetch", "ShareGroupHeartbeat")
WEIGHTS = {
    "produce": 3,
    "poll": 6,
    "commit": 3,
    "settle_one": 2,
    "renew": 1,
    "join": 1,
    "close": 1,
    "disconnect": 1,
    "move_leader": 1,
}

Place = tuple[TopicPartition, int]


class Member:
    """A member, its records without an acknowledgement, and its acknowledgements without an outcome."""

    def __init__(self, consumer: ShareConsumer) -> None:
        self.consumer = consumer
        self.records: dict[Place, Record] = {}
        self.noted: dict[Place, str] = {}


class ModelledShareGroup:
    """Members that acknowledge each record explicitly, and the state of each record."""

    def __init__(self, fake: FakeBroker, partitions: int, nodes: int, chance: random.Random, *, faulty: bool) -> None:
        self.fake, self.nodes, self.chance, self.faulty = fake, nodes, chance, faulty
        self.written: Counter[TopicPartition] = Counter({TopicPartition(TOPIC, one): 0 for one in range(partitions)})
        self.members: list[Member] = []
        self.settled: set[Place] = set()  # accepted or rejected

    def any_member(self) -> Member:
        return self.chance.choice(self.members)

    def produce(self) -> None:
        one = self.chance.choice(sorted(self.written))
        records = self.chance.choice([1, 2, 20])
        self.fake.produce(*one, [(None, b"v")] * records)
        self.written[one] += records

    def join(self) -> None:
        if len(self.members) < MOST_MEMBERS:
            most = self.chance.choice([1, 7, 500])
            consumer = ShareConsumer(
                self.fake.bootstrap, group=GROUP, acknowledgement_mode="explicit", max_poll_records=most
            )
            self.members.append(Member(consumer))
            consumer.subscribe([TOPIC])

    def poll(self) -> None:
        member = self.any_member()
        if member.records:
            return  # in this mode, each record needs an acknowledgement before the next poll
        self.confirm(member)
        for batch in member.consumer.poll(self.chance.choice([0.01, 0.05])):
            for record in batch:
                place = TopicPartition(record.topic, record.partition), record.offset
                assert place not in self.settled
                assert self.faulty or not any(place in other.records for other in self.members)
                member.records[place] = record

    def settle_one(self) -> None:
        member = self.any_member()
        if member.records:
            self.acknowledge(member, self.chance.choice(sorted(member.records)))

    def acknowledge(self, member: Member, place: Place, how: str | None = None) -> None:
        how = how or self.chance.choices(["accept", "release", "reject"], [8, 2, 1])[0]
        member.consumer.acknowledge(member.records.pop(place), how)
        member.noted[place] = how

    def commit(self) -> None:
        member = self.any_member()
        for place in list(member.records):
            self.acknowledge(member, place)
        self.confirm(member)

    def confirm(self, member: Member) -> None:
        """Commit what is noted, and learn of its outcomes."""
        failed = {(one, offset) for one, offsets in member.consumer.commit().items() for offset in offsets}
        assert failed <= member.noted.keys()
        assert self.faulty or not failed
        self.settled |= {place for place, how in member.noted.items() if how != "release" and place not in failed}
        member.noted = {}

    def renew(self) -> None:
        member = self.any_member()
        if member.records and not self.faulty:
            place = self.chance.choice(sorted(member.records))
            member.consumer.acknowledge(member.records[place], "renew")
            assert member.consumer.commit() == {}
            self.settled |= {one for one, how in member.noted.items() if how != "release"}
            member.noted = {}

    def close(self) -> None:
        if len(self.members) > 1:
            member = self.any_member()
            self.confirm(member)
            self.members.remove(member)
            member.consumer.close()

    def disconnect(self) -> None:
        if self.faulty:
            self.fake.disconnect()

    def move_leader(self) -> None:
        if self.faulty:
            self.fake.set_leader(*self.chance.choice(sorted(self.written)), self.chance.randint(1, self.nodes))

    def drain(self) -> None:
        """Accept all that is left."""
        limit = time.monotonic() + PATIENCE_S
        while len(self.settled) < self.written.total():
            assert time.monotonic() < limit, self.written.total() - len(self.settled)
            for member in self.members:
                for place in list(member.records):
                    self.acknowledge(member, place, "accept")
            self.poll()


def faults(chance: random.Random, *, faulty: bool) -> Callable[[Call], Action]:
    """A late response, or a connection that ends."""

    def act(_call: Call) -> Action:
        number = chance.random()
        if number < 0.03:
            return Delay(0.03)
        return Close() if faulty and number < 0.05 else None

    return act


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_record_is_settled_once_whatever_the_members_do(seed: int) -> None:
    chance = random.Random(seed)
    partitions, nodes, faulty = chance.choice([1, 3]), chance.choice([1, 3]), seed % 2 == 1
    with FakeBroker(topics={TOPIC: partitions}, nodes=nodes) as fake:
        fake.configure_group(
            GROUP, {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": str(DELIVERIES)}
        )
        act = faults(random.Random(seed), faulty=faulty)
        for api in APIS:
            fake.control(api, act)
        group = ModelledShareGroup(fake, partitions, nodes, chance, faulty=faulty)
        try:
            group.join()
            call_at_random(group, WEIGHTS, CALLS, chance)
            group.drain()
        finally:
            for member in group.members:
                member.consumer.close()
