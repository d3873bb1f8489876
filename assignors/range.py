"""`range`: each topic is divided into contiguous runs, one per subscriber.

The first runs may be longer by one. Topics with the same number of partitions and the same subscribers are divided
equally. One member gets partition p of all of them, so joins by key need no shuffle. With racks (KIP-881), members get
partitions with a replica in their rack if the division permits. Co-partitioned topics then stay together if all of them
have such a replica. Plans equal those of Kafka's RangeAssignor.
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
        """The topics only.

        An eager member owns nothing while it joins, and plans do not depend on earlier ones.
        """
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
    """The division of one topic: the remaining partitions, and the number taken by each member."""

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
        """The partitions that the member may still take so that the others can get their share."""
        share = self.count // len(self.members)
        return max(0, share + (self.longer_runs_left > 0) - self.taken[member])

    def near(self, member: int, index: int) -> bool:
        """True if a replica is in the member's rack, or if the member has no rack."""
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
    """Assign partitions that can be read from the member's own rack.

    Co-partitioned topics stay together. A partition number without a member near its replicas in every one of the
    topics is left to the plain division.
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
    """True if racks can change the plan.

    That is so if a member's rack has a replica, and the partitions are not all in the same racks.
    """
    member_racks = {rack for member in members if (rack := group.members[member].rack)}
    if not member_racks or group.racks is None:
        return False
    every = set(group.racks[start:stop])
    anywhere = frozenset().union(*every)
    return not member_racks.isdisjoint(anywhere) and every != {anywhere}
