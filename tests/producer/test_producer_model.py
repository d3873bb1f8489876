"""Random calls of a producer beside a model of it: the records and the offsets that readers see.

Two thirds of the seeds have transactions. Connections end at random, and responses are late or lost. Leaders and
coordinators move. A seed fixes the calls. Which request meets a fault depends on time.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from kohort import Consumer, Producer
from kohort.common import TopicPartition
from kohort.network.group_types import ConsumerGroupMetadata
from kohort.producer import Delivery
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Call, Close, Delay, Drop
from kohort.testing.fake_broker.interventions import Action
from tests.coordinator_client.consumer_helpers import PATIENCE_S, read
from tests.support.random_calls import call_at_random

SEEDS = 9
CALLS = 60
GROUP = ConsumerGroupMetadata("group")
TOPIC = "topic"
READ = TopicPartition("read", 0)
APIS = (
    "AddOffsetsToTxn",
    "AddPartitionsToTxn",
    "EndTxn",
    "FindCoordinator",
    "InitProducerId",
    "Metadata",
    "Produce",
    "TxnOffsetCommit",
)
WEIGHTS = {
    "send": 8,
    "flush": 1,
    "poll": 1,
    "begin": 6,
    "commit": 3,
    "abort": 2,
    "send_offsets": 4,
    "move_leader": 1,
    "move_coordinator": 1,
    "disconnect": 1,
}


class ModelledProducer:
    """A producer, and what must be in the log by its calls so far."""

    def __init__(
        self, fake: FakeBroker, producer: Producer, partitions: int, chance: random.Random, *, transactional: bool
    ) -> None:
        self.fake, self.producer, self.chance, self.transactional = fake, producer, chance, transactional
        self.is_open = False
        self.logs: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        self.sent: list[tuple[int, bytes, Delivery]] = []  # in this transaction
        self.reported: list[bytes] = []
        self.records = 0
        self.offset: int | None = None
        self.committed: int | None = None

    def some_partition(self) -> int:
        return self.chance.randrange(len(self.logs))

    def some_node(self) -> int:
        return self.chance.randint(1, len(self.fake.bootstrap.split(",")))

    def send(self) -> None:
        if self.transactional and not self.is_open:
            return
        for _ in range(self.chance.choice([1, 1, 3, 40])):
            partition, value = (
                self.some_partition(),
                b"%d:" % self.records + b"v" * self.chance.choice([0, 0, 300, 5000]),
            )
            self.records += 1
            delivery = self.producer.send(TOPIC, value, partition=partition, on_delivery=self._report(value))
            self.sent.append((partition, value, delivery))

    def _report(self, value: bytes) -> Callable[[Delivery], None]:
        return lambda _delivery: self.reported.append(value)

    def flush(self) -> None:
        self.producer.flush()
        for partition, _, delivery in self.sent:
            assert delivery.result().partition == partition

    def poll(self) -> None:
        self.producer.poll(0)

    def begin(self) -> None:
        if self.transactional and not self.is_open:
            self.producer.begin()
            self.is_open = True

    def send_offsets(self) -> None:
        if self.is_open:
            self.offset = self.chance.randint(0, 1000)
            self.producer.send_offsets({READ: self.offset}, GROUP)

    def commit(self) -> None:
        if self.is_open:
            self.producer.commit()
            self.committed = self.committed if self.offset is None else self.offset
            self._ended(self.sent)

    def abort(self) -> None:
        if self.is_open:
            self.producer.abort()
            self._ended([])

    def _ended(self, kept: list[tuple[int, bytes, Delivery]]) -> None:
        for partition, value, _ in kept:
            self.logs[partition].append(value)
        self.is_open, self.sent, self.offset = False, [], None

    def move_leader(self) -> None:
        self.fake.set_leader(TOPIC, self.some_partition(), self.some_node())

    def move_coordinator(self) -> None:
        self.fake.move_coordinator(self.chance.choice([GROUP.group_id, "producer"]), self.some_node())

    def disconnect(self) -> None:
        self.fake.disconnect()

    def end(self) -> None:
        """End the last transaction; without transactions, wait for all records."""
        self.chance.choice([self.commit, self.abort])()
        self.flush()
        if not self.transactional:
            self._ended(self.sent)
        self.poll()
        assert sorted(self.reported) == sorted(set(self.reported))
        assert len(self.reported) == self.records

    def check(self) -> None:
        """Compare the log and the committed offset with the model."""
        with Consumer(self.fake.bootstrap, group=GROUP.group_id, isolation_level="read_committed") as consumer:
            consumer.assign(dict.fromkeys((TopicPartition(TOPIC, number) for number in self.logs), 0))
            found: dict[int, list[bytes]] = {number: [] for number in self.logs}
            for record in read(consumer, sum(map(len, self.logs.values()))):
                found[record.partition].append(bytes(record.value or b""))
            assert found == self.logs
            assert consumer.poll(0.05) == []
            stored = consumer.committed([READ])[READ]
            assert (stored.offset if stored else None) == self.committed


def faults(chance: random.Random) -> Callable[[Call], Action]:
    """A fault of every twelfth request, or None."""

    def act(_call: Call) -> Action:
        number = chance.random()
        if number < 0.03:
            return Close(after_work=chance.random() < 0.5)
        if number < 0.05:
            return Close(reset=True)
        if number < 0.08:
            return Delay(0.03)
        return Drop(after_work=chance.random() < 0.5) if number < 0.081 else None

    return act


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_log_has_what_the_model_has_whatever_the_brokers_do(seed: int) -> None:
    chance = random.Random(seed)
    partitions, nodes = chance.choice([1, 3]), chance.choice([1, 3])
    transactional = seed % 3 > 0
    settings: dict[str, Any] = {"transactional_id": "producer"} if transactional else {}
    with FakeBroker(topics={TOPIC: partitions, READ.topic: 1}, nodes=nodes) as fake:
        act = faults(random.Random(seed))
        controls = [fake.control(api, act) for api in APIS]
        with Producer(
            fake.bootstrap,
            linger_ms=chance.choice([0, 5, 50]),
            batch_bytes=chance.choice([200, 16_384]),
            compression=chance.choice(["none", "gzip", "lz4"]),
            request_timeout_ms=500,
            delivery_timeout_ms=int(PATIENCE_S * 1000),
            **settings,
        ) as producer:
            model = ModelledProducer(fake, producer, partitions, chance, transactional=transactional)
            call_at_random(model, WEIGHTS, CALLS, chance)
            model.end()
        for control in controls:
            control.remove()
        model.check()
