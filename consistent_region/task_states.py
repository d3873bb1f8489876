"""The states of a member's tasks, and the effects that its sinks collected for each of them."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from kohort.common.log_context import logger
from kohort.consistent_region.coordinator import TaskStart
from kohort.consistent_region.dict_state import DictState
from kohort.consistent_region.effects import DueEffects, Parts, SinkPlace, TaskTerm, TransactionalSink, packed, unpacked
from kohort.consistent_region.errors import ConfigurationError, ResetFailedError, StateVersionError
from kohort.consistent_region.incremental import IncrementalState, StateCut
from kohort.consistent_region.manifest import Block, StateReference, TaskState
from kohort.consistent_region.offsets import Positions
from kohort.consistent_region.setting_checks import check_implements, given_as
from kohort.consistent_region.state import CheckpointListener, StateHandle
from kohort.consistent_region.tasks import TaskId
from kohort.consistent_region.witness import Witness
from kohort.network.arguments import names_given

log = logger("kohort.region")

MakeState = Callable[[TaskId], StateHandle]
Migrate = Callable[[int, StateHandle], object]
Load = Callable[[StateReference], bytes]


class _Reservation:
    """Lasts as long as its member runs."""


_RESERVED: Final[WeakValueDictionary[int, _Reservation]] = WeakValueDictionary()  # by the id of a sink


@dataclass(slots=True)
class TaskCut:
    """A task at one moment. `blocks` are written afterwards; None if `snapshot` is all of its state."""

    offsets: Positions
    snapshot: bytes
    version: int
    parts: Parts
    blocks: StateCut | None
    _is_written: bool = False

    def write(self, enough: Callable[[], bool]) -> bool:
        self._is_written = self._is_written or self.blocks is None or self.blocks.write(enough)
        return self._is_written

    def store(self, put: Callable[[Block], object]) -> None:
        if self.blocks is None:
            return
        for place, one in enumerate(self.blocks.blocks):
            if one.data is not None:
                put(one)
                self.blocks.blocks[place] = one._replace(data=None)

    def completed(self) -> None:
        if self.blocks is not None:
            self.blocks.completed()

    @property
    def size_bytes(self) -> int:
        """The size of the state without its effects."""
        blocks = () if self.blocks is None else self.blocks.blocks
        return len(self.snapshot) + sum(one.reference.length_bytes for one in blocks)

    @property
    def contribution(self) -> TaskState:
        blocks = () if self.blocks is None else tuple(self.blocks.blocks)
        return TaskState(self.offsets, packed(self.snapshot, self.parts), self.version, blocks)


class Arrival:
    """A state that is read in parts. `restoring` begins to read it, and yields between the parts."""

    def __init__(self, restoring: Callable[[], Iterator[object]]) -> None:
        self._restoring = restoring
        self._parts = restoring()

    def read(self, enough: Callable[[], bool]) -> bool:
        """Read until `enough()`. Returns True once all is read. After an error, it is read from the beginning."""
        try:
            return not any(enough() for _ in self._parts)
        except BaseException:
            self._parts = self._restoring()
            raise


class TaskStates:
    """`states`: the state of each task that the member has now. `arriving`: tasks whose states are not read yet.
    `leaving`: cuts for other owners that are not written yet.

    `make` returns the initial state of a task. A sink that is None is removed: effects pending from an earlier process
    are never committed. `version`: of the states' form; `migrate(old_version, state)` changes an older one in place.
    """

    def __init__(
        self,
        make: MakeState,
        sinks: Mapping[str, TransactionalSink | None] | None = None,
        *,
        version: int = 1,
        migrate: Migrate | None = None,
    ) -> None:
        self.states: dict[TaskId, StateHandle] = {}
        self.version = version
        self._make = make
        self._migrate = migrate
        given = {} if sinks is None else sinks
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"sinks have names: {{'out': sink}}, not {given!r}", setting="sinks")
        self._sinks = {name: sink for name, sink in given.items() if sink is not None}
        given_as(names_given, given, "sinks")  # a checkpoint has them as text
        for name, sink in self._sinks.items():
            check_implements(f"the sink {name!r}", sink, TransactionalSink, "sinks")
        self._given_up = given.keys() - self._sinks.keys()
        self._selected: TaskId | None = None
        self._carried: dict[TaskId, Parts] = {}  # in a cut, and in no complete checkpoint yet
        self._cuts: dict[TaskId, TaskCut] = {}
        self._snapshot_bytes: dict[TaskId, int] = {}
        self.leaving: dict[TaskId, TaskCut] = {}
        self.arriving: dict[TaskId, Arrival] = {}
        self._loaded = 0  # blocks
        self._started_total = 0

    def metrics(self) -> dict[str, int]:
        """Figures of tasks, states and effects. From any thread."""
        parts = [segments for one in list(self._carried.values()) for segments in list(one.values())]
        return {
            "tasks": len(self.states),
            "tasks_started_total": self._started_total,
            "state_bytes": sum(list(self._snapshot_bytes.values())),
            "effects_owed_bytes": sum(len(one) for segments in parts for one in segments),
            "effects_refused_total": sum(getattr(sink, "refused_total", 0) for sink in self._sinks.values()),
        }

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Have the sinks for this member alone. Raises ConfigurationError if another member has one at the moment."""
        mine: list[_Reservation] = []
        try:
            for name, sink in self._sinks.items():
                mine.append(_Reservation())
                if _RESERVED.setdefault(id(sink), mine[-1]) is not mine[-1]:
                    raise ConfigurationError(
                        "the sink belongs to another member of this process, or has another name too",
                        hint="give each member a sink of its own, and a handler that writes to it",
                        setting="sinks",
                        sink=name,
                    )
            yield
        finally:
            mine.clear()  # all at once, also if an interrupt came

    def open(self, place: SinkPlace) -> None:
        for name, sink in self._sinks.items():
            sink.open(replace(place, sink=name))

    def close(self) -> None:
        for name, sink in self._sinks.items():
            try:
                sink.close()
            except Exception as problem:
                log.warning("closing sink %s: %s", name, problem)

    def select(self, task: TaskId) -> StateHandle:
        """Return the state of the next record's task. The sinks collect for it from now on."""
        if task != self._selected:
            for sink in self._sinks.values():
                sink.select(task)
            self._selected = task
        return self.states[task]

    def fence(self, tasks: Collection[TaskId], term: TaskTerm) -> list[Witness]:
        """Have the sinks take these tasks. Returns what they know of earlier commits."""
        return [note for sink in self._sinks.values() if tasks for note in sink.take(tasks, term).values()]

    @property
    def latest_term(self) -> int:
        """The latest term that a sink found when it took tasks; 0 if none is known."""
        return max((getattr(sink, "latest_term", 0) for sink in self._sinks.values()), default=0)

    def start(self, starts: Mapping[TaskId, TaskStart], lineage: str, load: Load) -> None:
        """Start tasks at the cuts of a checkpoint, or of their last owner. Commits the effects that are due.

        A state with blocks that have no data is arriving: `restore` reads them by `load`.
        """
        due: dict[str, list[DueEffects]] = {name: [] for name in self._sinks}
        sequence = 0
        self._started_total += len(starts)
        for task, start in starts.items():
            self._forget(task)
            if start.cut is None:
                self._state_of(task).reset_initial()
                continue
            state, parts = unpacked(start.cut.state)
            self._check_names(parts)
            restoring = partial(self._restoring, task, state, start.cut, load)
            if any(block.data is None for block in start.cut.blocks):
                self.arriving[task] = Arrival(restoring)
            else:
                deque(restoring(), maxlen=0)
            if start.sequence is None:
                self._carried[task] = parts
                continue
            sequence = start.sequence
            for name in self._sinks.keys() & parts.keys():
                due[name].append(DueEffects(task, parts[name], start.cut.offsets))
        self._commit(due, Witness(lineage, sequence))

    def keep(self, tasks: Collection[TaskId]) -> None:
        """Drop the states and effects of all other tasks."""
        gone = self.states.keys() - set(tasks)
        for task in gone:
            self._forget(task)
            self._snapshot_bytes.pop(task, None)
            del self.states[task]
        for sink in self._sinks.values():
            if gone and (release := getattr(sink, "release_tasks", None)) is not None:
                release(gone)

    def restore(self, enough: Callable[[], bool]) -> TaskId | None:
        """Read the state of an arriving task until `enough()` or a block is read. Returns the task if it has arrived.

        Raises ResetFailedError for a state that is gone or none of this kind.
        """
        loaded = self._loaded
        for task, arrival in self.arriving.items():
            if not arrival.read(lambda: enough() or self._loaded != loaded):
                break
            del self.arriving[task]
            return task
        return None

    def leave(self, offsets: Mapping[TaskId, Positions]) -> dict[TaskId, TaskState]:
        """Take a cut of each of these tasks for another owner. Returns those without blocks.

        The others are leaving until `drop_leaving`.
        """
        cuts = {task: self._cut(task, at) for task, at in offsets.items()}
        self.leaving |= {task: cut for task, cut in cuts.items() if cut.blocks is not None}
        return {task: cut.contribution for task, cut in cuts.items() if cut.blocks is None}

    def drop_leaving(self, tasks: Collection[TaskId]) -> None:
        """Drop the cuts of leaving tasks: each is handed over, or its next owner starts from the newest checkpoint."""
        for task in tasks:
            self.leaving.pop(task, None)

    def write_leaving(self, enough: Callable[[], bool], put: Callable[[Block], object]) -> dict[TaskId, TaskState]:
        """Write cuts of leaving tasks until `enough()` or a block is there. Returns those that are written.

        `put` is called for each new block.
        """
        written = {}
        for task, cut in self.leaving.items():
            is_written = cut.write(enough)
            cut.store(put)
            if not is_written:
                break
            written[task] = cut.contribution
        return written

    def take_cut(self, offsets: Mapping[TaskId, Positions]) -> None:
        """Take a cut of each of these tasks for a checkpoint. What the handler does from now on is not in it."""
        self._cuts = {task: self._cut(task, at) for task, at in offsets.items()}

    def write(self, enough: Callable[[], bool]) -> bool:
        """Write snapshots of the last cut until `enough()` or a block is there. Return True once all are written."""
        return all(one.write(enough) for one in self._cuts.values())

    def store(self, put: Callable[[Block], object]) -> None:
        """Call `put` for each new block of the last cut, which is in the store afterwards."""
        for one in self._cuts.values():
            one.store(put)

    def contribution(self) -> dict[TaskId, TaskState]:
        """The last cut, for its checkpoint. `completed` commits its effects."""
        return {task: cut.contribution for task, cut in self._cuts.items()}

    def completed(self, at: Witness) -> None:
        """The checkpoint that has the last cut is complete: its effects are carried out."""
        cuts, self._cuts = self._cuts, {}
        due: dict[str, list[DueEffects]] = {name: [] for name in self._sinks}
        for task, cut in cuts.items():
            for name, segments in cut.parts.items():
                if any(segments):
                    due[name].append(DueEffects(task, segments, cut.offsets))
        self._commit(due, at)
        for task, cut in cuts.items():
            # An attempt to hand over may have taken another cut meanwhile, with effects that are still owed.
            owed = self._carried[task].items()
            self._carried[task] = {name: segments[len(cut.parts[name]) :] for name, segments in owed}
            self._snapshot_bytes[task] = cut.size_bytes
            cut.completed()
            state = self.states[task]
            if isinstance(state, CheckpointListener) and callable(state.completed):  # and no field of the state's own
                state.completed()

    # --- inner

    def _state_of(self, task: TaskId) -> StateHandle:
        if task not in self.states:
            made = self._make(task)
            if any(made is other for other in self.states.values()):
                raise ConfigurationError(
                    "state= returned the state of another task", hint="make a new one for each task", setting="state"
                )
            if isinstance(made, DictState):
                made.keep_initial()
            self.states[task] = made
        return self.states[task]

    def _restoring(self, task: TaskId, snapshot: bytes, cut: TaskState, load: Load) -> Iterator[object]:
        """Begin to read a state. Raises StateVersionError. The task has a state from here on."""
        if cut.version > self.version or (cut.version < self.version and self._migrate is None):
            raise StateVersionError(
                "the checkpoint has a state of another version than this member",
                hint="migrate=function(old_version, state) changes an older state; a newer one needs its own program",
                task=str(task),
                version=cut.version,
                state_version=self.version,
            )
        return self._read(task, self._state_of(task), snapshot, cut, load)

    def _read(self, task: TaskId, state: StateHandle, snapshot: bytes, cut: TaskState, load: Load) -> Iterator[object]:
        if not cut.blocks:
            state.restore(snapshot, cut.offsets)
        elif isinstance(state, IncrementalState):
            yield from state.restore_blocks(self._with_data(cut.blocks, load))
        else:
            raise ResetFailedError("the checkpoint has blocks, and this state has none", task=str(task))
        if cut.version < self.version and self._migrate is not None:
            self._migrate(cut.version, state)

    def _with_data(self, blocks: Iterable[Block], load: Load) -> Iterator[Block]:
        for block in blocks:
            self._loaded += block.data is None
            yield block if block.data is not None else block._replace(data=load(block.reference))

    def _cut(self, task: TaskId, offsets: Positions) -> "TaskCut":
        state = self.states[task]
        blocks = state.cut() if isinstance(state, IncrementalState) else None
        snapshot = _fixed(state.snapshot(offsets), "snapshot", task) if blocks is None else b""
        carried = self._carried.get(task, {})
        prepared = {
            name: _fixed(sink.pre_commit(task) or b"", "pre_commit", task) for name, sink in self._sinks.items()
        }
        parts = {name: [*carried.get(name, ()), *filter(None, [new])] for name, new in prepared.items()}
        self._carried[task] = parts
        self._abort(task)
        return TaskCut(offsets, snapshot, self.version, parts, blocks)

    def _check_names(self, parts: Parts) -> None:
        for name in parts.keys() - self._sinks.keys() - self._given_up:
            raise ConfigurationError(
                f"the checkpoint holds effects of a sink {name!r}, and there is none of that name",
                hint=f"use this name again, or drop its pending effects: sinks={{{name!r}: None, ...}}",
                setting="sinks",
            )

    def _forget(self, task: TaskId) -> None:
        self.arriving.pop(task, None)
        self._carried.pop(task, None)
        self._cuts.pop(task, None)
        self._abort(task)

    def _abort(self, task: TaskId) -> None:
        for sink in self._sinks.values():
            sink.abort(task)
        self._selected = None  # a sink may have dropped what it collected into

    def _commit(self, due: Mapping[str, Iterable[DueEffects]], at: Witness) -> None:
        for name, effects in due.items():
            if ordered := sorted(effects, key=lambda one: one.task):
                self._sinks[name].commit(ordered, at)


def _fixed(data: object, method: str, task: TaskId) -> bytes:
    """Return what a user's method returned as bytes that nothing changes later. Raises ConfigurationError."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ConfigurationError(f"{method} returns bytes, not {type(data).__name__}", task=str(task))
    return bytes(data)
