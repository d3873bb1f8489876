"""Calls of a coordinator with one task a partition, as tests write them."""

from collections.abc import Mapping

from kohort import TopicPartition
from kohort.consistent_region.checkpoint_barrier import CheckpointTicket
from kohort.consistent_region.coordinator import RegionCoordinator, TaskStarts
from kohort.consistent_region.manifest import TaskState
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.tasks import TaskId


def task(partition: TopicPartition) -> TaskId:
    return TaskId("", partition.partition)


def tasks(*partitions: TopicPartition) -> dict[TaskId, list[TopicPartition]]:
    return {task(one): [one] for one in partitions}


def cuts(offsets: Mapping[TopicPartition, RegionPosition], state: bytes) -> dict[TaskId, TaskState]:
    """Each task at its offset, all with this state."""
    return {task(one): TaskState({one: at}, state) for one, at in offsets.items()}


def gone_back(
    coordinator: RegionCoordinator, ticket: CheckpointTicket, generation: int, *partitions: TopicPartition
) -> TaskStarts:
    """The member goes back with these partitions, and reports them."""
    back = coordinator.go_back(ticket, tasks(*partitions))
    coordinator.report(ticket, generation, len(partitions))
    return back


def states(starts: TaskStarts) -> dict[int, bytes | None]:
    """The state that each task starts from."""
    return {one.number: start.cut.state if start.cut else None for one, start in starts.starts.items()}


def offsets(starts: TaskStarts) -> dict[TopicPartition, int]:
    return {one: at.offset for one, at in starts.positions.items()}
