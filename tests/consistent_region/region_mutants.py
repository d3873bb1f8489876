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

from kohort.consistent_region import coordinator_rules, region_member, start_positions
from kohort.consistent_region import events as ev
from kohort.consistent_region.coordinator import RegionCoordinator, Return
from kohort.consistent_region.offsets import OffsetManager, SeekMap
from kohort.consistent_region.region_driver import RegionDriver
from kohort.consistent_region.region_member import RegionMember
from kohort.consistent_region.region_record import MemberRecord
from kohort.consistent_region.states import READING, RegionPhase, RegionState
from kohort.testing.simulation import history as world_history
from kohort.testing.simulation import world
from kohort.testing.simulation.kafka import SimConsumer, Violation

Mutant = tuple[Any, str, Callable[[Any], Any]]


def nothing(_original: Any) -> Any:
    return lambda *_args, **_kwargs: None


def _take_in_any_phase(original: Any) -> Any:
    def take(self: RegionMember, now: float) -> object:
        phase, self._phase = self._phase, RegionPhase.OPEN
        try:
            return original(self, now)
        finally:
            self._phase = phase

    return take


def _shifted(by: int) -> Callable[[Any], Any]:
    def mutate(original: Any) -> Any:
        def positions(self: OffsetManager) -> object:
            found = original(self)
            return MappingProxyType({one: at._replace(offset=max(at.offset + by, 0)) for one, at in found.items()})

        return positions

    return mutate


def _go_back_to_the_initial(original: Any) -> Any:
    def go_back(self: RegionCoordinator, *args: Any) -> Return:
        back = original(self, *args)
        return Return(back.view, back.manifest, back.state, SeekMap(None, self.initial()))

    return go_back


def _seeks_to_the_initial(_original: Any) -> Any:
    return lambda self: SeekMap(None, self.initial())


def _initial_rewritten(_original: Any) -> Any:
    return lambda record, _ticket, positions: replace(record, initial=MappingProxyType({**record.initial, **positions}))


def _initial_cached(original: Any) -> Any:
    found: dict[int, Any] = {}
    return lambda self: found.setdefault(id(self.store), original(self))


def _any_incarnation(_original: Any) -> Any:
    return lambda record, ticket: record.members[ticket.member]


