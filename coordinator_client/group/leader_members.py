"""The knowledge of a generation's leader: the members' subscriptions, joins and leaves, and the inputs of its plan."""

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

from kohort.assignors import Assignor
from kohort.common.topic_partition import TopicPartition
from kohort.coordinator_client.group import leader_assignment
from kohort.coordinator_client.group.topic_subscription import NO_TOPICS, TopicSubscription

BACKLOG_KEEPS_S: Final = 30.0
"""How long a measured backlog is planned by. A cooperative plan takes two rounds, and the second must not be made from
other numbers than the first: it would move something else again, and ask for a third."""


class Turnover(NamedTuple):
    """Member ids that came, and those that left, from one generation to the next."""

    joined: frozenset[str]
    left: frozenset[str]


class Leadership:
    """`leads`: whether we do. `group_topics`: all that anybody in the group subscribes to. `moved`: topics that are not
    as they were when we assigned them.

    Empty in a follower. `racks_matter`: whether a change of replicas' racks alone asks for another plan.
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
        """A generation begins; what was heard in the last one holds no more."""
        self.leads = leads
        self.set_members({})

    def end(self) -> None:
        """Membership is gone."""
        self.begin(leads=False)
        self._members_before = None
        self._lag, self._measured_at = None, -inf

    def set_members(self, said: dict[str, leader_assignment.MemberMetadata]) -> None:
        """Take the members' subscriptions of a generation, which only its leader gets."""
        self._said, self.group_topics = said, leader_assignment.topics_of(said)
        self._snapshot, self.moved = {}, ()

    def turnover(self) -> Turnover | None:
        """The members that came and left since the last generation. Known to a leader that led both; None in its first
        one."""
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
        """So many records wait in the partitions of these topics, as far as that could be found out."""
        self._lag, self._measured_at, self._measured_topics = lag, now, topics

    def backlog_is_fresh(self, now: float) -> bool:
        """True if the last measured lag can be used: it is of these topics, and not old."""
        return now - self._measured_at < BACKLOG_KEEPS_S and self._measured_topics == self.partition_counts

    def plan_order(self, serial: int, assignor: Assignor) -> leader_assignment.PlanOrder:
        """The order to plan what is known now."""
        self.take_snapshot()
        lag = self._lag if leader_assignment.wants_backlog(assignor) else None
        return leader_assignment.PlanOrder(serial, assignor, dict(self._said), dict(self._topics.known), lag)

    def take_snapshot(self, *, known_only: bool = False) -> None:
        """Remember the group's topics as they are now: what differs from that later has moved."""
        self._snapshot = {
            topic: self._shape(topic) for topic in self.group_topics if not known_only or topic in self._topics.known
        }
        self.moved = ()

    def look_again(self) -> None:
        """Metadata came: is the plan still one for these topics?"""
        if not self.leads:
            return
        for topic in self.group_topics & self._topics.known.keys():
            self._snapshot.setdefault(topic, self._shape(topic))
        self.moved = tuple(sorted(topic for topic, was in self._snapshot.items() if was != self._shape(topic)))

    def _shape(self, topic: str) -> leader_assignment.TopicShape:
        return leader_assignment.shape_of(self._topics.known.get(topic), self._racks_matter)
