"""The target assignment of a KIP-848 coordinator: received by topic id, owned by topic name.

A topic that was deleted and made again keeps its name and gets another id. So an owned partition remembers the id under
which it came. A coordinator that assigns the new topic means other partitions, though they have the same name.
"""

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition, grouped
from kohort.network.metadata import TopicInfo
from kohort.protocol.apis.consumer_group_heartbeat import TopicPartitions


class Named(NamedTuple):
    """A target as far as names are known. `unknown`: ids of topics that metadata has not named yet."""

    partitions: frozenset[TopicPartition]
    unknown: frozenset[UUID]


class TargetAssignment:
    """The target assignment of the coordinator. `reported`: the last target, None before the first."""

    __slots__ = ("_came_as", "reported")

    def __init__(self) -> None:
        self.reported: Mapping[UUID, tuple[int, ...]] | None = None
        self._came_as: dict[str, UUID] = {}

    def forget(self) -> None:
        """Forget the target with the membership."""
        self.reported = None

    def post(self, partitions: Iterable[TopicPartitions]) -> None:
        """Set the target to exactly these partitions."""
        self.reported = {one.topic_id: tuple(one.partitions) for one in partitions}

    def named(
        self,
        topics: Mapping[str, TopicInfo],
        owned: frozenset[TopicPartition],
        subscribed: Callable[[str], bool],
    ) -> Named:
        """The part of the target to own now: what has a name, is subscribed to, and is not still owned under
        another id."""
        reported = self.reported or {}
        held = {partition.topic for partition in owned}
        self._came_as = {name: came for name, came in self._came_as.items() if name in held}
        # An owned topic keeps its name without metadata. Only the coordinator decides if the topic is gone.
        names = {came: name for name, came in self._came_as.items() if came in reported and name not in topics}
        names |= {info.topic_id: name for name, info in topics.items() if info.topic_id in reported}
        named = set()
        for topic_id, numbers in reported.items():
            name = names.get(topic_id)
            if name is None or not subscribed(name) or self._came_as.get(name, topic_id) != topic_id:
                continue
            named |= {TopicPartition(name, number) for number in numbers}
        return Named(frozenset(named), frozenset(reported.keys() - names.keys()))

    def came(self, partitions: Iterable[TopicPartition], topics: Mapping[str, TopicInfo]) -> None:
        """Record the ids of the topics of newly owned partitions."""
        for topic in {partition.topic for partition in partitions} & topics.keys():  # else held, and known from then
            self._came_as[topic] = topics[topic].topic_id

    def by_id(self, owned: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
        """The owned partitions by topic id, as the coordinator names them."""
        numbers = grouped((self._came_as[topic], number) for topic, number in sorted(owned))
        return tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(found)) for topic_id, found in sorted(numbers.items())
        )
