"""Deliberate faults in the region's code, each of which the simulation must find.

    python -m tests.consistent_region.region_mutants [--seeds N] [NAME ...]

A mutant that no seed finds says that an invariant is not checked, or that the code it changes is not needed.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from kohort.consistent_region import coordinator_rules, region_driver, region_member, start_positions
from kohort.consistent_region import events as ev
from kohort.consistent_region.coordinator import RegionCoordinator, TaskStarts
from kohort.consistent_region.errors import RegionError
from kohort.consistent_region.log_lineage import Lineage
from kohort.consistent_region.offsets import OffsetManager
from kohort.consistent_region.record_queue import RecordBuffer
from kohort.consistent_region.region_driver import RegionDriver
from kohort.consistent_region.region_member import RegionMember
from kohort.consistent_region.region_record import MemberRecord, RegionRecord
from kohort.consistent_region.states import RegionPhase
from kohort.consistent_region.task_states import Arrival, TaskStates
from kohort.consistent_region.witness import Witness
from kohort.testing.simulation import history as world_history
from kohort.testing.simulation import world
from kohort.testing.simulation.kafka import SimConsumer, Violation
from kohort.testing.simulation.target import SimSink

Mutant = tuple[Any, str, Callable[[Any], Any]]


def nothing(_original: Any) -> Any:
    return lambda *_args, **_kwargs: None


def _take_in_any_phase(original: Any) -> Any:
    def take(self: RegionMember, now: float, most: int) -> object:
        phase, self.phase = self.phase, RegionPhase.OPEN
        try:
            return original(self, now, most)
        finally:
            self.phase = phase

    return take


def _shifted(by: int) -> Callable[[Any], Any]:
    def mutate(original: Any) -> Any:
        def positions(self: OffsetManager) -> object:
            found = original(self)
            return MappingProxyType({one: at._replace(offset=max(at.offset + by, 0)) for one, at in found.items()})

        return positions

    return mutate


def _at_the_initial(original: Any) -> Any:
    """States are those of the checkpoint, and positions the initial ones."""

    def starts(self: RegionCoordinator, *args: Any, **settings: Any) -> TaskStarts:
        response: TaskStarts = original(self, *args, **settings)
        initial = self.initial()
        starts = {
            task: start._replace(offsets={one: initial[one] for one in start.offsets})
            for task, start in response.starts.items()
        }
        return response._replace(starts=starts)

    return starts


def _initial_rewritten(_original: Any) -> Any:
    return lambda record, _ticket, positions: replace(record, initial=MappingProxyType({**record.initial, **positions}))


def _initial_cached(original: Any) -> Any:
    found: dict[int, Any] = {}

    def watch(self: RegionCoordinator) -> tuple[Any, Any]:
        record, view = original(self)
        return replace(record, initial=found.setdefault(id(self.store), record.initial)), view

    return watch


def _any_incarnation(_original: Any) -> Any:
    return lambda record, ticket: record.members[ticket.member]


def _keeps_the_barrier(original: Any) -> Any:
    def changed(record: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(record, *args, **kwargs)
        after = result[0] if isinstance(result, tuple) else result
        after = replace(
            after, barrier=record.barrier, contributed=record.contributed, tasks=record.tasks, deadline=record.deadline
        )
        return (after, *result[1:]) if isinstance(result, tuple) else after

    return changed


def _register_over_a_complete_barrier(original: Any) -> Any:
    """The dead process's contribution counts on, and the new one is taken for a member of the epoch."""

    def register(record: Any, region: str, member: str, *rest: Any) -> Any:
        before = record.members.get(member)
        result = _keeps_the_barrier(original)(record, region, member, *rest)
        if before is None:
            return result
        known = result[0].members[member]._replace(epoch=before.epoch, generation=before.generation, owned=before.owned)
        return replace(result[0], members={**result[0].members, member: known}), *result[1:]

    return register


def _begin_whoever(**known: int) -> Callable[[Any], Any]:
    def mutate(original: Any) -> Any:
        def begin(record: Any, ticket: Any, epoch: int, *args: Any) -> Any:
            own = record.members[ticket.member]
            values = {name: getattr(own, name) if value < 0 else value for name, value in known.items()}
            here = {name: one._replace(**values) for name, one in record.members.items()}
            begun = original(replace(record, members=here), ticket, epoch, *args)
            return replace(begun, members=record.members)

        return begin

    return mutate


def _complete_with_the_first(original: Any) -> Any:
    def contribute(record: Any, ticket: Any, barrier: Any, tasks: Any, now: float) -> Any:
        if record.barrier != barrier:
            return original(record, ticket, barrier, tasks, now)
        alone = replace(barrier, members=(ticket.member,))
        first = replace(record, barrier=alone, contributed=(), tasks=(), initial={})
        after, manifest = original(first, ticket, alone, tasks, now)
        return replace(after, initial=record.initial), manifest

    return contribute


