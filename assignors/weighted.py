"""`weighted`: partitions in proportion to the members' capacity.

The capacity is in their user data. The assignor balances load / weight as `sticky` balances load. No plan has a lower
highest load / weight, and none of equal balance moves fewer partitions. Cooperative: partitions that stay are never
interrupted.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable

from kohort.assignors.base import MemberSubscription, Rebalance
from kohort.assignors.errors import AssignorError
from kohort.assignors.group import GroupView, Member
from kohort.assignors.integer_group import balanced, claims_of, withheld
from kohort.assignors.plan import Plan
from kohort.common import TopicPartition
from kohort.common.foreign_text import escaped
from kohort.common.log_context import logger

log = logger(__name__)

HIGHEST_WEIGHT = 1_000_000
_USER_DATA = struct.Struct(">6shi")  # magic, version 0, weight
_MAGIC = b"weight"


class WeightedAssignor:
    """Assigns partitions by weight: `WeightedAssignor(weight=4)` for four times the capacity.

    Members without a weight count as 1.
    """

    name = "weighted"
    rebalance = Rebalance.COOPERATIVE

    def __init__(self, weight: int = 1) -> None:
        if not 1 <= weight <= HIGHEST_WEIGHT:
            raise AssignorError(f"a weight of {weight}", hint=f"weights are whole numbers from 1 to {HIGHEST_WEIGHT}")
        self.weight = weight

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        return MemberSubscription(
            tuple(topics), _USER_DATA.pack(_MAGIC, 0, self.weight), tuple(sorted(owned)), generation_id=generation
        )

    def target(self, group: GroupView) -> Plan:
        """The plan of the group once every moving partition has been revoked."""
        weights = array("i", map(_weight, group.members))
        return Plan(group, balanced(group, claims_of(group).settle(group), weights))

    def assign(self, group: GroupView) -> Plan:
        return Plan(group, withheld(group, self.target(group).owners))


def _weight(member: Member) -> int:
    if member.user_data is None:
        return 1
    try:
        magic, _, weight = _USER_DATA.unpack_from(member.user_data)
    except struct.error:
        magic, weight = b"", 0
    if magic != _MAGIC or not 1 <= weight <= HIGHEST_WEIGHT:
        log.warning("member %s: user data without a weight, counted as 1", escaped(member.id))
        return 1
    return int(weight)
