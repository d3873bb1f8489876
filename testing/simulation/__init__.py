"""A seeded simulation of consistent regions, which runs the region's own code and the user's state.

    def count(record, state):
        key = record.key.decode()
        state[key] = state.get(key, 0) + 1

    def verify(states, records):  # the states by task
        totals = sum((Counter(json.loads(one)) for one in states.values()), Counter())
        assert totals == Counter(record.key.decode() for record in records)

    for seed in range(1000):
        Simulation(seed, state=DictState, handler=count, verify=verify).run()

Processes of members are killed (also inside the handler, the store's transaction and a sink's commit), stopped,
isolated, started twice, or never restarted. They leave in order, and each has a name of its own. The store rejects
calls, or loses responses. A sink refuses commits. Operators go back to checkpoints, and delete some. Partitions are
added. The store is lost, or replaced by an older copy, and brought back. Its clock jumps, and members' clocks differ.
Logs are truncated, and the topic is deleted and created again. Requests to brokers fail, and commits come late.
All steps are interleaved.
Everything, including time, follows from the seed, so a seed always gives the same run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kohort.consistent_region.errors import ConfigurationError
from kohort.consistent_region.state import StateHandle
from kohort.testing.simulation.kafka import SimRecord as SimRecord
from kohort.testing.simulation.kafka import Violation as Violation
from kohort.testing.simulation.world import UnderTest, run


@dataclass(frozen=True, slots=True)
class History:
    """The outcome of a run: `faults` that were injected, complete `checkpoints`, `deaths` of processes, `resets` of the
    region.

    `virtual_s` is the duration. `trace` is a digest of every event in order. `events`: the number of each other kind.
    """

    seed: int
    members: int
    partitions: int
    faults: int
    checkpoints: int
    deaths: int
    resets: int
    virtual_s: float
    trace: str
    events: Mapping[str, int]


class Simulation:
    """One history of a region of three or four members, from `seed`.

    `state`, `handler`, `verify` (all or none): a `StateHandle`'s constructor, the function called with each record, and
    the check at every complete checkpoint. `verify(states, records)` gets the snapshot of each task, and the records
    that all of them together must have, each exactly once. `steps`: the duration of the faults, some 30 virtual ms
    each, by default 60 to 400 by the seed. `hand_over`: True selects COOPERATIVE assignment, and tasks move without a
    reset. By default odd seeds do. `batch_records`: the handler gets batches, as in `ConsistentRegion`, with `offsets`,
    `keys`, `values` and `timestamps_ms` as lists.

    The invariants I1 to I22 are checked after every step in any case.
    """

    def __init__(
        self,
        seed: int,
        *,
        state: Callable[[], StateHandle] | None = None,
        handler: Callable[[Any, Any], object] | None = None,
        verify: Callable[[Mapping[str, bytes], Sequence[SimRecord]], object] | None = None,
        steps: int | None = None,
        hand_over: bool | None = None,
        batch_records: int | None = None,
    ) -> None:
        self.seed = seed
        self.hand_over = hand_over
        self.steps = steps
        self._under_test: UnderTest | None = None
        if state is not None and handler is not None and verify is not None:
            self._under_test = UnderTest(state, handler, verify, batch_records)
        elif (state, handler, verify) != (None, None, None):
            raise ConfigurationError("state, handler and verify go together")

    def run(self) -> History:
        """Run the history. Raises Violation (with invariant, time and seed), and the exceptions of `verify`."""
        world = run(self.seed, self.steps, self._under_test, hand_over=self.hand_over)
        return History(
            seed=self.seed,
            members=len(world.nodes),
            partitions=len(world.log.offsets),
            faults=world.faults_done,
            checkpoints=world.checkpoints,
            deaths=world.deaths,
            resets=world.epochs,
            virtual_s=round(world.now - world.began_at, 3),
            trace=world.trace,
            events=world.events,
        )
