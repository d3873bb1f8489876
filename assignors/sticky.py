"""`sticky`: balanced, then with the fewest moves, then with the most reads in the own rack.

See KIP-54 and KIP-341. Eager members own nothing while they join, so the partitions that they owned are sent in their
user data. The format is that of Kafka's StickyAssignor: version 1, with the generation, or the older one without it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from kohort.assignors.base import MemberSubscription, Rebalance
from kohort.assignors.core import core
from kohort.assignors.group import NO_GENERATION, GroupView, Member
from kohort.assignors.integer_group import Claims, balanced
from kohort.assignors.plan import Plan
from kohort.common import TopicPartition
from kohort.common.foreign_text import escaped
from kohort.common.log_context import logger
from kohort.common.topic_partition import grouped
from kohort.protocol.membership import StickyUserData, TopicPartitions, build_sticky

log = logger(__name__)


class StickyAssignor:
    """No plan is better balanced, and no equally balanced plan moves fewer partitions."""

    name = "sticky"
    rebalance = Rebalance.EAGER

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        """The subscription, with `owned` in the user data only, since the member has revoked it."""
        user_data = build_sticky(StickyUserData(previous_assignment=by_topic(owned), generation=generation))
        return MemberSubscription(tuple(topics), user_data=user_data, generation_id=generation)

    def assign(self, group: GroupView) -> Plan:
        claims = Claims.of(_reported(group, member) for member in group.members)
        return Plan(group, balanced(group, claims.settle(group)))


def by_topic(owned: Iterable[TopicPartition]) -> tuple[TopicPartitions, ...]:
    """Partitions grouped by topic, as in the protocol."""
    rows = grouped(sorted(owned))
    return tuple(TopicPartitions(topic=topic, partitions=tuple(numbers)) for topic, numbers in rows.items())


def _reported(group: GroupView, member: Member) -> tuple[array[int], int]:
    """The owned partitions in the user data, as indexes; none for invalid data, as in Java."""
    if not member.user_data:
        return array("i"), NO_GENERATION
    try:
        owned, end = core.decode_rows(bytes(member.user_data), 0, group.numbers_on_wire, group.starts_row)
    except ValueError as error:
        log.warning(
            "member %s: invalid sticky user data, treated as no owned partitions: %s", escaped(member.id), error
        )
        return array("i"), NO_GENERATION
    # Version 0 ends here. The length is the only sign of the version.
    generation = member.user_data[end : end + 4]
    return owned, int.from_bytes(generation, "big", signed=True) if len(generation) == 4 else NO_GENERATION
