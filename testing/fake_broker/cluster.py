"""State shared by the fake's nodes: topics and their logs, partition leaders, group coordinators."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from kohort.common.named_tuple import NamedTuple
from kohort.testing.fake_broker.consumer_group import Place
from kohort.testing.fake_broker.fetch_sessions import FakeFetchSessions
from kohort.testing.fake_broker.groups import Groups
from kohort.testing.fake_broker.log import FakeLog
from kohort.testing.fake_broker.log_transactions import LogTransactions, marker
from kohort.testing.fake_broker.producers import Producers
from kohort.testing.fake_broker.settings import CoordinatorSettings
from kohort.testing.fake_broker.shares import FakeShares
from kohort.testing.fake_broker.transactions import FakeTransactions, Transactional

INT32_MAX: Final = 2**31 - 1
NO_FEATURES: Final[Mapping[str, int]] = MappingProxyType({})


class Address(NamedTuple):
    """The advertised address of a node."""

    host: str
    port: int


@dataclass(eq=False, slots=True)
class FakePartition:
    """A log and its leader's node; -1 for none."""

    leader: int
    epoch: int = 0
    log: FakeLog = field(default_factory=FakeLog)
    producers: Producers = field(default_factory=Producers)
    transactions: LogTransactions = field(default_factory=LogTransactions)

    @property
    def stable_offset(self) -> int:
        """The last stable offset: read_committed readers stop here."""
        return self.transactions.stable(self.log.end)

    def truncate(self, end: int) -> None:
        """Lose what is at `end` and above."""
        self.log.truncate(end)
        self.producers.truncate(self.log.end)
        self.transactions.truncate(self.log.end)

    def settle(self, producer_id: int, epoch: int, *, committed: bool) -> None:
        """Write the end of a producer's transaction."""
        offset = self.log.append(marker(producer_id, epoch, committed=committed), self.epoch)
        self.producers.fence(producer_id, epoch)
        self.transactions.ended(producer_id, offset, committed=committed)


@dataclass(eq=False, slots=True)
class FakeTopic:
    """A topic. Its id is made of its name and of how often it was created: a run repeats, a recreated topic differs.

    `most_bytes`: max.message.bytes, the largest size of a batch.
    """

    name: str
    topic_id: uuid.UUID
    partitions: list[FakePartition]
    most_bytes: int = 1_048_588


class FakeCluster:
    """State only; touched by the fake's own thread."""

    def __init__(
        self,
        settings: CoordinatorSettings | None,
        features: Mapping[str, int] = NO_FEATURES,
        cluster_id: str = "fake-cluster",
    ) -> None:
        self.features = features
        self.cluster_id = cluster_id
        self.addresses: dict[int, Address] = {}
        self.advertised: dict[int, Address] = {}
        self.topics: dict[str, FakeTopic] = {}
        self.groups = Groups(settings)
        self.fetch_sessions = FakeFetchSessions()
        self.shares = FakeShares(self.groups.settings, self._leader_of)
        self.coordinator_nodes: dict[str, int] = {}
        self._incarnations: dict[str, int] = {}
        self._names: dict[uuid.UUID, str] = {}  # by topic id; those of deleted topics too
        self.transactions = FakeTransactions(self._settle, features.get("transaction.version", 0) >= 2)

    def create_topic(self, name: str, partitions: int) -> FakeTopic:
        """Leaders go round the nodes. A topic of this name is deleted first."""
        if name in self.topics:
            self.delete_topic(name)
        self._incarnations[name] = self._incarnations.get(name, 0) + 1
        topic_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{name}/{self._incarnations[name]}")
        self.topics[name] = FakeTopic(name, topic_id, [])
        self._names[topic_id] = name
        return self.grow_topic(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its logs and committed offsets. Raises KeyError if it does not exist."""
        del self.topics[name]
        self.groups.forget_topic(name)

    def grow_topic(self, name: str, total: int) -> FakeTopic:
        """Add partitions until there are `total`."""
        nodes = sorted(self.addresses)
        topic = self.topics[name]
        topic.partitions += [FakePartition(nodes[at % len(nodes)]) for at in range(len(topic.partitions), total)]
        return topic

    def topic_by_id(self, topic_id: uuid.UUID) -> FakeTopic | None:
        name = self._names.get(topic_id)
        topic = self.topics.get(name) if name is not None else None
        return topic if topic is not None and topic.topic_id == topic_id else None

    def partition(self, topic: FakeTopic | None, number: int) -> FakePartition | None:
        """The partition, or None if it does not exist."""
        if topic is None or not 0 <= number < len(topic.partitions):
            return None
        return topic.partitions[number]

    def _leader_of(self, place: Place) -> int | None:
        partition = self.partition(self.topic_by_id(place.topic_id), place.partition)
        return partition.leader if partition is not None else None

    def address_of(self, node: int) -> Address:
        """The address that clients receive for `node`."""
        return self.advertised.get(node, self.addresses[node])

    def expire(self, now: float) -> bool:
        """Do what is due by now; True if there may be more records for a fetch that waits."""
        self.groups.expire(now)
        ended, returned = self.transactions.expire(now), self.shares.expire(now)
        return ended or returned

    def next_deadline(self) -> float | None:
        """The time at which `expire` is next due, or None."""
        due = (self.groups.next_deadline(), self.transactions.next_deadline(), self.shares.next_deadline())
        return min((one for one in due if one is not None), default=None)

    def _settle(self, ended: Transactional, committed: bool) -> None:
        for topic, number in sorted(ended.partitions):
            partition = self.partition(self.topics.get(topic), number)
            if partition is not None:
                partition.settle(ended.producer_id, ended.epoch, committed=committed)
        for group_id in ended.groups:
            self.groups.decide(group_id, ended.producer_id, committed=committed)

    def check_node(self, node: int) -> None:
        """Raise ValueError for an unknown node."""
        if node not in self.addresses:
            raise ValueError(f"the cluster has no node {node}; its nodes are {sorted(self.addresses)}")

    def move_coordinator(self, group_id: str, node: int) -> None:
        """Make `node` the coordinator of `group_id`. Raises ValueError for an unknown node."""
        self.check_node(node)
        self.coordinator_nodes[group_id] = node

    def coordinator_of(self, group_id: str) -> int:
        """The node that coordinates `group_id`: the first one, until it is moved."""
        return self.coordinator_nodes.get(group_id, min(self.addresses))