def _keeps_the_barrier(original: Any) -> Any:
    def changed(record: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(record, *args, **kwargs)
        after = result[0] if isinstance(result, tuple) else result
        after = replace(after, barrier=record.barrier, contributions=record.contributions, deadline=record.deadline)
        return (after, *result[1:]) if isinstance(result, tuple) else after

    return changed


def _register_over_a_complete_barrier(original: Any) -> Any:
    """The dead process's contribution counts on, and the new one is taken for a member of the epoch."""

    def register(record: Any, region: str, member: str) -> Any:
        before = record.members.get(member)
        result = _keeps_the_barrier(original)(record, region, member)
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
    def contribute(record: Any, ticket: Any, barrier: Any, part: Any, now: float, before: Any = None) -> Any:
        if record.barrier != barrier:
            return original(record, ticket, barrier, part, now, before)
        alone = replace(barrier, members=(ticket.member,))
        return original(replace(record, barrier=alone, contributions=(), initial={}), ticket, alone, part, now)

    return contribute


def _complete_uncovered(original: Any) -> Any:
    return lambda **values: original(**{**values, "ever_owned": ()})


def _begin_halfway_covered(original: Any) -> Any:
    """Neither generations nor missing partitions are checked."""
    return _begin_whoever(generation=-1, owned=99)(original)


def _first_life_always(original: Any) -> Any:
    return lambda self, event: original(self, ev.Registered(event.view, False))


def _commit_when_contributed(original: Any) -> Any:
    def contributed(self: RegionMember, event: ev.Contributed) -> None:
        self._owe_commit()
        original(self, event)

    return contributed


def _commit_one_more(original: Any) -> Any:
    return lambda self, positions: original(
        self, {one: at._replace(offset=at.offset + 1) for one, at in positions.items()}
    )


def _drained_forgotten(original: Any) -> Any:
    def end_phase(self: RegionMember) -> None:
        self._drained.clear()
        original(self)

    return end_phase


def _drained_backwards(original: Any) -> Any:
    def end_phase(self: RegionMember) -> None:
        self._drained.reverse()
        original(self)

    return end_phase


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
    return lambda self, event: original(self, ev.RecordsPolled([*event.records, *event.records]))


def _last_dropped(original: Any) -> Any:
    return lambda self, event: original(self, ev.RecordsPolled(list(event.records)[:-1] or event.records))


def _discovered_at_the_end(_original: Any) -> Any:
    def by(which: str, partitions: Any, ask: Any) -> dict[Any, int]:
        return dict(ask.end_offsets(partitions)) if partitions else {}

    return by


def _newest_retired(_original: Any) -> Any:
    return lambda record, up_to: (replace(record, complete=record.complete[:1]), record.complete[1:])


def _sequence_reused(original: Any) -> Any:
    def begin(record: Any, *args: Any) -> Any:
        begun = original(record, *args)
        return replace(begun, next_sequence=record.next_sequence)

    return begin


def _epoch_of_ours_kept(original: Any) -> Any:
    """A member that was granted a reset goes on as if it had gone back."""

    def went_back(self: RegionMember, event: ev.WentBack) -> None:
        before = self.offsets.positions()
        original(self, event)
        self.offsets.place(before)

    return went_back


def _forgets_what_it_read(self: RegionMember, _event: object) -> None:
    self._generation = -1
    self.offsets.register(())
    self._clear()
    if self._state in READING:
        self._state = RegionState.RESET_COMPLETE


MUTANTS: dict[str, list[Mutant]] = {
    "the queue is not cleared": [(RegionMember, "_clear", nothing)],
    "a reset does not seek": [(SimConsumer, "seek", nothing)],
    "a reset does not restore": [(world_history.SimHistory, "restore", nothing)],
    "a reset does not begin the state anew": [(world_history.SimHistory, "reset_initial", nothing)],
    "a reset seeks to the initial offsets": [(RegionCoordinator, "go_back", _go_back_to_the_initial)],
    "an assignment seeks to the initial offsets": [(RegionCoordinator, "seeks", _seeks_to_the_initial)],
    "offsets are one too high": [(OffsetManager, "positions", _shifted(1))],
    "offsets are one too low": [(OffsetManager, "positions", _shifted(-1))],
    "advancing by one too many": [(OffsetManager, "advance", _one_too_many)],
    "advancing not at all": [(OffsetManager, "advance", _never_counted)],
    "records are handed out in any phase": [(RegionMember, "take", _take_in_any_phase)],
    "a poll is queued twice": [(RegionMember, "_on_polled", _queued_twice)],
    "the last record of a poll is dropped": [(RegionMember, "_on_polled", _last_dropped)],
    "the drain buffer is forgotten": [(RegionMember, "_end_phase", _drained_forgotten)],
    "the drain buffer comes back backwards": [(RegionMember, "_end_phase", _drained_backwards)],
    "records read are no reason to reset": [(RegionMember, "_on_revoked", lambda _: _forgets_what_it_read)],
    "a loss is no reason to reset": [(RegionMember, "_on_lost", lambda _: _forgets_what_it_read)],
    "a newer epoch is not followed": [(RegionMember, "_follow", nothing)],
    "a relaunch is a first life": [(RegionMember, "_on_registered", _first_life_always)],
    "a reset keeps the offsets": [(RegionMember, "_on_went_back", _epoch_of_ours_kept)],
    "committed when contributed": [(RegionMember, "_on_contributed", _commit_when_contributed)],
    "committed one more": [(RegionDriver, "_commit", _commit_one_more)],
    "a snapshot lacks the last record": [(world_history.SimHistory, "snapshot", _snapshot_without_the_last)],
    "missing initial offsets are remembered as missing": [
        (RegionCoordinator, "initial", _initial_cached),
        (coordinator_rules, "put_initial", _initial_rewritten),
    ],
    "discovered partitions begin at their end": [(start_positions, "_by", _discovered_at_the_end)],
    "zombies are let in": [
        (coordinator_rules, "_known", _any_incarnation),
        (coordinator_rules, "register", _register_over_a_complete_barrier),
    ],
    "a barrier begins in any generation, and may lack partitions": [
        (coordinator_rules, "begin_checkpoint", _begin_halfway_covered),
        (coordinator_rules, "merged", _complete_uncovered),
        (RegionMember, "_meet", lambda original: _meets_any(original)),
        (coordinator_rules, "report", _keeps_the_barrier),
    ],
    "the first contribution completes": [(coordinator_rules, "contribute", _complete_with_the_first)],
    "the state of a member that is gone is forgotten": [(coordinator_rules, "_carried", lambda _: lambda *_args: ())],
    "a member that is gone is waited for": [(MemberRecord, "here", lambda _: lambda *_args: True)],
    "the newest checkpoint is retired": [(coordinator_rules, "retire", _newest_retired)],
    "a sequence is used again": [(coordinator_rules, "begin_checkpoint", _sequence_reused)],
}
"""name -> what is changed. A mutant of several changes takes away a defence and the one behind it."""


def _meets_any(original: Any) -> Any:
    def meet(self: RegionMember, view: Any) -> None:
        if view.barrier is not None:
            view = replace(view, barrier=replace(view.barrier, generation=self._generation))
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


def caught(name: str, seeds: int) -> str | None:
    """The message of the first seed that finds the mutant; None if none does."""
    with mutated(MUTANTS[name]):
        for seed in range(seeds):
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
