"""`cooperative-sticky`: the plans of `sticky`, reached without stopping what does not move (KIP-429).

Members keep reading while they join and say in their subscription what they own. What has to move is given to nobody
in the first round: its owner sees that it is gone, lets go and joins again, and the second round hands it out. So no
partition has two readers, and those that stay are never interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.assignors.balance import balanced, claims_of
from kohort.assignors.base import MemberSubscription, Rebalance
from kohort.assignors.group import GroupView
from kohort.assignors.plan import Plan
from kohort.common import TopicPartition
from kohort.protocol.membership import CooperativeStickyUserData, build_cooperative_sticky


class CooperativeStickyAssignor:
    """Balanced and with the fewest moves, like `sticky`; a partition on the move is withheld for one round."""

    name = "cooperative-sticky"
    rebalance = Rebalance.COOPERATIVE

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        """`owned` stands in the subscription itself; its generation also in the user data, for older leaders."""
        user_data = build_cooperative_sticky(CooperativeStickyUserData(generation=generation))
        return MemberSubscription(
            tuple(topics), user_data=user_data, owned_partitions=tuple(sorted(owned)), generation_id=generation
        )

    def target(self, group: GroupView) -> Plan:
        """Where the group is heading: the plan once everything on the move has been let go."""
        claims = claims_of(group)
        return Plan(group, balanced(group, claims.settle(group)))

    def assign(self, group: GroupView) -> Plan:
        claims = claims_of(group)
        previous = claims.settle(group)
        return Plan(group, claims.withhold(balanced(group, previous), previous))
