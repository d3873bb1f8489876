"""A plan: the owner of each partition as arrays, converted to names when they are read."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from kohort.assignors.core import core
from kohort.assignors.errors import PlanError
from kohort.assignors.group import GroupView
from kohort.common import TopicPartition

#: In an owner array: no member reads this partition (yet).
NO_MEMBER = -1
_NO_BYTES = struct.pack(">i", -1)


class Partitions(Sequence[TopicPartition]):
    """The partitions of one member, sorted; each `TopicPartition` is created when it is read."""

    __slots__ = ("_group", "indexes")

    def __init__(self, group: GroupView, indexes: array[int]) -> None:
        self._group = group
        self.indexes = indexes

    def __len__(self) -> int:
        return len(self.indexes)

    @overload
    def __getitem__(self, index: int) -> TopicPartition: ...
    @overload
    def __getitem__(self, index: slice) -> Partitions: ...
    def __getitem__(self, index: int | slice) -> TopicPartition | Partitions:
        if isinstance(index, slice):
            return Partitions(self._group, self.indexes[index])
        return self._group.partition(self.indexes[index])

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, numbers in self.by_topic():
            for number in numbers:
                yield TopicPartition(topic, number)

    def by_topic(self) -> Iterator[tuple[str, array[int]]]:
        """(topic, its partition numbers ascending), sorted by topic, as in the protocol."""
        starts, row = self._group.topic_offsets, self.indexes
        at, topic = 0, 0
        while at < len(row):
            while starts[topic + 1] <= row[at]:
                topic += 1
            begin, base, stop = at, starts[topic], starts[topic + 1]
            while at < len(row) and row[at] < stop:
                at += 1
            yield self._group.topics[topic], array("i", [index - base for index in row[begin:at]])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence) and not isinstance(other, str | bytes):
            return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(str(partition) for partition in self[:8])
        return f"[{shown}{', ...' if len(self) > 8 else ''}]"


class Plan(Mapping[str, Partitions]):
    """A mapping of each member id of the group to its partitions.

    The partitions are sorted by topic and number.
    """

    __slots__ = ("_stops_and_rows", "group", "owners")

    def __init__(self, group: GroupView, owners: array[int]) -> None:
        """Create a plan from `owners`: the member's index, or -1, for each partition index.

        The plan keeps the array, which must not be changed afterwards.
        """
        if len(owners) != group.size:
            raise PlanError(f"owners of {len(owners)} partitions for a group of {group.size}")
        self.group = group
        self.owners = owners
        self._stops_and_rows: tuple[array[int], array[int]] | None = None

    @classmethod
    def of(cls, group: GroupView, named: Mapping[str, Iterable[tuple[str, int]]]) -> Plan:
        """Create a plan from names.

        Raises `PlanError` for an unknown member, an unknown partition or a partition assigned twice.
        """
        owners = array("i", [NO_MEMBER]) * group.size
        for member_id, partitions in named.items():
            if member_id not in group.number_of_member:
                raise PlanError("a plan for a member that is not in the group", member=member_id)
            member = group.number_of_member[member_id]
            for topic, partition in partitions:
                index = group.index(topic, partition)
                if index is None:
                    raise PlanError(
                        "a partition that no member subscribes to", member=member_id, topic=topic, partition=partition
                    )
                if owners[index] != NO_MEMBER:
                    first = group.members[owners[index]].id
                    raise PlanError(
                        "a partition given twice",
                        topic=topic,
                        partition=partition,
                        member=first,
                        other_member=member_id,
                    )
                owners[index] = member
        return cls(group, owners)

    def __getitem__(self, member_id: str) -> Partitions:
        return self.row(self.group.number_of_member[member_id])

    def __iter__(self) -> Iterator[str]:
        return (member.id for member in self.group.members)

    def __len__(self) -> int:
        return len(self.group.members)

    def row(self, member: int) -> Partitions:
        """The partitions of the member at this index of `group.members`. Raises IndexError behind the last one."""
        stops, rows = self._grouped()
        return Partitions(self.group, rows[stops[member - 1] if member else 0 : stops[member]])

    def count(self, member: int) -> int:
        """The number of partitions of the member at this index. Raises IndexError behind the last one."""
        stops, _ = self._grouped()
        return stops[member] - (stops[member - 1] if member else 0)

    @property
    def counts(self) -> list[int]:
        """The number of partitions of each member, in the group's order."""
        return [self.count(member) for member in range(len(self.group.members))]

    def encode(self, member_id: str, version: int = 3, user_data: bytes | None = None) -> bytes:
        """The member's `Assignment` of the embedded consumer protocol. Raises KeyError for an unknown member."""
        rows = core.encode_rows(self.group.topics_on_wire, self.group.starts_row, self[member_id].indexes)
        tail = _NO_BYTES if user_data is None else struct.pack(">i", len(user_data)) + user_data
        return b"".join((struct.pack(">h", version), rows, tail))

    def to_names(self) -> dict[str, list[tuple[str, int]]]:
        """The plan as plain dictionaries and tuples, for display and JSON."""
        return {member_id: [tuple(partition) for partition in self[member_id]] for member_id in self}  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"Plan({', '.join(f'{member_id}: {self[member_id]!r}' for member_id in self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Plan, (self.group, self.owners)

    def _grouped(self) -> tuple[array[int], array[int]]:
        if self._stops_and_rows is None:
            self._stops_and_rows = core.group_by_owner(self.owners, len(self.group.members))
        return self._stops_and_rows
