"""Regions in a seeded world: any seed replays, none violates an invariant, and deliberate faults are found.

More of it by command: `python -m tests.consistent_region.test_region_simulation FIRST COUNT`, and the mutants by
`python -m tests.consistent_region.region_mutants`.
"""

import logging
import sys
from collections.abc import Iterator

import pytest

from tests.consistent_region.region_kafka import Violation
from tests.consistent_region.region_mutants import MUTANTS, caught
from tests.consistent_region.region_world import run

SEEDS, CHUNKS = 120, 8
# Those that the first few seeds find, so that a run of all tests stays short; the runner tries all of them.
QUICK = (
    "a reset does not seek",
    "a reset does not begin the state anew",
    "offsets are one too high",
    "offsets are one too low",
    "advancing by one too many",
    "advancing not at all",
    "the last record of a poll is dropped",
    "a snapshot lacks the last record",
    "the first contribution completes",
    "a sequence is used again",
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.proves(
    "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13", "I14", "A1", "A4", "A10", "B-41"
)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_history_violates_an_invariant(chunk: int) -> None:
    size = SEEDS // CHUNKS
    worlds = [run(seed) for seed in range(chunk * size, (chunk + 1) * size)]
    assert all(world.checkpoints >= 1 for world in worlds)
    assert sum(world.checkpoints for world in worlds) >= 3 * size
    assert sum(world.faults_done for world in worlds) >= 3 * size


def test_a_seed_replays_to_the_letter() -> None:
    first, again, other = run(7), run(7), run(8)
    assert first.trace == again.trace
    assert first.manifests == again.manifests
    assert first.trace != other.trace


@pytest.mark.parametrize("name", QUICK)
def test_a_deliberate_fault_is_found(name: str) -> None:
    assert name in MUTANTS
    assert caught(name, seeds=20) is not None


def test_the_mutants_leave_nothing_behind() -> None:
    before = run(3).trace
    caught("the queue is not cleared", seeds=1)
    assert run(3).trace == before


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    begin, count = int(sys.argv[1]), int(sys.argv[2])
    violated = 0
    for number in range(begin, begin + count):
        try:
            run(number)
        except Violation as violation:
            violated += 1
            print(violation, flush=True)
    print(f"{count} histories, {violated} violated")
    sys.exit(1 if violated else 0)