def _complete_uncovered(original: Any) -> Any:
    return lambda manifest, _ever_owned=(): original(manifest)


def _begin_halfway_covered(original: Any) -> Any:
    """Neither generations nor missing partitions are checked."""
    return _begin_whoever(generation=-1, owned=99)(original)


def _commit_when_contributed(original: Any) -> Any:
    def contributed(self: RegionMember, event: ev.Contributed) -> None:
        self._commit = self.offsets.positions()
        original(self, event)

    return contributed


def _commit_one_more(original: Any) -> Any:
    return lambda self, positions: original(
        self, {one: at._replace(offset=at.offset + 1) for one, at in positions.items()}
    )


def _drained_forgotten(original: Any) -> Any:
    def bring_back(self: RecordBuffer) -> None:
        self._drained.clear()
        original(self)

    return bring_back


def _drained_backwards(original: Any) -> Any:
    def bring_back(self: RecordBuffer) -> None:
        self._drained._slices.reverse()
        original(self)

    return bring_back


def _snapshot_without_the_last(original: Any) -> Any:
    def snapshot(self: world_history.SimHistory, offsets: Any) -> bytes:
        for applied in self.applied.values():
            if applied:
                applied.pop()
                break
        return bytes(original(self, offsets))

    return snapshot


def _one_too_many(original: Any) -> Any:
    return lambda self, partition, next_offset: original(self, partition, next_offset + 1)


def _never_counted(_original: Any) -> Any:
    return lambda self, partition, _next_offset: partition in self._next


def _queued_twice(original: Any) -> Any:
    return lambda self, event: original(self, ev.RecordsPolled([*event.slices, *event.slices]))


def _last_dropped(original: Any) -> Any:
    def polled(self: RegionMember, event: ev.RecordsPolled) -> None:
        original(self, ev.RecordsPolled([one[:-1] if len(one) > 1 else one for one in event.slices]))

    return polled


def _discovered_at_the_end(_original: Any) -> Any:
    def by(which: str, partitions: Any, request: Any) -> dict[Any, int]:
        return dict(request.end_offsets(partitions)) if partitions else {}

    return by


def _newest_retired(_original: Any) -> Any:
    return lambda record, up_to: (replace(record, complete=record.complete[:1]), record.complete[1:])


def _sequence_reused(original: Any) -> Any:
    def begin(record: Any, *args: Any) -> Any:
        begun = original(record, *args)
        return replace(begun, next_sequence=record.next_sequence)

    return begin


def _takes_nothing(_original: Any) -> Any:
    return lambda *_args: {}


def _any_owner(original: Any) -> Any:
    def commit(self: SimSink, due: Any, at: Any) -> None:
        self._world.target.notes.clear()
        original(self, due, at)

    return commit


def _committed_at_once(original: Any) -> Any:
    def take_cut(self: TaskStates, offsets: Any) -> None:
        original(self, offsets)
        cuts, carried = dict(self._cuts), dict(self._carried)
        self.completed(Witness("", 1 << 40))
        self._cuts, self._carried = cuts, carried

    return take_cut


def _cut_when_contributed(_original: Any) -> Any:
    def contribution(self: TaskStates) -> Any:
        cuts = {task: self._cut(task, cut.offsets) for task, cut in self._cuts.items()}
        for one in cuts.values():
            while not one.write(lambda: False):
                pass
        return {task: one.contribution for task, one in cuts.items()}

    return contribution


def _read_as_far_as_it_goes(_original: Any) -> Any:
    """The iterator of a state is at its end behind an error."""
    return lambda self, enough: not any(enough() for _ in self._parts)


def _commit_what_came_since(original: Any) -> Any:
    def completed(self: RegionMember, sequence: int) -> None:
        self._cut_positions = self.offsets.positions()
        original(self, sequence)

    return completed


def _held_by_anyone(original: Any) -> Any:
    def contribute(record: Any, ticket: Any, barrier: Any, tasks: Any, now: float) -> Any:
        held = {**record.held, **dict.fromkeys((one.task for one in tasks), ticket.member)}
        return original(replace(record, held=held), ticket, barrier, tasks, now)

    return contribute


def _one_state_for_all(original: Any) -> Any:
    def select(self: TaskStates, task: Any) -> Any:
        original(self, task)
        return self.states[min(self.states)]

    return select


