"""Moves of partitions between members within an epoch, without a reset: rules over a region's record, for COOPERATIVE
groups.

The old owner records its position (`hand_over`), and keeps the effects of earlier records in its state. The new owner
reads on from that position (`take`). Both are effects of the same epoch: the next complete checkpoint has both, and a
reset undoes both. If either member restarts before the next checkpoint, the whole region is reset. The record therefore
keeps the members that took part (`moved`) until the next checkpoint or reset. If one of them restarts, leaves or
becomes absent, the whole region goes back.

A partition with a holder that was not handed over was lost by its holder. The region goes back then, too.
"""

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType

from kohort.common.named_tuple import NamedTuple
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region.checkpoint_barrier import CheckpointTicket, MembershipView
from kohort.consistent_region.offsets import Positions, SeekMap
from kohort.consistent_region.region_record import RegionRecord


class TakenOver(NamedTuple):
    """The result of `take`. `starts`: the start offsets of those that are new here. `missing`: those that another
    member holds and did not hand over. Both are empty if the region has gone on to another epoch."""

    view: MembershipView
    starts: Positions
    missing: frozenset[TopicPartition]


def hand_over(record: RegionRecord, ticket: CheckpointTicket, epoch: int, positions: Positions) -> RegionRecord | None:
    """The member lets these go, having come so far. None if it may not: the epoch is over, or they are not its own."""
    if not _in_epoch(record, ticket, epoch):
        return None
    if any(record.held.get(partition) != ticket.member for partition in positions):
        return None
    if not positions:
        return record
    held = {partition: name for partition, name in record.held.items() if partition not in positions}
    return replace(
        record,
        held=held,
        handed=MappingProxyType({**record.handed, **positions}),
        moved=_with(record, ticket.member),
    )


def take(
    record: RegionRecord, ticket: CheckpointTicket, epoch: int, partitions: Iterable[TopicPartition], seeks: SeekMap
) -> tuple[RegionRecord, Positions, frozenset[TopicPartition]]:
    """Record the member's partitions. Also returns the start positions of new partitions, and those without one."""
    if not _in_epoch(record, ticket, epoch):
        return record, {}, frozenset()
    new = [one for one in partitions if record.held.get(one) != ticket.member]
    missing = frozenset(one for one in new if one in record.held)
    starts = {**seeks.starts(new), **{one: record.handed[one] for one in new if one in record.handed}}
    changed = any(one in record.handed for one in new)
    record = replace(
        record,
        held={**record.held, **dict.fromkeys((one for one in new if one not in missing), ticket.member)},
        handed=MappingProxyType({one: to for one, to in record.handed.items() if one not in starts}),
        moved=_with(record, ticket.member) if changed else record.moved,
    )
    return record, {one: to for one, to in starts.items() if one not in missing}, missing


def conflict(record: RegionRecord, ticket: CheckpointTicket, partitions: Iterable[TopicPartition]) -> bool:
    """True if a member that goes back has partitions that were read in this epoch, beyond the checkpoint."""
    return any(one in record.handed or record.held.get(one, ticket.member) != ticket.member for one in partitions)


def holding(record: RegionRecord, ticket: CheckpointTicket, partitions: Iterable[TopicPartition]) -> RegionRecord:
    """The member holds exactly these, from the checkpoint on: it has just gone back."""
    others = forgotten(record, ticket.member).held
    return replace(record, held={**others, **dict.fromkeys(partitions, ticket.member)})


def forgotten(record: RegionRecord, member: str) -> RegionRecord:
    """Drop the member's holdings: its memory is gone, and with it the results of those records."""
    if member not in record.held.values():
        return record
    return replace(record, held={partition: name for partition, name in record.held.items() if name != member})


def _in_epoch(record: RegionRecord, ticket: CheckpointTicket, epoch: int) -> bool:
    return record.stopped is None and epoch == record.epoch == record.members[ticket.member].epoch


def _with(record: RegionRecord, member: str) -> tuple[str, ...]:
    return tuple(sorted({*record.moved, member}))
