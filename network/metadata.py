"""The known state of the cluster: brokers, topics, partitions, leaders. Replaced on each response.

A view never loses data because a response was empty or incomplete. Restarting brokers may respond with no brokers,
unknown leaders or no partitions for a moment. A client that used such a response would stop (B-18).
"""

import uuid
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from uuid import UUID

from kohort.common import TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.network.requests import BrokerIdentity, Endpoint
from kohort.protocol.apis.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kohort.protocol.errors import ErrorCode

WITHOUT_TOPICS = MetadataRequest(
    topics=(),
    allow_auto_topic_creation=False,
    include_cluster_authorized_operations=False,
    include_topic_authorized_operations=False,
)
"""The request for the cluster's id, its controller and its brokers only."""

NO_TOPIC_ID = uuid.UUID(int=0)
NO_NODE = -1
NO_EPOCH = -1
FIRST_VERSION_OF_SOUND_EPOCHS = 9
# A leader plans for each number up to the highest: one that is made up must not have it plan for two billion.
MOST_AN_ENTRY = 10
MOST_SHARED_PARTITIONS = 10_000


class BrokerNode(NamedTuple):
    """A broker as the cluster names it."""

    node: int
    host: str
    port: int
    rack: str | None

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, self.port)


class PartitionView(NamedTuple):
    """The leader of a partition and its epoch. `leader` is NO_NODE if there is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    offline: tuple[int, ...]


class TopicView(NamedTuple):
    """A topic: its id (NO_TOPIC_ID from brokers before 2.8) and its partitions by number."""

    name: str
    id: uuid.UUID
    internal: bool
    partitions: Mapping[int, PartitionView]


class ClusterView(NamedTuple):
    """Brokers by id, topics by name, and the error code of each requested topic that does not exist."""

    brokers: Mapping[int, BrokerNode] = MappingProxyType({})
    topics: Mapping[str, TopicView] = MappingProxyType({})
    refused: Mapping[str, int] = MappingProxyType({})
    cluster_id: str | None = None

    def updated(self, response: MetadataResponse, *, requested: Iterable[str] | None) -> "ClusterView":
        """The view after a Metadata response. `requested`: the requested topics, None for all of them."""
        brokers = {b.node_id: BrokerNode(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        topics = dict(self.topics) if requested is not None else {}
        refused = dict(self.refused) if requested is not None else {}
        for topic in response.topics:
            name = topic.name
            if name is None:
                continue
            known = self.topics.get(name)
            refused.pop(name, None)
            if topic.error_code not in (0, ErrorCode.LEADER_NOT_AVAILABLE):
                topics.pop(name, None)
                refused[name] = topic.error_code
            elif (view := _topic(topic, known)) is not None:
                topics[name] = view
        return ClusterView(
            brokers=MappingProxyType(brokers or dict(self.brokers)),
            topics=MappingProxyType(topics),
            refused=MappingProxyType(refused),
            cluster_id=response.cluster_id or self.cluster_id,
        )

    def forgetting(self, keep: Iterable[str]) -> "ClusterView":
        """The view without the topics (and refusals) that are not in `keep`."""
        kept = set(keep)
        return self._replace(
            topics=MappingProxyType({name: topic for name, topic in self.topics.items() if name in kept}),
            refused=MappingProxyType({name: code for name, code in self.refused.items() if name in kept}),
        )

    def with_leaders(self, leaders: Iterable[tuple[TopicPartition, int, int]]) -> "ClusterView":
        """The view after one response named newer leaders (KIP-951), as (partition, leader, leader epoch).

        An epoch that is not newer changes nothing. Each topic is copied at most once, however many leaders moved.
        """
        moved: dict[str, dict[int, PartitionView]] = {}
        for partition, leader, leader_epoch in leaders:
            topic = self.topics.get(partition.topic)
            if topic is None or leader < 0:
                continue
            known = moved.get(topic.name, topic.partitions).get(partition.partition)
            if known is None or leader_epoch <= known.leader_epoch:
                continue
            if topic.name not in moved:
                moved[topic.name] = dict(topic.partitions)
            moved[topic.name][partition.partition] = known._replace(leader=leader, leader_epoch=leader_epoch)
        if not moved:
            return self
        topics = {
            name: self.topics[name]._replace(partitions=MappingProxyType(partitions))
            for name, partitions in moved.items()
        }
        return self._replace(topics=MappingProxyType({**self.topics, **topics}))

    def with_brokers(self, brokers: Iterable[BrokerNode]) -> "ClusterView":
        """The view after a response with addresses of brokers (KIP-951)."""
        added = {broker.node: broker for broker in brokers}
        return self._replace(brokers=MappingProxyType({**self.brokers, **added})) if added else self

    def without_brokers(self) -> "ClusterView":
        """The view after a broker required a new bootstrap (KIP-1102), which may lead to another cluster."""
        return self._replace(brokers=MappingProxyType({}), cluster_id=None)

    def identity(self, endpoint: Endpoint) -> BrokerIdentity | None:
        """The broker at an address, or None if that is unknown, or if several brokers have the address."""
        nodes = [broker.node for broker in self.brokers.values() if broker.endpoint == endpoint]
        return BrokerIdentity(self.cluster_id, nodes[0]) if self.cluster_id is not None and len(nodes) == 1 else None

    def partition(self, partition: TopicPartition) -> PartitionView | None:
        topic = self.topics.get(partition.topic)
        return topic.partitions.get(partition.partition) if topic else None

    def leader(self, partition: TopicPartition) -> BrokerNode | None:
        """The broker that leads the partition, or None if that is not known now."""
        view = self.partition(partition)
        return self.brokers.get(view.leader) if view else None

    def lacking(self, partitions: Iterable[TopicPartition]) -> frozenset[str]:
        """The topics that are here without one of these partitions, which may have been added since."""
        return frozenset(
            topic
            for topic, number in partitions
            if (known := self.topics.get(topic)) is not None and number not in known.partitions
        )

    def topic_id(self, topic: str) -> uuid.UUID:
        view = self.topics.get(topic)
        return view.id if view else NO_TOPIC_ID

    def may_appear(self, topic: str) -> bool:
        """True if the topic is not known, and no error is final."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return topic not in self.topics and self.refused.get(topic, unknown) == unknown

    def partitions_of(self, topic: str) -> tuple[TopicPartition, ...]:
        view = self.topics.get(topic)
        return tuple(TopicPartition(topic, number) for number in sorted(view.partitions)) if view else ()

    def racks_of(self, topic: str) -> Mapping[int, frozenset[str]]:
        """Partition number -> racks that hold a replica of it (for rack-aware assignors, KIP-881)."""
        view = self.topics.get(topic)
        if view is None:
            return {}
        racks = {node: broker.rack for node, broker in self.brokers.items() if broker.rack}
        if not racks:
            return {}
        return {
            number: frozenset(racks[node] for node in partition.replicas if node in racks)
            for number, partition in view.partitions.items()
        }


