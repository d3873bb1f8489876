"""Regions in a seeded world: any seed replays, none violates an invariant, and deliberate faults are found.

More of it by command: `make sim SEEDS=100000` and `make mutants`.
"""

import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kohort.consistent_region import DictState
from kohort.consistent_region.errors import ConfigurationError
from kohort.consistent_region.offsets import Positions
from kohort.testing import Simulation
from kohort.testing.simulation import SimRecord, runner
from kohort.testing.simulation.world import run
from tests.consistent_region.region_mutants import MUTANTS, caught, mutated

SEEDS, CHUNKS = 80, 4
# Those that few seeds find, so that a run of all tests stays short; the runner tries all of them.
QUICK = (
    "a reset does not seek",
    "a reset does not begin with a new state",
    "offsets are one too high",
    "offsets are one too low",
    "advancing by one too many",
    "advancing not at all",
    "the last record of a poll is dropped",
    "a snapshot lacks the last record",
    "the first contribution completes",
    "a sequence is used again",
    "effects of a complete checkpoint are dropped",
    "effects that were collected survive a reset",
    "a task is started without its state",
    "a state of one task is another's",
    "nothing is committed",
    "a member is left out of a checkpoint",
    "states that nothing needs stay",
    "one failed request ends a member",
    "a commit without a response ends a member",
)
# The first seed of a few that find a fault whose event is rare.
FOUND_FROM = {
    "an assignment drops leader epochs": 95,
    "a topic that was created again is not noticed": 0,
    "effects come again after a topic is forgotten": 15,
    "a log that ends before the checkpoint is not noticed": 15,
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.proves(
    "I1",
    "I2",
    "I3",
    "I4",
    "I5",
    "I6",
    "I7",
    "I8",
    "I9",
    "I10",
    "I11",
    "I12",
    "I13",
    "I14",
    "I15",
    "I16",
    "I17",
    "I18",
    "I19",
    "I20",
    "I21",
    "I22",
    "A1",
    "A4",
    "A10",
    "B-41",
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


@pytest.mark.parametrize(("name", "first"), FOUND_FROM.items())
def test_a_deliberate_fault_of_a_rare_event_is_found(name: str, first: int) -> None:
    assert caught(name, seeds=10, first=first) is not None


def test_the_mutants_leave_nothing_behind() -> None:
    before = run(3).trace
    caught("the queue is not cleared", seeds=1)
    assert run(3).trace == before


def test_a_state_of_ones_own_is_tried_in_the_same_world() -> None:
    def count(record: Any, state: DictState) -> None:
        key = record.key.decode()
        state[key] = state.get(key, 0) + 1

    def verify(states: Mapping[str, bytes], records: Sequence[SimRecord]) -> None:
        totals: Counter[str] = Counter()
        for one in states.values():
            totals.update(json.loads(one))
        assert totals == Counter(record.key.decode() for record in records)

    histories = [Simulation(seed, state=DictState, handler=count, verify=verify).run() for seed in range(10)]
    assert all(one.checkpoints >= 3 and one.faults >= 5 and one.members >= 3 for one in histories)

    class Forgetful(DictState):
        def restore(self, snapshot: bytes, offsets: Positions) -> None:
            """Counts made after the checkpoint stay."""

    def until_found() -> None:
        for seed in range(20):
            Simulation(seed, state=Forgetful, handler=count, verify=verify).run()

    with pytest.raises(AssertionError):
        until_found()
    with pytest.raises(ConfigurationError):
        Simulation(1, state=DictState)


def test_the_runner_goes_on_where_it_stopped_and_reports_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "CHUNK_SEEDS", 2)
    monkeypatch.setattr(runner, "run_all", lambda requested, _workers: map(runner.chunk, requested))
    given = ["sim", "--seeds", "4", "--resume", str(tmp_path / "sim.jsonl")]
    monkeypatch.setattr("sys.argv", given)
    assert runner.main() == 0
    first = capsys.readouterr().out
    assert "0 histories known, 4 to run" in first
    assert "4 histories, 0 violated" in first
    assert runner.main() == 0
    again = capsys.readouterr().out
    assert "4 histories known, 0 to run" in again
    assert first.splitlines()[1:] == again.splitlines()[1:]
    assert "graceful stop" in again
    monkeypatch.setattr(runner, "code_digest", lambda: "changed")
    with mutated(MUTANTS["advancing not at all"]):
        assert runner.main() == 1
    assert "0 histories known, 4 to run" in capsys.readouterr().out


ENDED_BY_A_SIGNAL = """
import os
import signal
from kohort.testing.simulation import runner

found = runner.run_all([(seed, 1, "") for seed in range(1, 1000)], 2)
next(found)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_worker_processes_end_with_their_parent() -> None:
    # The workers have its output, too, and the end of the output is waited for.
    ended = subprocess.run([sys.executable, "-c", ENDED_BY_A_SIGNAL], stdout=subprocess.PIPE, timeout=60, check=False)
    assert ended.returncode == -9
