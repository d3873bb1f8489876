"""Owners of tasks within an epoch, and moves of tasks between them without a reset: rules over a region's record.

The old owner stores a cut of the task (`hand_over`). The new owner starts from it (`take`). Both are of the same epoch:
the next complete checkpoint has the task once, at its new owner's cut, and a reset undoes both.

A task that was not handed over starts from the newest checkpoint. Its last owner was lost, or could not reach the
store. Only that task's records are read again, since no other state has effects of them. The start of
a task ends the barrier under way, because an earlier cut of the task may be in it already.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from kohort.consistent_region.checkpoint_barrier import CheckpointTicket
from kohort.consistent_region.manifest import TaskSnapshot
from kohort.consistent_region.region_record import RegionRecord
from kohort.consistent_region.tasks import TaskId


def hand_over(
    record: RegionRecord, ticket: CheckpointTicket, epoch: int, base: int | None, cuts: Iterable[TaskSnapshot]
) -> RegionRecord | None:
    """The member lets these tasks go, each at a cut that grew from checkpoint `base`.

    None if it may not: the epoch is over, a checkpoint was completed since, or another member has taken a task.
    """
    given = {one.task: one for one in cuts}
    if not _in_epoch(record, ticket, epoch) or record.newest != base:
        return None
    if any(record.held.get(task) != ticket.member for task in given):
        return None
    held = {task: name for task, name in record.held.items() if task not in given}
    return replace(record, held=held, handed={**record.handed, **given})


def take(
    record: RegionRecord, ticket: CheckpointTicket, epoch: int, tasks: Collection[TaskId]
) -> tuple[RegionRecord, Mapping[TaskId, TaskSnapshot]] | None:
    """The member starts these tasks. Also returns the cuts of those that were handed over.

    None if the region has gone on to another epoch.
    """
    if not _in_epoch(record, ticket, epoch):
        return None
    handed = {task: cut for task, cut in record.handed.items() if task in tasks}
    return holding(record, ticket, tasks), handed


def holding(record: RegionRecord, ticket: CheckpointTicket, tasks: Iterable[TaskId]) -> RegionRecord:
    """The member starts these tasks, under a term that is higher than that of each earlier owner."""
    if not (started := dict.fromkeys(tasks, ticket.member)):
        return record
    handed = {task: cut for task, cut in record.handed.items() if task not in started}
    return replace(record, held={**record.held, **started}, handed=handed, term=record.term + 1)


def released(record: RegionRecord, member: str) -> RegionRecord:
    """The member has no task: it was lost, or its memory is gone."""
    if member not in record.held.values():
        return record
    return replace(record, held={task: name for task, name in record.held.items() if name != member})


def _in_epoch(record: RegionRecord, ticket: CheckpointTicket, epoch: int) -> bool:
    return record.stopped is None and epoch == record.epoch == record.members[ticket.member].epoch
