"""Owners of tasks within an epoch, and moves of tasks between them without a reset: rules over a region's record.

The old owner stores a cut of the task (`hand_over`). The new owner starts from it (`take`). Both are of the same epoch:
the next complete checkpoint has the task once, at its new owner's cut, and a reset undoes both.

A cut in blocks is written beside the handler of the tasks that stay. Until it is stored, the task is leaving, and its
next owner waits for it. No checkpoint begins meanwhile, since the task's partitions count for no member.

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
    record: RegionRecord,
    ticket: CheckpointTicket,
    epoch: int,
    base: int | None,
    cuts: Iterable[TaskSnapshot],
    leaving: Collection[TaskId] = (),
) -> RegionRecord | None:
    """The member lets these tasks go, each at a cut that grew from checkpoint `base`. Those `leaving` follow later.

    None if it may not: the epoch is over, a checkpoint was completed since, or another member has taken a task. Raises
    NotRegisteredError, FencedError.
    """
    given = {one.task: one for one in cuts}
    if not _in_epoch(record, ticket, epoch) or record.newest != base:
        return None
    if any(record.held.get(task) != ticket.member for task in (*given, *leaving)):
        return None
    held = {task: name for task, name in record.held.items() if task not in given}
    later = {task: name for task, name in record.leaving.items() if task not in given}
    later |= dict.fromkeys(leaving, ticket.member)
    return replace(record, held=held, handed={**record.handed, **given}, leaving=later)


def take(
    record: RegionRecord, ticket: CheckpointTicket, epoch: int, tasks: Collection[TaskId], now: float, lease_s: float
) -> tuple[RegionRecord, Mapping[TaskId, TaskSnapshot], frozenset[TaskId]] | None:
    """The member starts these tasks. Also returns the cuts of those that were handed over, and the tasks that wait.

    A task waits for the cut of its last owner, while that one is present. None if the region has gone on to another
    epoch. A barrier under way is over, because it may have an earlier cut of a task. Raises NotRegisteredError,
    FencedError.
    """
    if not _in_epoch(record, ticket, epoch):
        return None
    if tasks:
        record = record.without_barrier()
    waiting = frozenset(task for task in tasks if _is_awaited(record, ticket, task, now, lease_s))
    started = [task for task in tasks if task not in waiting]
    handed = {task: cut for task, cut in record.handed.items() if task in started}
    return holding(record, ticket, started), handed, waiting


def holding(record: RegionRecord, ticket: CheckpointTicket, tasks: Iterable[TaskId]) -> RegionRecord:
    """The member starts these tasks, under a term that is higher than that of each earlier owner."""
    if not (started := dict.fromkeys(tasks, ticket.member)):
        return record
    handed = {task: cut for task, cut in record.handed.items() if task not in started}
    leaving = {task: name for task, name in record.leaving.items() if task not in started}
    return replace(record, held={**record.held, **started}, handed=handed, leaving=leaving, term=record.term + 1)


def released(record: RegionRecord, member: str, *, leaving: bool = False) -> RegionRecord:
    """The member has no task: it was lost, or its memory is gone. With `leaving`, it still has those that leave."""
    kept = {task for task, name in record.leaving.items() if name != member or leaving}
    held = {task: name for task, name in record.held.items() if name != member or (leaving and task in kept)}
    if len(held) == len(record.held) and len(kept) == len(record.leaving):
        return record
    return replace(record, held=held, leaving={task: record.leaving[task] for task in record.leaving if task in kept})


def _is_awaited(record: RegionRecord, ticket: CheckpointTicket, task: TaskId, now: float, lease_s: float) -> bool:
    owner = record.leaving.get(task, ticket.member)
    return owner != ticket.member and owner in record.members and record.members[owner].here(now, lease_s)


def _in_epoch(record: RegionRecord, ticket: CheckpointTicket, epoch: int) -> bool:
    member = record.member(ticket)
    return record.stopped is None and epoch == record.epoch == member.epoch
