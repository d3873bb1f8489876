"""Random calls of the members of a group. No member crashes, so each record is returned exactly once.

A seed fixes the calls. How far a rebalance is at a call depends on time. All members have one thread, and the broker is
a fake one in this process.
"""

import random
import time
from collections import Counter
from typing import Any

import pytest

from kohort import Consumer, RebalanceHooks
from kohort.common import TopicPartition
from kohort.coordinator_client import Lost, RebalanceInProgress, Revoked
from kohort.testing import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S
from tests.support.random_calls import call_at_random

SEEDS = 24
CALLS = 40
MOST_MEMBERS = 4
GROUP = "group"
PROTOCOLS = (
    {"assignors": ["range"]},
    {"assignors": ["roundrobin"]},
    {"assignors": ["sticky"]},
    {"assignors": ["cooperative-sticky"]},
    {"assignors": ["cooperative-sticky", "range"]},
    {"protocol": "consumer"},
    {"protocol": "consumer"},
)
SAVES = ("automatic", "returned by the hook", "committed in the hook")
WEIGHTS = {
    "produce": 4,
    "poll": 8,
    "join": 1,
    "close": 1,
    "unsubscribe": 1,
    "enforce": 1,
    "pause": 1,
    "resume": 1,
    "subscribe": 1,
}


class Member(RebalanceHooks):
    """A member of the group, with the offsets behind all that it was given."""

    def __init__(self, consumer: Consumer, saves: str) -> None:
        self.consumer, self.saves = consumer, saves
        self.offsets: dict[TopicPartition, int] = {}

    def on_revoked(self, event: Revoked) -> dict[TopicPartition, int]:
        if self.saves == "automatic" or (self.saves == "committed in the hook" and self.save()):
            return {}
        return {one: self.offsets[one] for one in event.partitions if one in self.offsets}

    def on_lost(self, event: Lost) -> None:
        raise AssertionError(f"no member was late, and yet {event} came")

    def save(self) -> bool:
        """Commit. Returns False in a rebalance, in which the coordinator takes no commit."""
        try:
            self.consumer.commit()
        except RebalanceInProgress:
            return False
        return True

    def save_to_leave(self) -> bool:
        """As `save`, if nothing else commits what the last poll has returned: an automatic commit leaves it out."""
        return self.saves != "automatic" or self.save()


class ModelledGroup:
    """Members, and how often each record was returned."""

    def __init__(self, fake: FakeBroker, topics: dict[str, int], chance: random.Random) -> None:
        self.fake, self.topics, self.chance = fake, topics, chance
        self.saves = chance.choice(SAVES)
        self.settings: dict[str, Any] = chance.choice(PROTOCOLS)
        self.members: list[Member] = []
        self.written: Counter[TopicPartition] = Counter()
        self.returned: Counter[tuple[TopicPartition, int]] = Counter()

    def any_member(self) -> Member:
        return self.chance.choice(self.members)

    def some_topics(self) -> list[str]:
        return self.chance.sample(list(self.topics), self.chance.randint(1, len(self.topics)))

    def join(self) -> None:
        if len(self.members) < MOST_MEMBERS:
            consumer = Consumer(
                self.fake.bootstrap,
                group=GROUP,
                auto_offset_reset="earliest",
                enable_auto_commit=self.saves == "automatic",
                auto_commit_interval_ms=20,
                max_poll_records=self.chance.choice([1, 5, 500]),
                **self.settings,
            )
            self.members.append(Member(consumer, self.saves))
            consumer.subscribe(self.some_topics(), hooks=self.members[-1])

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        member.consumer.close()

    def close(self) -> None:
        member = self.any_member()
        if len(self.members) > 1 and member.save_to_leave():
            self.leave(member)

    def unsubscribe(self) -> None:
        member = self.any_member()
        if len(self.members) > 1 and member.save_to_leave():
            member.consumer.unsubscribe()
            self.leave(member)

    def enforce(self) -> None:
        self.any_member().consumer.enforce_rebalance()

    def subscribe(self) -> None:
        member = self.any_member()
        member.consumer.subscribe(self.some_topics(), hooks=member)

    def pause(self) -> None:
        consumer = self.any_member().consumer
        consumer.pause(self.chance.sample(sorted(consumer.assignment), len(consumer.assignment) // 2))

    def resume(self) -> None:
        consumer = self.any_member().consumer
        consumer.resume(consumer.assignment)

    def produce(self) -> None:
        topic = self.chance.choice(list(self.topics))
        one = TopicPartition(topic, self.chance.randrange(self.topics[topic]))
        records = self.chance.choice([1, 2, 20])
        self.fake.produce(*one, [(None, b"v")] * records)
        self.written[one] += records

    def poll(self) -> None:
        for member in self.members:
            for columns in member.consumer.poll(self.chance.choice([0, 0.01, 0.05])):
                one = TopicPartition(columns.topic, columns.partition)
                member.offsets[one] = columns.next_offset
                self.returned.update((one, record.offset) for record in columns)

    def drain(self) -> None:
        for member in self.members:
            member.consumer.subscribe(self.topics, hooks=member)
        limit = time.monotonic() + PATIENCE_S
        while len(self.returned) < self.written.total():
            assert time.monotonic() < limit, self.written.total() - len(self.returned)
            self.poll()
            for member in self.members:
                member.consumer.resume(member.consumer.paused())


@pytest.mark.proves("S-03", "S-04")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_record_is_returned_once_whatever_the_members_do(seed: int) -> None:
    chance = random.Random(seed)
    topics = {f"topic-{number}": chance.choice([1, 3, 5]) for number in range(chance.choice([1, 2]))}
    with FakeBroker(topics=topics) as fake:
        group = ModelledGroup(fake, topics, chance)
        try:
            group.join()
            call_at_random(group, WEIGHTS, CALLS, chance)
            group.drain()
            assert group.returned.total() == len(group.returned)
            assert len(group.returned) == group.written.total()
        finally:
            for member in list(group.members):
                group.leave(member)
