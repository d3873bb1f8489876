"""The tests that run a line, likely killers first. One run of all tests records which lines each test runs."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutation.mutants import Mutant, sources
from tests.mutation.scope import SOURCES, TESTS

FIRST = 16
FILES_AT_ONCE = 16
FAILURES, NO_TESTS = 1, 5  # pytest's exit codes
_STARTS_PROCESSES = ("subprocess", "multiprocessing", "sys.executable")


class BaselineFailed(Exception):
    """The tests cannot be run without any mutant."""


def fingerprint_of_sources(root: Path) -> str:
    """Changes with every source that mutants are made of."""
    return _digest(root, [root / path for path in sources(root)])


def fingerprint_of_tests(root: Path) -> str:
    """Changes with every file below the folders of tests."""
    return _digest(root, _files(root))


def _files(root: Path) -> list[Path]:
    return [path for folder in TESTS for path in sorted((root / folder).rglob("*.py"))]


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

    def runs_on_import(self, mutant: Mutant) -> bool:
        return mutant.at_import or "" in self._covering(mutant)

    def _covering(self, mutant: Mutant) -> set[str]:
        first, last = mutant.lines
        return {test for number in range(first, last + 1) for test in self.lines[mutant.path].get(number, ())}

    def order(self, mutant: Mutant, *, everything: bool) -> tuple[list[str], list[str]]:
        """The likely killers, and the others that may kill; with `everything` the others are all tests.

        A test that runs no line of the statement and starts no process cannot kill, unless the statement runs on
        import: then any test may. Of each test function one set of parameters comes first. Tests in a file named
        like the source come before others, as do quick tests and those that run few lines.
        """
        covering = self._covering(mutant) - {""}
        others = {test for test in self.seconds if test.split("::")[0] in self.in_processes}
        near = covering or {test for tests in self.lines[mutant.path].values() for test in tests if test}
        likely = self._by_function(sorted(near, key=lambda test: self._rank(mutant, test)))
        rest = set(self.seconds) if everything or self.runs_on_import(mutant) else covering | others
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
    """The map of the tests below `root`. Files of tests that have changed since the last map are recorded again.

    If a source or a helper of tests has changed, all are."""
    digests = {str(path.relative_to(root)): _digest(root, [path]) for path in _files(root) if _has_tests(path)}
    helpers = _digest(root, [path for path in _files(root) if not _has_tests(path)])
    kept = out / f"map-{fingerprint_of_sources(root)}-{helpers}.json"
    known = json.loads(kept.read_text()) if kept.exists() else {"digests": {}, "lines": {}, "seconds": {}}
    if known["digests"] != digests:
        same = {path: digest for path, digest in digests.items() if known["digests"].get(path) == digest}
        known = {**_merged(known, {"lines": {}, "seconds": {}}, same), "digests": same}
        changed = sorted(digests.keys() - same.keys())
        for files in (changed[at : at + FILES_AT_ONCE] for at in range(0, len(changed), FILES_AT_ONCE)):
            same |= {path: digests[path] for path in files}
            known = {**_merged(known, _record(root, out, files), same), "digests": same}
            kept.write_text(json.dumps(known))  # an end in the middle costs the files at once only
    lines = {path: {int(line): tests for line, tests in by_line.items()} for path, by_line in known["lines"].items()}
    return KillerMap(
        lines,
        known["seconds"],
        frozenset(path for path in digests if any(word in (root / path).read_text() for word in _STARTS_PROCESSES)),
    )


def _has_tests(path: Path) -> bool:
    return path.name.startswith("test_")


def _merged(known: dict[str, Any], fresh: dict[str, Any], same: Collection[str]) -> dict[str, Any]:
    """`fresh`, and of `known` the results from the files in `same`."""
    lines: dict[str, dict[str, set[str]]] = {path: {} for each in (known, fresh) for path in each["lines"]}
    for each in (known, fresh):
        for path, by_line in each["lines"].items():
            for line, tests in by_line.items():
                kept = {test for test in tests if each is fresh or not test or test.split("::")[0] in same}
                lines[path].setdefault(str(line), set()).update(kept)
    seconds = {test: took for test, took in known["seconds"].items() if test.split("::")[0] in same}
    sorted_lines = {path: {line: sorted(tests) for line, tests in by_line.items()} for path, by_line in lines.items()}
    return {"lines": sorted_lines, "seconds": {**seconds, **fresh["seconds"]}}


def _record(root: Path, out: Path, files: Sequence[str]) -> dict[str, Any]:
    import coverage

    data, durations, settings = out / "coverage.db", out / "durations.json", out / "coverage.rc"
    included = ",".join(str(root / pattern) for pattern in SOURCES)
    settings.write_text(f"[run]\ndata_file = {data}\ninclude = {included}\n")
    durations.unlink(missing_ok=True)
    done = subprocess.run(
        [
            sys.executable,
            "-B",
            "-m",
            "pytest",
            *files,
            "-m",
            "not broker",
            "-n",
            "2",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.mutation.plugin",
            "--durations-to",
            str(durations),
            "--cov",
            f"--cov-config={settings}",
            "--cov-context=test",
            "--cov-report=",
            "-o",
            "timeout=600",
        ],
        cwd=root,
        env=environment(root),
        check=False,
    )
    if done.returncode not in (0, FAILURES, NO_TESTS):  # files of broker tests only have none
        raise BaselineFailed(f"pytest ended with {done.returncode} before any mutant")
    seconds: dict[str, float] = json.loads(durations.read_text())  # without tests that fail, which kill nothing
    covered = coverage.CoverageData(str(data))
    covered.read()
    lines: dict[str, dict[int, list[str]]] = {path: {} for path in sources(root)}
    for path in lines:
        by_line = covered.contexts_by_lineno(str((root / path).resolve()))
        for line, contexts in by_line.items():
            tests = {context.rpartition("|")[0] for context in contexts}
            lines[path][line] = sorted(test for test in tests if not test or test in seconds)
    if done.returncode != NO_TESTS and not any(lines.values()):
        raise BaselineFailed("no line of the sources was seen to run")
    return {"lines": lines, "seconds": seconds}


def environment(root: Path) -> dict[str, str]:
    """For tests below `root`, which import the sources there."""
    return {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
