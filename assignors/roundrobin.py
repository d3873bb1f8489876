"""`roundrobin`: assigns all partitions in turn to the members subscribed to their topics.

If all members have the same subscription, their counts differ by at most one. Otherwise the assignor skips members that
are not subscribed, and the plan can be uneven (`sticky` balances that). Plans equal those of Kafka's
RoundRobinAssignor.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from kohort.assignors.base import MemberSubscription, Rebalance
from kohort.assignors.group import GroupView
from kohort.assignors.plan import Plan
from kohort.common import TopicPartition


class RoundRobinAssignor:
    """Assigns the partitions of all topics in one sequence."""

    name = "roundrobin"
    rebalance = Rebalance.EAGER

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        """The topics only.

        An eager member owns nothing while it joins, and plans do not depend on earlier ones.
        """
        return MemberSubscription(tuple(topics), generation_id=generation)

    def assign(self, group: GroupView) -> Plan:
        owners = array("i")
        turn = 0
        for topic in range(len(group.topics)):
            cards = group.topic_offsets[topic + 1] - group.topic_offsets[topic]
            takers = group.subscribers[topic]
            first = next((place for place, member in enumerate(takers) if member >= turn), 0)
            row = array("i", takers[first:]) + array("i", takers[:first])
            rounds, rest = divmod(cards, len(row))
            owners.extend(row * rounds + row[:rest])
            turn = (owners[-1] + 1) % len(group.members)
        return Plan(group, owners)
