"""`lag`: balances the lag of members, so that all catch up at about the same time.

Partitions are assigned in descending order of lag, each to the subscriber with the least lag so far. Take the member
with the most lag, without the partition that it got last. No other member that could have got that partition has less
lag. If all subscriptions are equal, the largest lag of a member is at most 4/3 - 1/(3 * members) times the smallest
possible (Graham, 1969). Partitions without lag are balanced by number. The plan changes with the lag, so partitions
move more often than under `sticky`. An owner keeps a partition only if that does not change the balance.

`needs_lag` makes the leader's client fill `GroupView.lag`. Alternatively `lag_of` is called with all partitions of the
group. If there is no lag, or none is known, plans are those of `sticky`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence

from kohort.assignors.base import MemberSubscription, Rebalance
from kohort.assignors.errors import AssignorError
from kohort.assignors.group import GroupView
from kohort.assignors.integer_group import balanced, claims_of, withheld
from kohort.assignors.plan import NO_MEMBER, Plan
from kohort.common import TopicPartition

LagOf = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]


class LagAssignor:
    """Assigns the largest lag first, to the member with the least lag. O(partitions * members)."""

    name = "lag"
    rebalance = Rebalance.COOPERATIVE

    def __init__(self, lag_of: LagOf | None = None) -> None:
        self.lag_of = lag_of

    @property
    def needs_lag(self) -> bool:
        """True if the leader's client must provide the lag."""
        return self.lag_of is None

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        return MemberSubscription(tuple(topics), None, tuple(sorted(owned)), generation_id=generation)

    def target(self, group: GroupView) -> Plan:
        """The plan of the group once every moving partition has been revoked."""
        lag, previous = self._lag(group), claims_of(group).settle(group)
        if not any(lag):
            return Plan(group, balanced(group, previous))
        waiting, count = [0] * len(group.members), [0] * len(group.members)
        owners = array("i", [NO_MEMBER]) * group.size
        topic_of = [
            topic for topic, _ in enumerate(group.topics) for _ in range(*group.topic_offsets[topic : topic + 2])
        ]
        for index in sorted(range(group.size), key=lambda index: (-lag[index], index)):
            before, here = previous[index], lag[index]
            owner = min(
                group.subscribers[topic_of[index]],
                key=lambda member: (
                    (waiting[member], count[member]) if here else (count[member], waiting[member]),
                    member != before,
                    member,
                ),
            )
            owners[index] = owner
            waiting[owner] += here
            count[owner] += 1
        return Plan(group, owners)

    def assign(self, group: GroupView) -> Plan:
        return Plan(group, withheld(group, self.target(group).owners))

    def _lag(self, group: GroupView) -> Sequence[int]:
        if group.lag is not None:
            return group.lag
        if self.lag_of is None:
            raise AssignorError(
                "the lag is unknown: GroupView.lag is None",
                assignor=self.name,
                hint="give GroupView.of(lag=...), or LagAssignor(lag_of=...)",
            )
        partitions = [group.partition(index) for index in range(group.size)]
        reported = self.lag_of(partitions)
        return [max(0, reported.get(partition, 0)) for partition in partitions]


def lag_from_offsets(
    committed: Mapping[TopicPartition, int | None],
    end: Mapping[TopicPartition, int],
    beginning: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """The lag of each partition of `end`, from its committed offset, else from the beginning.

    A committed offset below the beginning (its records are deleted) counts as the beginning. One above the end has no
    lag.
    """
    lag = {}
    for partition, stop in end.items():
        start = beginning.get(partition, 0)
        at = committed.get(partition)
        lag[partition] = max(0, stop - (start if at is None else max(start, at)))
    return lag