NOTHING_KNOWN = ClusterView()


def believable(response: MetadataResponse, version: int) -> MetadataResponse:
    """The response, without leader epochs if it is from a broker before 2.4.

    While such a cluster moves replicas, the epochs may be old. Requests with an old epoch are fenced during the move.
    """
    if version >= FIRST_VERSION_OF_SOUND_EPOCHS:
        return response
    topics = (
        topic._replace(partitions=tuple(one._replace(leader_epoch=NO_EPOCH) for one in topic.partitions))
        for topic in response.topics
    )
    return response._replace(topics=tuple(topics))


class _SharedTopic(NamedTuple):
    """A topic as a response had it, and the view that was made of that alone."""

    response: MetadataResponseTopic
    view: TopicView


class _SharedTopics:
    """The newest views by topic. The clients of a process share them: a thousand members of one group have the same.

    A call costs the same for any number of topics. Threads may race in `put`: the count of partitions is then not
    exact, and the bound is a little higher or lower.
    """

    def __init__(self) -> None:
        self._kept: dict[str, _SharedTopic] = {}
        self._partitions = 0

    def get(self, topic: str) -> _SharedTopic | None:
        return self._kept.get(topic)

    def put(self, response: MetadataResponseTopic, view: TopicView) -> None:
        """Keep a view, and drop all others where there would be too many partitions."""
        count, before = len(view.partitions), self._kept.get(view.name)
        if count > MOST_SHARED_PARTITIONS:
            return
        self._partitions += count - (0 if before is None else len(before.view.partitions))
        if self._partitions > MOST_SHARED_PARTITIONS:
            self._kept.clear()
            self._partitions = count
        self._kept[view.name] = _SharedTopic(response, view)


_shared = _SharedTopics()


def _topic(response: MetadataResponseTopic, known: TopicView | None) -> TopicView | None:
    if known is not None and known.id != response.topic_id:
        known = None  # deleted and created again, so epochs of the old topic are invalid
    shared = _shared.get(response.name or "")
    if shared is not None and (known is None or known is shared.view) and shared.response == response:
        return shared.view
    partitions = {}
    most, alone = MOST_AN_ENTRY * len(response.partitions), True
    for partition in response.partitions:
        number = partition.partition_index
        if not 0 <= number < most:
            continue
        before = known.partitions.get(number) if known else None
        if before is not None and 0 <= partition.leader_epoch < before.leader_epoch:
            partitions[number] = before  # a response of a broker that has not learned of the election yet
            alone = False
            continue
        partitions[number] = PartitionView(
            partition.leader_id, partition.leader_epoch, partition.replica_nodes, partition.offline_replicas
        )
    if not partitions:
        return known
    view = TopicView(response.name or "", response.topic_id, response.is_internal, MappingProxyType(partitions))
    if alone:
        _shared.put(response, view)
    return view


class TopicInfo(NamedTuple):
    """The properties of a topic that the group needs. `racks`: partition number -> the racks of its replicas."""

    partitions: int
    topic_id: UUID = UUID(int=0)
    internal: bool = False
    racks: Mapping[int, frozenset[str]] = MappingProxyType({})


class TopicsChanged(NamedTuple):
    """A Metadata response with every topic that it has. Send it after each refresh, changed or not.

    `complete`: the request was for all topics, so a topic not in `topics` does not exist. Otherwise `requested` has the
    names of the request. A requested topic that is not in `topics` does not exist (yet).
    """

    topics: Mapping[str, TopicInfo]
    complete: bool = False
    requested: frozenset[str] = frozenset()
