"""`lag`: evens out the records waiting, so that all members catch up at about the same time.

The partition with the most records waiting first, each to the subscriber with the least waiting so far. So whoever
waits on the most would wait on no more than anybody else who could have read its last partition, without that
partition; where all subscribe alike the longest queue is at most 4/3 - 1/(3 * members) times the shortest possible
(Graham, 1969). Partitions that wait on nothing are spread by number. Lag changes all the time and so does this plan:
partitions move more than under `sticky`; an owner is kept only where that costs nothing.

The leader's client fills `GroupView.lag`, which is what `needs_lag` asks of it; or pass `lag_of`, which is called with
all partitions of the group. Where nothing waits anywhere, or nothing could be found out, plans are those of `sticky`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence

from kohort.assignors.balance import balanced, claims_of
from kohort.assignors.base import MemberSubscription, Rebalance
from kohort.assignors.errors import AssignorError
from kohort.assignors.group import GroupView
from kohort.assignors.plan import NO_MEMBER, Plan
from kohort.common import TopicPartition

LagOf = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]]


class LagAssignor:
    """Largest queue first, to whoever has the least waiting. O(partitions * members)."""

    name = "lag"
    rebalance = Rebalance.COOPERATIVE

    def __init__(self, lag_of: LagOf | None = None) -> None:
        self.lag_of = lag_of

    @property
    def needs_lag(self) -> bool:
        """Whether the leader's client is to find out how many records wait."""
        return self.lag_of is None

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        return MemberSubscription(tuple(topics), None, tuple(sorted(owned)), generation_id=generation)

    def target(self, group: GroupView) -> Plan:
        """Where the group is heading: the plan once everything on the move has been let go."""
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
        claims = claims_of(group)
        return Plan(group, claims.withhold(self.target(group).owners, claims.settle(group)))

    def _lag(self, group: GroupView) -> Sequence[int]:
        if group.lag is not None:
            return group.lag
        if self.lag_of is None:
            raise AssignorError(
                "nobody told how many records wait",
                assignor=self.name,
                hint="give GroupView.of(lag=...), or LagAssignor(lag_of=...)",
            )
        partitions = [group.partition(index) for index in range(group.size)]
        told = self.lag_of(partitions)
        return [max(0, told.get(partition, 0)) for partition in partitions]


def lag_from_offsets(
    committed: Mapping[TopicPartition, int | None],
    end: Mapping[TopicPartition, int],
    beginning: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Records waiting in each partition of `end`: from the committed offset, else from the beginning, to the end.

    A committed offset below the beginning (its records are deleted) counts from the beginning, one above the end none.
    """
    lag = {}
    for partition, stop in end.items():
        start = beginning.get(partition, 0)
        at = committed.get(partition)
        lag[partition] = max(0, stop - (start if at is None else max(start, at)))
    return lag