def _newest_only(original: Any) -> Any:
    def forget(self: RegionCoordinator, books: Any, record: Any) -> None:
        original(self, books, replace(record, complete=record.complete[-1:]))

    return forget


def _roots_only(_original: Any) -> Any:
    def in_use(manifests: Any, record: Any) -> frozenset[str]:
        cuts = [*(cut for one in manifests for cut in one.tasks), *record.tasks, *record.handed.values()]
        return frozenset(cut.state.digest for cut in cuts)

    return in_use


def _epoch_of_ours_kept(original: Any) -> Any:
    """A member that was granted a reset goes on as if it had gone back."""

    def went_back(self: RegionMember, event: ev.WentBack) -> None:
        before = self.offsets.positions()
        original(self, event)
        self.offsets.place(before)

    return went_back


def _without_epochs(original: Any) -> Any:
    def assigned(self: RegionDriver, event: Any) -> Any:
        starts = original(self, event)
        return starts and {one: at.offset for one, at in starts.items()}

    return assigned


def _sought_without_epoch(original: Any) -> Any:
    return lambda self, partition, offset, **_epoch: original(self, partition, offset)


def _effects_of_the_copy(original: Any) -> Any:
    def without(*args: Any) -> Any:
        record, gone, manifest = original(*args)
        if manifest is not None:
            manifest = replace(manifest, tasks=tuple(replace(one, effects_of=None) for one in manifest.tasks))
        return record, gone, manifest

    return without


def _last_left_out(original: Any) -> Any:
    def begin(record: Any, *args: Any) -> Any:
        begun = original(record, *args)
        if begun.barrier is None or begun.barrier == record.barrier or len(begun.barrier.members) == 1:
            return begun
        return replace(begun, barrier=replace(begun.barrier, members=begun.barrier.members[:-1]))

    return begin


def _commit_must_settle(original: Any) -> Any:
    def settled(self: RegionMember, event: ev.RegionCommitSettled) -> None:
        original(self, event)
        if event.error is not None:
            self._give_up(RegionError("the commit failed"))

    return settled


