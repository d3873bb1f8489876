"""Runs many histories on all processors, and resumes a stopped run.

    python -m kohort.testing.simulation --seeds 100000 --resume out/sim.jsonl

Every finished chunk of seeds is a line of the file. A run with the same file continues from there, if the code is
unchanged. Exits with 1 if any history violates an invariant.
"""

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from kohort import consistent_region
from kohort.common.named_tuple import NamedTuple
from kohort.testing.simulation import Simulation, Violation

CHUNK_SEEDS = 50


class Chunk(NamedTuple):
    """The results of seeds `first` to `first + seeds - 1`; the least of any history, and the sums of all."""

    first: int
    seeds: int
    members_least: int
    faults_least: int
    checkpoints_least: int
    faults: int
    checkpoints: int
    deaths: int
    resets: int
    events: dict[str, int]
    violations: tuple[str, ...]
    code: str


def chunk(requested: tuple[int, int, str]) -> Chunk:
    """Run them; a violation ends its history, not the chunk."""
    first, seeds, code = requested
    histories, violations = [], []
    for seed in range(first, first + seeds):
        try:
            histories.append(Simulation(seed).run())
        except Violation as violation:
            violations.append(str(violation))
        except Exception as error:
            violations.append(f"seed {seed}: {type(error).__name__}: {error}")
    return Chunk(
        first=first,
        seeds=seeds,
        members_least=min((one.members for one in histories), default=0),
        faults_least=min((one.faults for one in histories), default=0),
        checkpoints_least=min((one.checkpoints for one in histories), default=0),
        faults=sum(one.faults for one in histories),
        checkpoints=sum(one.checkpoints for one in histories),
        deaths=sum(one.deaths for one in histories),
        resets=sum(one.resets for one in histories),
        events=dict(sum((Counter(one.events) for one in histories), Counter())),
        violations=tuple(violations),
        code=code,
    )


def code_digest() -> str:
    """A digest of the code of the region and of the world it runs in."""
    digest = hashlib.sha256()
    folders = (Path(str(consistent_region.__file__)).parent, Path(__file__).parent)
    for path in sorted(path for folder in folders for path in folder.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def done_before(path: Path, code: str) -> list[Chunk]:
    """The file's chunks that were run with this code."""
    if not path.exists():
        return []
    rows = (json.loads(line) for line in path.read_text().splitlines() if line.endswith("}"))
    chunks = (Chunk(**{**row, "violations": tuple(row["violations"])}) for row in rows)
    return [one for one in chunks if one.code == code]


def set_up_worker() -> None:
    """Silences the region's log of its troubles, which are intended here. Ends this process with its parent."""
    logging.disable(logging.CRITICAL)
    if parent := multiprocessing.parent_process():
        # A parent that a signal ended cancels nothing, and its workers would run to the end of their seeds.
        threading.Thread(target=_end_after, args=(parent,), daemon=True).start()
    if sys.platform != "win32":
        os.nice(10)


def _end_after(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


def run_all(requested: list[tuple[int, int, str]], workers: int) -> Iterator[Chunk]:
    """In any order. Raises BrokenProcessPool if a worker ends before its time."""
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), set_up_worker)
    try:
        for one in as_completed([pool.submit(chunk, each) for each in requested]):
            yield one.result()
    finally:
        pool.shutdown(cancel_futures=True)


def main() -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m kohort.testing.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--resume", type=Path)
    given = parser.parse_args()
    code = code_digest()
    before = done_before(given.resume, code) if given.resume else []
    known = {one.first: one for one in before}
    requested = [
        (first, min(CHUNK_SEEDS, given.first + given.seeds - first), code)
        for first in range(given.first, given.first + given.seeds, CHUNK_SEEDS)
    ]
    found = [known[first] for first, seeds, _ in requested if first in known and known[first].seeds == seeds]
    left = [one for one in requested if one[0] not in {each.first for each in found}]
    begun_at = time.monotonic()
    print(f"code {code}: {sum(one.seeds for one in found)} histories known, {sum(one[1] for one in left)} to run")
    if given.resume:
        given.resume.parent.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(run_all(left, given.workers), start=1):
        found.append(one)
        if given.resume:
            with given.resume.open("a") as file:
                file.write(json.dumps(one._asdict()) + "\n")
        for violation in one.violations:
            print(violation, flush=True)
        if number % 50 == 0:
            rate = sum(each.seeds for each in found[-number:]) / (time.monotonic() - begun_at)
            print(f"{sum(each.seeds for each in found)} histories, {rate:.0f} a second", flush=True)
    violated = sum(len(one.violations) for one in found)
    print(
        f"{sum(one.seeds for one in found)} histories, {violated} violated; each at least "
        f"{min(one.members_least for one in found)} members, {min(one.faults_least for one in found)} faults, "
        f"{min(one.checkpoints_least for one in found)} checkpoints; in all {sum(one.faults for one in found)} faults, "
        f"{sum(one.checkpoints for one in found)} checkpoints, {sum(one.deaths for one in found)} deaths of processes, "
        f"{sum(one.resets for one in found)} resets"
    )
    for event, times in sorted(sum((Counter(one.events) for one in found), Counter()).items()):
        print(f"{event:24}{times:>12}")
    return 1 if violated else 0
