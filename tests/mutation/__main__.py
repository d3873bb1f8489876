"""Mutation testing: COUNT small faults drawn by SEED, and whether a test without a broker notices each.

    python -m tests.mutation --seed 1 --count 300      goes on where the same draw of the same sources stopped
    python -m tests.mutation --seed 1 --count 300 --everything    survivors have passed every test, not only those that
                                                       run the changed lines
    python -m tests.mutation --seed 1 --show 17        the diff of the 17th mutant of a draw

Exit codes: 0; 1 where a survivor is not explained in survivors.toml, or fewer than 92 % are killed.
"""

import argparse
import contextlib
import json
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import Queue
from typing import Any

from tests.mutation.mutants import Mutant, changed, diff, draw, within
from tests.mutation.picking import KillerMap, environment, fingerprint_of_sources, fingerprint_of_tests, killer_map
from tests.mutation.running import Verdict, copy_tree, judge
from tests.mutation.warm import Warm

ROOT = Path(__file__).parents[2]
OUT = ROOT / "out" / "mutation"
EXPLAINED = Path(__file__).with_name("survivors.toml")
LEAST = 0.92
KILLED = ("killed", "timed out")


def explanations() -> dict[tuple[str, str, str, str], str]:
    """By path, function and changed lines: why no test needs to fail."""
    rows = tomllib.loads(EXPLAINED.read_text()).get("survivor", ())
    return {(row["path"], row["within"], row["before"].strip(), row["after"].strip()): row["why"] for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once")
    parser.add_argument("--controls", type=int, default=5, help="mutants whose tests must first pass unmutated")
    parser.add_argument("--everything", action="store_true", help="survivors run every test of the folders")
    parser.add_argument("--show", type=int, help="print the mutant of this number, and run nothing")
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    drawn, sites, left_out = draw(ROOT, given.seed, max(given.count, given.show or 0))
    if given.show:
        print(_diff(drawn[given.show - 1]))
        return 0
    print(f"{len(drawn)} of {sites:,} sites drawn by seed {given.seed}", flush=True)
    trees = [copy_tree(ROOT, OUT / f"tree-{number}") for number in range(given.jobs)]
    tests = killer_map(trees[0], OUT)
    session = OUT / f"session-{given.seed}-{fingerprint_of_sources(ROOT)}.jsonl"
    done = _Session(session, fingerprint_of_tests(ROOT))
    explained = explanations()
    left = [mutant for mutant in drawn if not done.knows(mutant, given.everything, lambda one: _name(one) in explained)]
    if left:
        with contextlib.ExitStack() as ends:
            warm = {tree: ends.enter_context(contextlib.closing(Warm(tree, environment(tree)))) for tree in trees}
            likely = [mutant for mutant in drawn if not tests.runs_on_import(mutant)][: given.controls]
            _control(trees[0], likely, tests, warm[trees[0]])
            _run_all(warm, drawn, left, tests, done, everything=given.everything)
    return _report(drawn, done, left_out)


class _Session:
    """The results of a draw so far, a line for each mutant, written as it becomes known.

    A mutant that has been killed stays so. One that has survived is tried again once the tests have changed, unless it
    is explained.
    """

    def __init__(self, path: Path, tests: str) -> None:
        self._path = path
        self._tests = tests
        self._lock = threading.Lock()
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                row = json.loads(line)
                self.rows[_key(Mutant(**row["mutant"]))] = row

    def add(self, mutant: Mutant, verdict: Verdict, everything: bool) -> None:
        row = {"mutant": mutant._asdict(), **verdict._asdict(), "everything": everything, "tests": self._tests}
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
            self.rows[_key(mutant)] = row

    def knows(self, mutant: Mutant, everything: bool, is_explained: Callable[[Mutant], bool]) -> bool:
        row = self.rows.get(_key(mutant))
        if row is None or row["outcome"] in KILLED:
            return row is not None
        if row["everything"] >= everything and is_explained(mutant):
            return True
        return bool(row["tests"] == self._tests and row["everything"] >= everything)


def _key(mutant: Mutant) -> tuple[Any, ...]:
    return mutant.path, mutant.operator, mutant.occurrence


def _control(tree: Path, drawn: list[Mutant], tests: KillerMap, warm: Warm) -> None:
    for mutant in drawn:
        verdict = judge(tree, mutant, tests, everything=False, mutated=False, warm=warm)
        if verdict.outcome != "survived":
            sys.exit(f"control: the tests for {mutant.path}:{mutant.line} fail without a mutant: {verdict.by}")
    print(f"control: {len(drawn)} of {len(drawn)} runs without a mutant pass", flush=True)


def _run_all(
    warm: Mapping[Path, Warm],
    drawn: list[Mutant],
    left: list[Mutant],
    tests: KillerMap,
    done: _Session,
    *,
    everything: bool,
) -> None:
    free: Queue[Path] = Queue()
    for tree in warm:
        free.put(tree)

    def one(number: int, mutant: Mutant) -> str:
        tree = free.get()
        try:
            verdict = judge(tree, mutant, tests, everything=everything, warm=warm[tree])
        finally:
            free.put(tree)
        done.add(mutant, verdict, everything)
        place = f"{mutant.path}:{mutant.line}"
        return f"{number:4} {verdict.outcome:9} {verdict.seconds:6.1f} s  {place} {mutant.operator}  {verdict.by}"

    with ThreadPoolExecutor(len(warm)) as pool:
        running = [pool.submit(one, drawn.index(mutant) + 1, mutant) for mutant in left]
        try:
            for future in as_completed(running):
                print(future.result(), flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _report(drawn: list[Mutant], done: _Session, left_out: Counter[str]) -> int:
    explained = explanations()
    rows = [(number, mutant, done.rows[_key(mutant)]) for number, mutant in enumerate(drawn, 1)]
    counts = Counter(row["outcome"] for _, _, row in rows)
    survivors = [(number, mutant) for number, mutant, row in rows if row["outcome"] not in KILLED]
    reasons = {number: explained.get(_name(mutant)) for number, mutant in survivors}
    for number, mutant in survivors:
        print(f"\n{number}. {mutant.operator}: {reasons[number] or 'NOT EXPLAINED'}\n{_diff(mutant)}")
    needless = [_name(mutant) for _, mutant, row in rows if row["outcome"] in KILLED and _name(mutant) in explained]
    for path, _, before, _ in needless:
        print(f"\nkilled now, so survivors.toml need not explain it: {path}: {before}")
    killed = sum(counts[outcome] for outcome in KILLED)
    unexplained = sum(reason is None for reason in reasons.values())
    seconds = sum(row["seconds"] for *_, row in rows)
    print("\nnot drawn by rule: " + ", ".join(f"{count:,} {rule}" for rule, count in left_out.most_common()))
    print(f"\n| killed | timed out | survived, explained | survived, not explained |\n|{' --- |' * 4}")
    print(f"| {counts['killed']} | {counts['timed out']} | {len(survivors) - unexplained} | {unexplained} |")
    print(f"\n{seconds / 60:.0f} minutes, {seconds / max(len(rows), 1):.1f} s a mutant")
    print(
        f"{len(rows)} mutants, {killed} killed ({killed / max(len(rows), 1):.1%}), "
        f"{counts['timed out']} of them by a time limit, {unexplained} survivors not explained"
    )
    return int(unexplained > 0 or killed < LEAST * len(rows))


def _name(mutant: Mutant) -> tuple[str, str, str, str]:
    source = (ROOT / mutant.path).read_text()
    return (mutant.path, within(source, mutant.line), *changed(source, mutant.of(source)))


def _diff(mutant: Mutant) -> str:
    source = (ROOT / mutant.path).read_text()
    return diff(mutant.path, source, mutant.of(source))


if __name__ == "__main__":
    sys.exit(main())
