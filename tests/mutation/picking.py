"""The tests that run a line, likely killers first. One run of all tests records which lines each test runs."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutation.mutants import Mutant, sources
from tests.mutation.scope import SOURCES, TESTS

FIRST = 16
_STARTS_PROCESSES = ("subprocess", "multiprocessing", "sys.executable")


class BaselineFailed(Exception):
    """The tests fail, or cannot be run, without any mutant."""


def fingerprint_of_sources(root: Path) -> str:
    """Changes with every source that mutants are made of."""
    return _digest(root, [root / path for path in sources(root)])


def fingerprint_of_tests(root: Path) -> str:
    """Changes with every file below the folders of tests."""
    return _digest(root, [path for folder in TESTS for path in sorted((root / folder).rglob("*.py"))])


def _digest(root: Path, paths: Iterable[Path]) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for path in paths:
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@dataclass(frozen=True)
class KillerMap:
    """`lines`: by source and line the tests that run it. `seconds`: of each test. `in_processes`: test files that start
    processes, whose lines are not known."""

    lines: Mapping[str, Mapping[int, Sequence[str]]]
    seconds: Mapping[str, float]
    in_processes: frozenset[str]

    def order(self, mutant: Mutant, *, everything: bool) -> tuple[list[str], list[str]]:
        """The likely killers, and the others that may kill; with `everything` the others are all tests.

        A test that runs no line of the statement and starts no process cannot kill, unless the statement runs on
        import: then any test may. Of each test function one set of parameters comes first; tests whose file is named
        like the source, that run few lines and are quick come before others.
        """
        first, last = mutant.lines
        covering = {test for number in range(first, last + 1) for test in self.lines[mutant.path].get(number, ())}
        on_import = mutant.at_import or "" in covering
        covering.discard("")
        others = {test for test in self.seconds if test.split("::")[0] in self.in_processes}
        near = covering or {test for tests in self.lines[mutant.path].values() for test in tests if test}
        likely = self._by_function(sorted(near, key=lambda test: self._rank(mutant, test)))
        rest = set(self.seconds) if everything or on_import else covering | others
        chosen = likely[:FIRST]
        left = [test for test in likely[FIRST:] if test in rest]
        return chosen, [*left, *sorted(rest - set(likely), key=lambda test: self.seconds[test])]

    def _rank(self, mutant: Mutant, test: str) -> tuple[object, ...]:
        stem = Path(mutant.path).stem.removesuffix("_py")
        named = stem in Path(test.split("::")[0]).stem
        return self.seconds[test] > 1, not named, self._breadth[test] * (0.05 + self.seconds[test]), test

    @property
    def _breadth(self) -> Mapping[str, int]:
        found: dict[str, int] | None = self.__dict__.get("_counted")
        if found is None:
            found = {}
            for by_line in self.lines.values():
                for tests in by_line.values():
                    for test in tests:
                        found[test] = found.get(test, 0) + 1
            self.__dict__["_counted"] = found
        return found

    @staticmethod
    def _by_function(tests: Iterable[str]) -> list[str]:
        first: dict[str, str] = {}
        later: list[str] = []
        for test in tests:
            function = test.split("[")[0]
            if function in first:
                later.append(test)
            else:
                first[function] = test
        return [*first.values(), *later]


def killer_map(root: Path, out: Path) -> KillerMap:
    """The map of the tests below `root`; made anew where sources or tests have changed since the last."""
    kept = out / f"map-{fingerprint_of_sources(root)}-{fingerprint_of_tests(root)}.json"
    if not kept.exists():
        kept.write_text(json.dumps(_record(root, out)))
    found = json.loads(kept.read_text())
    lines = {path: {int(line): tests for line, tests in by_line.items()} for path, by_line in found["lines"].items()}
    files = {test.split("::")[0] for test in found["seconds"]}
    return KillerMap(
        lines,
        found["seconds"],
        frozenset(path for path in files if any(word in (root / path).read_text() for word in _STARTS_PROCESSES)),
    )


def _record(root: Path, out: Path) -> dict[str, Any]:
    import coverage

    data, durations, settings = out / "coverage.db", out / "durations.json", out / "coverage.rc"
    included = ",".join(str(root / pattern) for pattern in SOURCES)
    settings.write_text(f"[run]\ndata_file = {data}\ninclude = {included}\n")
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", *TESTS, "-m", "not broker", "-n", "2", "-q", "-p", "no:cacheprovider",
         "-p", "tests.mutation.plugin", "--durations-to", str(durations), "--cov", f"--cov-config={settings}",
         "--cov-context=test", "--cov-report="],
        cwd=root, env=environment(root), check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise BaselineFailed(f"pytest ended with {done.returncode} before any mutant")
    covered = coverage.CoverageData(str(data))
    covered.read()
    lines: dict[str, dict[int, list[str]]] = {}
    for path in sources(root):
        by_line = covered.contexts_by_lineno(str((root / path).resolve()))
        lines[path] = {line: sorted({each.rpartition("|")[0] for each in tests}) for line, tests in by_line.items()}
    if not any(lines.values()):
        raise BaselineFailed("no line of the sources was seen to run")
    return {"lines": lines, "seconds": json.loads(durations.read_text())}


def environment(root: Path) -> dict[str, str]:
    """For tests below `root`, which import the sources there."""
    return {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
