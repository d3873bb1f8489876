"""Offsets of a region: where each partition is, how far this member came, and where a reset goes back to."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final
from uuid import UUID

from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition

NO_TOPIC_ID: Final = UUID(int=0)
NO_EPOCH: Final = -1


class RegionPosition(NamedTuple):
    """The next record to read. `leader_epoch` is -1 and `topic_id` zero where they are not known.

    Both are kept so that a reset notices a log that was truncated, or a topic that was recreated.
    """

    offset: int
    leader_epoch: int = NO_EPOCH
    topic_id: UUID = NO_TOPIC_ID

    @classmethod
    def of(cls, offset: int, leader_epoch: int = NO_EPOCH, topic_id: UUID = NO_TOPIC_ID) -> "RegionPosition":
        """As the constructor. Raises ValueError for a negative offset: 0 is an offset, and absence is not (CR-18)."""
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise TypeError(f"an offset is an int, not {offset!r}")
        if offset < 0:
            raise ValueError(f"an offset is not negative: {offset}")
        return cls(offset, leader_epoch, topic_id)


Positions = Mapping[TopicPartition, RegionPosition]


class OffsetManager:
    """The partitions that this member counts for, with the next offset of each, for checkpoints.

    A partition may be registered without an offset, if it was assigned during a pending reset. The reset sets the
    offset. Within an epoch offsets only grow: `advance` rejects a smaller offset, `place` (a seek) accepts any.
    """

    def __init__(self) -> None:
        self._next: dict[TopicPartition, RegionPosition | None] = {}

    def register(self, partitions: Iterable[TopicPartition]) -> None:
        """Count for exactly these partitions from now on. Partitions that stay keep their offsets."""
        self._next = {one: self._next.get(one) for one in sorted(partitions)}

    def place(self, positions: Positions) -> None:
        """Set offsets of registered partitions, to any value. Other partitions are ignored (CR-68)."""
        for partition, position in positions.items():
            if partition in self._next:
                self._next[partition] = position

    def advance(self, partition: TopicPartition, next_offset: int) -> None:
        """Record that the record before `next_offset` took effect.

        Raises ValueError if the offset would decrease, or if the partition has none.
        """
        before = self._next.get(partition)
        if before is None or next_offset <= before.offset:
            raise ValueError(f"{partition}: {next_offset} does not follow {before}")
        self._next[partition] = before._replace(offset=next_offset)

    def forget(self) -> None:
        """Keep the partitions, drop the offsets."""
        self._next = dict.fromkeys(self._next)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._next)

    @property
    def unplaced(self) -> frozenset[TopicPartition]:
        """Registered partitions that have no offset yet."""
        return frozenset(one for one, position in self._next.items() if position is None)

    def next_of(self, partition: TopicPartition) -> RegionPosition | None:
        """Return the next offset of a partition; None if it is not registered or has no offset yet."""
        return self._next.get(partition)

    def positions(self) -> Positions:
        """Every registered partition that has an offset, in order."""
        return MappingProxyType({one: position for one, position in self._next.items() if position is not None})

    def __contains__(self, partition: object) -> bool:
        return partition in self._next


def starts_of(partitions: Iterable[TopicPartition], checkpoint: Positions, initial: Positions) -> Positions:
    """The start of each partition after a reset: the checkpoint's offset, else the initial one (CR-65, CR-66).

    Partitions that have neither are left out.
    """
    found = {one: checkpoint.get(one, initial.get(one)) for one in sorted(partitions)}
    return {one: at for one, at in found.items() if at is not None}
