"""`cooperative-sticky`: the plans of `sticky`, reached without stopping what does not move (KIP-429).

Members keep reading while they join and say in their subscription what they own. What has to move is given to nobody
in the first round: its owner sees that it is gone, lets go and joins again, and the second round hands it out. So no
partition has two readers, and those that stay are never interrupted.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable

from kohort.assignors.balance import Claims, balanced
from kohort.assignors.base import NO_GENERATION, MemberSubscription, Rebalance
from kohort.assignors.group import GroupView, Member
from kohort.assignors.plan import Plan
from kohort.fastpath import TopicPartition, WireError
from kohort.protocol.membership import (
    CooperativeStickyUserData,
    build_cooperative_sticky,
    parse_cooperative_sticky,
)

log = logging.getLogger(__name__)


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


def claims_of(group: GroupView) -> Claims:
    """What the members' subscriptions claim, as of the generation that each of them says it belongs to."""
    return Claims.of((member.claims, _generation(member)) for member in group.members)


def _generation(member: Member) -> int:
    """From the subscription since its version 2, before that from the user data."""
    if member.generation != NO_GENERATION or not member.user_data:
        return member.generation
    try:
        return parse_cooperative_sticky(member.user_data).generation
    except WireError as error:
        log.warning("member %s: user data without a generation, taken as having none: %s", member.id, error)
        return NO_GENERATION


def withheld(group: GroupView, target: array[int]) -> array[int]:
    """What may be handed out of `target` now: what nobody else still claims."""
    claims = claims_of(group)
    return claims.withhold(target, claims.settle(group))
