"""The leader's view of a generation: its members, their turnover, and the metadata its plan depended on."""

from collections.abc import Mapping
from math import inf
from typing import Final

from kohort.assignors import Assignor
from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group import leader_assignment
from kohort.coordinator_client.group.topic_subscription import NO_TOPICS, TopicSubscription

BACKLOG_KEEPS_S: Final = 30.0
"""Time (s) for which a measured lag is used.

A cooperative plan takes two rounds. If the second used other numbers, it would move other partitions, and require a
third round.
"""


class Turnover(NamedTuple):
    """Member ids that came, and those that left, from one generation to the next."""

    joined: frozenset[str]
    left: frozenset[str]


class Leadership:
    """State that only the leader of a generation has; empty in a follower.

    `leads`: this member is the leader. `group_topics`: all topics that members of the group subscribe to. `moved`:
    topics that have changed since they were assigned. `racks_matter`: a change of replicas' racks alone needs another
    plan.
    """

    __slots__ = (
        "_lag",
        "_measured_at",
        "_measured_topics",
        "_members_before",
        "_racks_matter",
        "_said",
        "_snapshot",
        "_topics",
        "group_topics",
        "leads",
        "moved",
    )

    def __init__(self, topics: TopicSubscription, *, racks_matter: bool) -> None:
        self._topics = topics
        self._racks_matter = racks_matter
        self.leads = False
        self._said: dict[str, leader_assignment.MemberMetadata] = {}
        self.group_topics = NO_TOPICS
        self._snapshot: dict[str, leader_assignment.TopicShape] = {}
        self._members_before: frozenset[str] | None = None
        self.moved: tuple[str, ...] = ()
        self._lag: Mapping[TopicPartition, int] | None = None
        self._measured_at = -inf
        self._measured_topics: Mapping[str, int] = {}

    def begin(self, *, leads: bool) -> None:
        """A generation begins; the subscriptions of the last one are dropped."""
        self.leads = leads
        self.set_members({})

    def end(self) -> None:
        """Membership is gone."""
        self.begin(leads=False)
        self._members_before = None
        self._lag, self._measured_at = None, -inf

    def set_members(self, said: dict[str, leader_assignment.MemberMetadata]) -> None:
        """Set the subscriptions of the generation's members, which only its leader receives."""
        self._said, self.group_topics = said, leader_assignment.topics_of(said)
        self._snapshot, self.moved = {}, ()

    def turnover(self) -> Turnover | None:
        """Members that joined and left since the last generation.

        Only a leader can see it, and only between two generations that it led in a row: None in the first of them.
        """
        before, members = self._members_before, frozenset(self._said)
        self._members_before = members
        return None if before is None else Turnover(members - before, before - members)

    @property
    def missing(self) -> frozenset[str]:
        """Topics that are to be assigned and were never looked up."""
        return self._topics.never_looked_up(self.group_topics)

    @property
    def partition_counts(self) -> dict[str, int]:
        """The number of partitions of each topic that is to be assigned and exists."""
        known = self._topics.known
        return {topic: known[topic].partitions for topic in sorted(self.group_topics) if topic in known}

    def measured(self, topics: Mapping[str, int], lag: Mapping[TopicPartition, int], now: float) -> None:
        """Store the lag of the partitions of these topics, as far as it is known."""
        self._lag, self._measured_at, self._measured_topics = lag, now, topics

    def backlog_is_fresh(self, now: float) -> bool:
        """True if the last measured lag is of the present topics and not older than `BACKLOG_KEEPS_S`."""
        return now - self._measured_at < BACKLOG_KEEPS_S and self._measured_topics == self.partition_counts

    def plan_order(self, serial: int, assignor: Assignor) -> leader_assignment.PlanOrder:
        """The order to plan what is known now."""
        self.take_snapshot()
        lag = self._lag if leader_assignment.wants_backlog(assignor) else None
        return leader_assignment.PlanOrder(serial, assignor, dict(self._said), dict(self._topics.known), lag)

    def take_snapshot(self, *, known_only: bool = False) -> None:
        """Remember the group's topics as they are now; topics that differ later have moved."""
        self._snapshot = {
            topic: self._shape(topic) for topic in self.group_topics if not known_only or topic in self._topics.known
        }
        self.moved = ()

    def look_again(self) -> None:
        """Metadata came: find the topics that have changed since they were assigned."""
        if not self.leads:
            return
        for topic in self.group_topics & self._topics.known.keys():
            self._snapshot.setdefault(topic, self._shape(topic))
        self.moved = tuple(sorted(topic for topic, was in self._snapshot.items() if was != self._shape(topic)))

    def _shape(self, topic: str) -> leader_assignment.TopicShape:
        return leader_assignment.shape_of(self._topics.known.get(topic), self._racks_matter)
