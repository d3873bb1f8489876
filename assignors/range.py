"""`range`: each topic cut into contiguous runs, one for each subscriber, the first few one longer.

Topics with the same number of partitions and the same subscribers are cut alike, so partition p of all of them lands
with the same member: joins by key need no shuffle. With racks (KIP-881) a member gets partitions that have a replica in
its rack as far as the cut allows, co-partitioned topics still together where all of them have one. Plans equal those of
Kafka's own RangeAssignor.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from itertools import groupby

from kohort.assignors.base import MemberSubscription, Rebalance
from kohort.assignors.group import GroupView
from kohort.assignors.plan import NO_MEMBER, Plan
from kohort.common import TopicPartition


class RangeAssignor:
    """Contiguous runs per topic; members of a topic differ by at most one partition of it."""

    name = "range"
    rebalance = Rebalance.EAGER

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        """Topics alone: an eager member owns nothing while it joins, and ranges do not depend on the past."""
        return MemberSubscription(tuple(topics), generation_id=generation)

    def assign(self, group: GroupView) -> Plan:
        if not any(member.rack for member in group.members) or group.racks is None:
            return Plan(group, _runs(group))
        owners = array("i", [NO_MEMBER]) * group.size
        cuts = [_Cut(group, topic) for topic in range(len(group.topics))]
        if any(cut.racks_matter for cut in cuts):
            _match_racks(cuts, owners)
        for cut in cuts:
            cut.give_runs(owners)
        return Plan(group, owners)


def _runs(group: GroupView) -> array[int]:
    owners = array("i")
    for topic, members in enumerate(group.subscribers):
        share, longer = divmod(group.topic_offsets[topic + 1] - group.topic_offsets[topic], len(members))
        for place, member in enumerate(members if share else members[:longer]):
            owners.extend(_repeated(member, share + (place < longer)))
    return owners


def _repeated(member: int, times: int) -> Iterable[int]:
    return (member,) * times


class _Cut:
    """One topic while it is being cut: what is left of it, and how much each subscriber may still take."""

    def __init__(self, group: GroupView, topic: int) -> None:
        self.group = group
        self.start, stop = group.topic_offsets[topic], group.topic_offsets[topic + 1]
        self.count = stop - self.start
        self.members = group.subscribers[topic]
        self.racks_matter = _racks_matter(group, self.members, self.start, stop)
        self.longer_runs_left = self.count % len(self.members)
        self.left = dict.fromkeys(range(self.start, stop))
        self.taken = dict.fromkeys(self.members, 0)

    def room(self, member: int) -> int:
        """How many more partitions of the topic this member may take while others can still get their share."""
        share = self.count // len(self.members)
        return max(0, share + (self.longer_runs_left > 0) - self.taken[member])

    def near(self, member: int, index: int) -> bool:
        """Whether a replica is in the member's rack; a member that names no rack is near everything."""
        rack = self.group.members[member].rack
        return rack is None or (self.group.racks is not None and rack in self.group.racks[index])

    def give_runs(self, owners: array[int], may_take: Callable[[int, int], bool] | None = None) -> None:
        for member in self.members:
            if not self.left:
                break
            room = self.room(member)
            chosen: list[int] = []
            for index in self.left:
                if len(chosen) == room:
                    break
                if may_take is None or may_take(member, index):
                    chosen.append(index)
            if chosen:
                self.give(member, chosen, owners)

    def give(self, member: int, chosen: Iterable[int], owners: array[int]) -> None:
        for index in chosen:
            owners[index] = member
            del self.left[index]
            self.taken[member] += 1
        if self.taken[member] > self.count // len(self.members):
            self.longer_runs_left -= 1


def _match_racks(cuts: list[_Cut], owners: array[int]) -> None:
    """First what can be read from the own rack, where co-partitioned topics stay together or are not looked at at all.

    A partition number whose replicas are not near the same member in every one of the topics is left to the plain cut:
    being together comes before being near.
    """
    by_subscribers = sorted(cuts, key=_alike)
    for (members, _), alike in groupby(by_subscribers, key=_alike):
        together = list(alike)
        if len(together) > 1:
            if any(cuts[0].group.members[member].rack for member in members):
                _match_racks_together(together, owners)
        elif together[0].racks_matter:
            together[0].give_runs(owners, together[0].near)


def _alike(cut: _Cut) -> tuple[tuple[int, ...], int]:
    return cut.members, cut.count


def _match_racks_together(cuts: list[_Cut], owners: array[int]) -> None:
    remaining = list(cuts[0].members)
    for partition in range(cuts[0].count):
        for member in remaining:
            if all(cut.near(member, cut.start + partition) and cut.room(member) for cut in cuts):
                break
        else:
            continue
        for cut in cuts:
            cut.give(member, (cut.start + partition,), owners)
        if not any(cut.room(member) for cut in cuts):
            remaining.remove(member)
            if not remaining:
                break


def _racks_matter(group: GroupView, members: tuple[int, ...], start: int, stop: int) -> bool:
    """Whether looking at racks can change anything: some member's rack holds some replica, but not all of them."""
    member_racks = {rack for member in members if (rack := group.members[member].rack)}
    if not member_racks or group.racks is None:
        return False
    every = set(group.racks[start:stop])
    anywhere = frozenset().union(*every)
    return not member_racks.isdisjoint(anywhere) and every != {anywhere}