MUTANTS: dict[str, list[Mutant]] = {
    "an assignment drops leader epochs": [(RegionDriver, "on_assigned", _without_epochs)],
    "a log that ends before the checkpoint is not noticed": [
        (region_driver, "check_log", lambda _: lambda *_args, **_kwargs: {}),
        (RegionDriver, "on_gap", nothing),
        (RegionDriver, "on_assigned", _without_epochs),
        (SimConsumer, "seek", _sought_without_epoch),
    ],
    "a topic that was created again is not noticed": [(Lineage, "check", nothing)],
    "effects come again after a topic is forgotten": [(coordinator_rules, "without", _effects_of_the_copy)],
    "nothing is committed": [(RegionDriver, "_commit", nothing)],
    "a member is left out of a checkpoint": [(coordinator_rules, "begin_checkpoint", _last_left_out)],
    "states that nothing needs stay": [(RegionCoordinator, "_forget_states", nothing)],
    "one failed request ends a member": [(region_member, "REQUEST_ATTEMPTS", lambda _: 1)],
    "a commit without a response ends a member": [(RegionMember, "_on_commit_settled", _commit_must_settle)],
    "the queue is not cleared": [(RecordBuffer, "clear", nothing)],
    "a reset does not seek": [(SimConsumer, "seek", nothing)],
    "a reset does not restore": [(world_history.SimHistory, "restore", nothing)],
    "a reset does not begin with a new state": [(world_history.SimHistory, "reset_initial", nothing)],
    "a reset seeks to the initial offsets": [(RegionCoordinator, "go_back", _at_the_initial)],
    "an assignment seeks to the initial offsets": [(RegionCoordinator, "take", _at_the_initial)],
    "offsets are one too high": [(OffsetManager, "positions", _shifted(1))],
    "offsets are one too low": [(OffsetManager, "positions", _shifted(-1))],
    "advancing by one too many": [(OffsetManager, "advance", _one_too_many)],
    "advancing not at all": [(OffsetManager, "advance", _never_counted)],
    "records are handed out in any phase": [(RegionMember, "take", _take_in_any_phase)],
    "a poll is queued twice": [(RegionMember, "_on_polled", _queued_twice)],
    "the last record of a poll is dropped": [(RegionMember, "_on_polled", _last_dropped)],
    "the drain buffer is forgotten": [(RecordBuffer, "bring_back", _drained_forgotten)],
    "the drain buffer comes back backwards": [(RecordBuffer, "bring_back", _drained_backwards)],
    "a newer epoch is not followed": [(RegionMember, "_follow", nothing)],
    "a reset keeps the offsets": [(RegionMember, "_on_went_back", _epoch_of_ours_kept)],
    "committed when contributed": [(RegionMember, "_on_contributed", _commit_when_contributed)],
    "what came after the cut is in its snapshot": [(TaskStates, "contribution", _cut_when_contributed)],
    "what came after the cut is committed": [(RegionMember, "_completed", _commit_what_came_since)],
    "committed one more": [(RegionDriver, "_commit", _commit_one_more)],
    "a snapshot lacks the last record": [(world_history.SimHistory, "snapshot", _snapshot_without_the_last)],
    "missing initial offsets are remembered as missing": [
        (RegionCoordinator, "watch", _initial_cached),
        (coordinator_rules, "put_initial", _initial_rewritten),
    ],
    "discovered partitions begin at their end": [(start_positions, "_by", _discovered_at_the_end)],
    "zombies are let in": [
        (RegionRecord, "member", _any_incarnation),
        (coordinator_rules, "register", _register_over_a_complete_barrier),
    ],
    "a barrier begins in any generation, and may lack partitions": [
        (coordinator_rules, "begin_checkpoint", _begin_halfway_covered),
        (coordinator_rules, "merged", _complete_uncovered),
        (RegionMember, "_meet", lambda original: _meets_any(original)),
        (coordinator_rules, "report", _keeps_the_barrier),
    ],
    "the first contribution completes": [(coordinator_rules, "contribute", _complete_with_the_first)],
    "effects of any owner are committed": [
        (SimSink, "take", _takes_nothing),
        (SimSink, "commit", _any_owner),
    ],
    "effects of a complete checkpoint are dropped": [(TaskStates, "_commit", nothing)],
    "effects are committed before the checkpoint is complete": [(TaskStates, "take_cut", _committed_at_once)],
    "effects that were collected survive a reset": [(TaskStates, "_forget", nothing)],
    "what another has started is contributed": [(coordinator_rules, "contribute", _held_by_anyone)],
    "a task is started without its state": [(TaskStates, "_restoring", lambda _: lambda *_args: iter(()))],
    "a state that an error cut short is taken for the whole": [(Arrival, "read", _read_as_far_as_it_goes)],
    "a state of one task is another's": [(TaskStates, "select", _one_state_for_all)],
    "states that older checkpoints need are deleted": [(RegionCoordinator, "_forget_states", _newest_only)],
    "blocks that checkpoints need are deleted": [(coordinator_rules, "in_use", _roots_only)],
    "a store that went back is not noticed": [
        (region_member, "check_memory", nothing),
        (region_driver, "check_witnesses", nothing),
    ],
    "a member that is gone is waited for": [(MemberRecord, "here", lambda _: lambda *_args: True)],
    "the newest checkpoint is retired": [(coordinator_rules, "retire", _newest_retired)],
    "a sequence is used again": [(coordinator_rules, "begin_checkpoint", _sequence_reused)],
}
"""name -> what is changed. A mutant of several changes takes away a defence and the one behind it."""


def _meets_any(original: Any) -> Any:
    def meet(self: RegionMember, view: Any) -> None:
        if view.barrier is not None:
            view = replace(view, barrier=replace(view.barrier, generation=self.generation))
        original(self, view)
        if self._barrier is not None and view.barrier is not None:
            self._barrier = view.barrier

    return meet


@contextmanager
def mutated(changes: list[Mutant]) -> Iterator[None]:
    """The code with these changes."""
    before = [(where, name, where.__dict__[name]) for where, name, _ in changes]
    handlers = dict(region_member._HANDLERS)
    try:
        for where, name, change in changes:
            original = where.__dict__[name]
            setattr(where, name, change(original))
            for event, handler in region_member._HANDLERS.items():
                if handler is original:
                    region_member._HANDLERS[event] = getattr(where, name)
        yield
    finally:
        for where, name, original in reversed(before):
            setattr(where, name, original)
        region_member._HANDLERS.update(handlers)


def caught(name: str, seeds: int, first: int = 0) -> str | None:
    """The message of the first seed that finds the mutant, from `first` on; None if none does."""
    with mutated(MUTANTS[name]):
        for seed in range(first, first + seeds):
            try:
                world.run(seed)
            except Violation as violation:
                return str(violation)
            except (TypeError, AttributeError, NameError):
                raise  # the mutant does not fit the code any more
            except Exception as error:
                return f"seed {seed}: {type(error).__name__}: {error}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=2000)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    missed = 0
    for name in given.names or MUTANTS:
        found = caught(name, given.seeds)
        missed += found is None
        print(f"{'MISSED ' if found is None else 'caught '} {name:55} {found or ''}", flush=True)
    print(f"{len(given.names or MUTANTS) - missed} caught, {missed} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
