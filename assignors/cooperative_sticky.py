"""`cooperative-sticky`: the plans of `sticky`, without interruption of partitions that stay.

Members continue to read while they join, and their subscription lists what they own (KIP-429). A partition that moves
is unassigned in the first round. Its owner revokes it and joins again, and the second round assigns it. A partition
never has two readers, and partitions that stay are never interrupted.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.assignors.base import MemberSubscription, Rebalance
from kohort.assignors.group import GroupView
from kohort.assignors.integer_group import balanced, claims_of
from kohort.assignors.plan import Plan
from kohort.common import TopicPartition
from kohort.protocol.membership import CooperativeStickyUserData, build_cooperative_sticky


class CooperativeStickyAssignor:
    """Balanced with the fewest moves, like `sticky`.

    A moving partition is withheld for one round.
    """

    name = "cooperative-sticky"
    rebalance = Rebalance.COOPERATIVE

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        """The subscription with `owned`. Its generation is also in the user data, for older leaders."""
        user_data = build_cooperative_sticky(CooperativeStickyUserData(generation=generation))
        return MemberSubscription(
            tuple(topics), user_data=user_data, owned_partitions=tuple(sorted(owned)), generation_id=generation
        )

    def target(self, group: GroupView) -> Plan:
        """The plan of the group once every moving partition has been revoked."""
        return Plan(group, balanced(group, claims_of(group).settle(group)))

    def assign(self, group: GroupView) -> Plan:
        claims = claims_of(group)
        previous = claims.settle(group)
        return Plan(group, claims.withhold(balanced(group, previous), previous))
