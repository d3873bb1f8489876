"""Converts groups to the core's integers and back.

Partitions form classes, which the core balances.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from kohort.assignors.core import core
from kohort.assignors.group import NO_GENERATION, GroupView, Member
from kohort.common.named_tuple import NamedTuple


class Classes(NamedTuple):
    """Classes of interchangeable partitions.

    Partitions of a class have the same subscribers and are near the same members. `of[index]` is the class of a
    partition. `supplies[c]` is the number of its partitions. Its edges are `stops[c - 1]:stops[c]`. An edge has a
    member in `members`, and 1 in `far` if that member would read from another rack.
    """

    of: array[int]
    supplies: array[int]
    stops: array[int]
    members: array[int]
    far: array[int]

    @classmethod
    def in_group(cls, group: GroupView) -> Classes:
        racks = group.racks if any(member.rack for member in group.members) else None
        member_racks = frozenset(member.rack for member in group.members if member.rack)
        # Rows of subscribers are keyed by id(): equal rows are one object, and hashing many members takes time.
        numbers: dict[tuple[int, frozenset[str]], int] = {}
        rows: list[tuple[tuple[int, ...], frozenset[str]]] = []
        of = array("i")
        near_of: dict[frozenset[str], frozenset[str]] = {}
        for topic, takers in enumerate(group.subscribers):
            start, stop = group.topic_offsets[topic], group.topic_offsets[topic + 1]
            if racks is None:
                number = numbers.setdefault((id(takers), frozenset()), len(rows))
                if number == len(rows):
                    rows.append((takers, frozenset()))
                of.extend(array("i", [number]) * (stop - start))
                continue
            here: dict[frozenset[str], int] = {}
            for replicas in racks[start:stop]:
                found = here.get(replicas)
                if found is None:
                    near = near_of.setdefault(replicas, replicas & member_racks)
                    found = here[replicas] = numbers.setdefault((id(takers), near), len(rows))
                    if found == len(rows):
                        rows.append((takers, near))
                of.append(found)
        stops, members, far = array("i"), array("i"), array("i")
        for takers, near in rows:
            members.extend(takers)
            stops.append(len(members))
            if racks is None:
                far.extend(array("i", bytes(4 * len(takers))))
            else:
                there = [group.members[member].rack for member in takers]
                far.extend(array("i", [rack is not None and rack not in near for rack in there]))
        return cls(of, core.count_classes(of, len(rows)), stops, members, far)


def balanced(
    group: GroupView, previous: array[int], weights: array[int] | None = None, classes: Classes | None = None
) -> array[int]:
    """New owners of a group's partitions.

    They are balanced, then with the fewest moves away from `previous`, then with the fewest far reads.
    `previous[index]`: the previous owner of each partition, or -1. `weights[member]` > 0: the relative load of each
    member; by default all are equal.
    """
    if not group.size:
        return array("i")
    rows = classes or Classes.in_group(group)
    owned = core.count_owned(previous, rows.of, rows.stops, rows.members)
    even = array("i", [1]) * len(group.members)
    flow = core.balance(rows.supplies, rows.stops, rows.members, owned, rows.far, weights or even)
    return core.deal(previous, rows.of, rows.stops, rows.members, owned, flow)


class Claims(NamedTuple):
    """Partitions claimed by members, each with the generation of its claim.

    Member m claims `indexes[stops[m - 1]:stops[m]]`.
    """

    stops: array[int]
    indexes: array[int]
    generations: array[int]

    @classmethod
    def of(cls, rows: Iterable[tuple[array[int], int]]) -> Claims:
        """Claims from (partition indexes, generation) of each member, in the group's order."""
        stops, indexes, generations = array("i"), array("i"), array("q")
        for claimed, generation in rows:
            indexes.extend(claimed)
            stops.append(len(indexes))
            generations.append(generation)
        return cls(stops, indexes, generations)

    def settle(self, group: GroupView) -> array[int]:
        """The owner of each partition: the highest generation wins; equal ones both lose (KIP-341)."""
        return core.settle_claims(group.size, self.stops, self.indexes, self.generations)

    def withhold(self, owners: array[int], previous: array[int]) -> array[int]:
        """`owners` without partitions still claimed by another member, for a second round (KIP-429)."""
        return core.withhold(owners, previous, self.stops, self.indexes)


def claims_of(group: GroupView) -> Claims:
    """The claims in the members' subscriptions, with their generations."""
    return Claims.of((member.owned_partitions, _generation(member)) for member in group.members)


def withheld(group: GroupView, target: array[int]) -> array[int]:
    """The partitions of `target` that no other member still claims (KIP-429)."""
    claims = claims_of(group)
    return claims.withhold(target, claims.settle(group))


def _generation(member: Member) -> int:
    """The generation of the subscription (version 2 and later).

    Before version 2, user data of four bytes, from cooperative-sticky, is the generation.
    """
    if member.generation != NO_GENERATION or not member.user_data or len(member.user_data) != 4:
        return member.generation
    return int.from_bytes(member.user_data, "big", signed=True)
