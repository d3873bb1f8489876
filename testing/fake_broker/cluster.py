"""What the fake's nodes share: topics and their logs, who leads what, who coordinates which group."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from kohort.testing.fake_broker.groups import Groups
from kohort.testing.fake_broker.log import FakeLog
from kohort.testing.fake_broker.producers import Producers
from kohort.testing.fake_broker.settings import CoordinatorSettings

CLUSTER_ID = "fake-cluster"


class Address(NamedTuple):
    """Where a node says that it listens."""

    host: str
    port: int


@dataclass(eq=False, slots=True)
class FakePartition:
    """A log and the node that leads it; `leader` -1 stands for none."""

    leader: int
    epoch: int = 0
    log: FakeLog = field(default_factory=FakeLog)
    producers: Producers = field(default_factory=Producers)

    def truncate(self, end: int) -> None:
        """Lose what is at `end` and above."""
        self.log.truncate(end)
        self.producers.truncate(self.log.end)


@dataclass(eq=False, slots=True)
class FakeTopic:
    """A topic; its id is made from its name and `incarnation`, so that runs repeat and a recreated topic differs."""

    name: str
    incarnation: int
    partitions: list[FakePartition]

    @property
    def topic_id(self) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_URL, f"{self.name}/{self.incarnation}")


class FakeCluster:
    """State only; touched by the fake's own thread."""

    def __init__(self, settings: CoordinatorSettings | None) -> None:
        self.addresses: dict[int, Address] = {}
        self.advertised: dict[int, Address] = {}
        self.topics: dict[str, FakeTopic] = {}
        self.groups = Groups(settings)
        self.coordinator_nodes: dict[str, int] = {}
        self._incarnations: dict[str, int] = {}
        self._producer_ids = count()
        self._producers: dict[str, tuple[int, int]] = {}

    def create_topic(self, name: str, partitions: int) -> FakeTopic:
        """Leaders go round the nodes."""
        self._incarnations[name] = self._incarnations.get(name, 0) + 1
        self.topics[name] = FakeTopic(name, self._incarnations[name], [])
        return self.grow_topic(name, partitions)

    def grow_topic(self, name: str, total: int) -> FakeTopic:
        """Add partitions until there are `total`."""
        nodes = sorted(self.addresses)
        topic = self.topics[name]
        topic.partitions += [FakePartition(nodes[at % len(nodes)]) for at in range(len(topic.partitions), total)]
        return topic

    def topic_by_id(self, topic_id: uuid.UUID) -> FakeTopic | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def partition(self, topic: FakeTopic | None, number: int) -> FakePartition | None:
        """None where there is no such partition."""
        if topic is None or not 0 <= number < len(topic.partitions):
            return None
        return topic.partitions[number]

    def address_of(self, node: int) -> Address:
        """What clients are told about `node`."""
        return self.advertised.get(node, self.addresses[node])

    def producer(self, transactional_id: str | None) -> tuple[int, int]:
        """The id and the epoch of a producer that begins; a new one each time where it has no name."""
        if transactional_id is None:
            return next(self._producer_ids), 0
        known = self._producers.get(transactional_id)
        begun = (next(self._producer_ids), 0) if known is None else (known[0], known[1] + 1)
        self._producers[transactional_id] = begun
        return begun

    def coordinator_of(self, group_id: str) -> int:
        """The node that coordinates `group_id`: the first one, until it is moved."""
        return self.coordinator_nodes.get(group_id, min(self.addresses))
