"""`copartition`: one member always reads partition p of all topics that belong together.

`range` ensures that only while all subscriptions are equal. Here topics that belong together are planned as one. A
*bundle* is partition p of all of them. Bundles are balanced as `sticky` balances partitions, with the fewest moves. No
plan assigns a bundle to two members, not even in the first round of a move.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

from kohort.assignors.base import MemberSubscription, Rebalance
from kohort.assignors.errors import AssignorError, BadGroup
from kohort.assignors.group import GroupView
from kohort.assignors.integer_group import balanced, claims_of, withheld
from kohort.assignors.plan import NO_MEMBER, Plan
from kohort.common import TopicPartition


class CopartitionAssignor:
    """Keeps together the topics named by `together`, for example `[["orders", "payments"]]`.

    Without it, topics with the same number of partitions and the same subscribers belong together. The numbers of
    bundles of members with equal subscriptions differ by at most one. A member that subscribes to only some of the
    named topics gets none of them.
    """

    name = "copartition"
    rebalance = Rebalance.COOPERATIVE
    #: Partitions must not be moved one by one, so `RackAssignor` rejects this assignor.
    bundled = True

    def __init__(self, together: Iterable[Iterable[str]] | None = None) -> None:
        self.together = None if together is None else [sorted(set(topics)) for topics in together]
        named = Counter(topic for topics in self.together or () for topic in topics)
        if twice := [topic for topic, times in named.items() if times > 1]:
            raise AssignorError("a topic that belongs to two sets", assignor=self.name, topic=twice[0])

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        return MemberSubscription(tuple(topics), None, tuple(sorted(owned)), generation_id=generation)

    def target(self, group: GroupView) -> Plan:
        """The plan of the group once every moving partition has been revoked."""
        sets = self._sets(group)
        bundles = _bundles(group, sets)
        previous = claims_of(group).settle(group)
        owners = array("i", [NO_MEMBER]) * group.size
        before = array("i")
        for number, topics in enumerate(sets):
            for partition in range(bundles.topic_offsets[number + 1] - bundles.topic_offsets[number]):
                owning = Counter(previous[group.topic_offsets[topic] + partition] for topic in topics)
                del owning[NO_MEMBER]
                before.append(max(owning, key=lambda member: (owning[member], -member), default=NO_MEMBER))
        planned = balanced(bundles, before)
        for number, topics in enumerate(sets):
            row = planned[bundles.topic_offsets[number] : bundles.topic_offsets[number + 1]]
            for topic in topics:
                owners[group.topic_offsets[topic] : group.topic_offsets[topic + 1]] = row
        return Plan(group, owners)

    def assign(self, group: GroupView) -> Plan:
        return Plan(group, withheld(group, self.target(group).owners))

    def _sets(self, group: GroupView) -> list[list[int]]:
        """The sets of topics that belong together, as indexes; every topic is in exactly one set."""
        counts = [stop - start for start, stop in zip(group.topic_offsets, group.topic_offsets[1:], strict=False)]
        sets: dict[object, list[int]] = {}
        named = {topic: number for number, topics in enumerate(self.together or ()) for topic in topics}
        for index, topic in enumerate(group.topics):
            if self.together is None:
                sets.setdefault((counts[index], group.subscribers[index]), []).append(index)
            else:
                sets.setdefault(named.get(topic, topic), []).append(index)
        for together in sets.values():
            if len({counts[topic] for topic in together}) > 1:
                reported = ", ".join(f"{group.topics[topic]} has {counts[topic]}" for topic in together)
                raise BadGroup(
                    f"topics that belong together differ in their numbers of partitions: {reported}", assignor=self.name
                )
        return list(sets.values())


def _bundles(group: GroupView, sets: Sequence[Sequence[int]]) -> GroupView:
    """The group with one topic per set, whose subscribers are those of all topics of the set."""
    starts, racks = [0], []
    wants: list[list[int]] = [[] for _ in group.members]
    for number, topics in enumerate(sets):
        first = topics[0]
        starts.append(starts[-1] + group.topic_offsets[first + 1] - group.topic_offsets[first])
        takers = set.intersection(*(set(group.subscribers[topic]) for topic in topics))
        if not takers:
            names = ", ".join(group.topics[topic] for topic in topics)
            raise BadGroup("no member subscribes to all of the topics that belong together", topics=names)
        for member in takers:
            wants[member].append(number)
        if group.racks is not None:
            rows = [group.racks[group.topic_offsets[topic] : group.topic_offsets[topic + 1]] for topic in topics]
            racks += [frozenset.intersection(*replicas) for replicas in zip(*rows, strict=True)]
    return GroupView(
        topics=tuple(group.topics[topics[0]] for topics in sets),
        topic_offsets=tuple(starts),
        members=tuple(
            member._replace(subscribed_topics=tuple(wants[place])) for place, member in enumerate(group.members)
        ),
        racks=racks if group.racks is not None else None,
    )
