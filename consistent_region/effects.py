"""External effects that happen exactly once: sinks that commit with the region's checkpoints.

A sink only collects effects while records are handled, for each task apart. The collected effects become part of the
task's cut in a checkpoint (`pre_commit`), and take effect when the checkpoint is complete (`commit`). If the member
dies in between, the next owner of the task commits them before its first record. An effect thus happens if, and only
if, its record is in a complete checkpoint. It happens once, because the target stores the checkpoint of the last
commit.
"""

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kohort.common.foreign_text import parsed_json
from kohort.common.named_tuple import NamedTuple
from kohort.consistent_region.errors import ResetFailedError
from kohort.consistent_region.manifest import canonical
from kohort.consistent_region.offsets import Positions
from kohort.consistent_region.tasks import TaskId
from kohort.consistent_region.witness import Witness
from kohort.network.group_types import ConsumerGroupMetadata

MAGIC: Final = b"KEFFECT\n"
_HEAD: Final = struct.Struct(">8sI")
Parts = Mapping[str, Sequence[bytes]]


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """The region, group and name of a sink, passed to `open`. `group_metadata` gives the member's current identity in
    its group."""

    region: str
    group: str
    group_metadata: Callable[[], ConsumerGroupMetadata]
    sink: str = "out"

    def names(self, task: TaskId) -> tuple[str, str, str, str]:
        """The key of the sink's note of a task: region, group, task, sink."""
        return self.region, self.group, str(task), self.sink


class TaskTerm(NamedTuple):
    """The identity of an owner of tasks: within one lineage, later owners have higher terms."""

    lineage: str
    number: int


class DueEffects(NamedTuple):
    """Effects of one task, as `pre_commit` returned them, in order. `offsets`: behind the last records of the task."""

    task: TaskId
    prepared: Sequence[bytes]
    offsets: Positions


class TransactionalSink(Protocol):
    """The interface of a sink. All calls come on the thread of `run`, never while the handler runs.

    The methods with which the handler collects effects are the sink's own.

    A method `release_tasks(tasks)` is optional. It is called with tasks that have left the member, after their last
    commit.

    Two attributes are optional, and count as 0 if they are missing. `refused_total`: the number of dead letters.
    `latest_term`: the latest term of an owner of its lineage that the last `take` found in the target. A region
    notices by it that its store was lost.
    """

    def open(self, place: SinkPlace) -> None:
        """Connect to the target, before all other calls. An error raised here ends the member."""

    def take(self, tasks: Collection[TaskId], term: TaskTerm) -> Mapping[TaskId, Witness]:
        """Make this process the owner of tasks from now on, under `term`.

        Older owners have another lineage or lower terms. They must be able to commit nothing more of these tasks.
        Returns the last commit of each task that has one, as far as it is known. An error raised here ends the
        member.
        """

    def select(self, task: TaskId) -> None:
        """Collect the next effects for this task. It is called again after each `abort`. No error may be raised."""

    def pre_commit(self, task: TaskId) -> bytes:
        """Return the effects of a task collected since its last `abort`. The region keeps them, and calls `abort` next.

        They are bytes that another process can commit, or no bytes if there are none. Raise ConfigurationError for
        effects that no commit could carry out.
        """

    def commit(self, due: Sequence[DueEffects], at: Witness) -> None:
        """Commit the effects of tasks, each in one transaction with a note of the checkpoint `at`.

        If the note covers `at` (`Witness.covers`), do nothing. Leave out tasks with a later owner, which commits them.
        Raise RegionError if the target rejects a commit: the member ends, and the next owner commits.
        """

    def abort(self, task: TaskId) -> None:
        """Forget the collected effects of a task. No error may be raised."""

    def close(self) -> None:
        """Disconnect from the target. It is called at the end, also after errors."""


def packed(state: bytes, parts: Parts) -> bytes:
    """Return a task's state and the prepared effects of each sink as one snapshot.

    In order: magic "KEFFECT\\n", head length (u32), head (JSON), state, and the parts in the head's order. Without
    effects it is the state alone.
    """
    named = {name: list(map(len, segments)) for name, segments in parts.items() if any(segments)}
    if not named and not state.startswith(MAGIC):
        return state
    head = canonical({"sinks": named, "state": len(state)})
    segments = (one for name in sorted(named) for one in parts[name])
    return b"".join((_HEAD.pack(MAGIC, len(head)), head, state, *segments))


def unpacked(snapshot: bytes) -> tuple[bytes, Parts]:
    """Return a snapshot's state, and the parts of each sink. Raises ResetFailedError if it is invalid."""
    if not snapshot.startswith(MAGIC):
        return snapshot, {}
    try:
        _magic, length = _HEAD.unpack_from(snapshot)
        at = _HEAD.size + length
        head: dict[str, Any] = parsed_json(snapshot[_HEAD.size : at])
        state = snapshot[at : at + head["state"]]
        at += head["state"]
        parts: dict[str, list[bytes]] = {}
        for name, sizes in sorted(head["sinks"].items()):
            for size in sizes:
                parts.setdefault(name, []).append(snapshot[at : at + size])
                at += size
    except (struct.error, ValueError, TypeError, KeyError, AttributeError) as problem:
        raise ResetFailedError(f"the snapshot holds no effects: {problem}") from problem
    if at != len(snapshot):
        raise ResetFailedError("the snapshot's effects are torn", announced_bytes=at, found_bytes=len(snapshot))
    return state, parts
