"""One mutant in a copy of the checkout: which test killed it, if any."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.mutation.mutants import Mutant
from tests.mutation.picking import KillerMap, environment
from tests.mutation.warm import MEMORY_KIB, Unfit, Warm

_NOT_COPIED = shutil.ignore_patterns(
    ".git", "out", ".venv", "build", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis", "*.c"
)


class Verdict(NamedTuple):
    """`outcome`: killed, timed out (or out of memory), or survived. `by`: the test, or what else ended the run."""

    outcome: str
    by: str = ""
    seconds: float = 0.0


class HarnessBroke(Exception):
    """pytest could not be run as intended, which says nothing about a mutant."""


def copy_tree(root: Path, target: Path) -> Path:
    """A copy of the checkout, with what is compiled."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root, target, symlinks=True, ignore=_NOT_COPIED)
    return target


def judge(
    tree: Path, mutant: Mutant, tests: KillerMap, *, everything: bool, mutated: bool = True, warm: Warm | None = None
) -> Verdict:
    """Try the likely killers, then the others. With `mutated=False` the likely ones try the source as it is: a control.

    `warm` runs what does not run on import; without it each mutant has a pytest of its own.
    """
    path = tree / mutant.path
    original = path.read_text()
    changed = mutant.of(original) if mutated else original
    began = time.monotonic()
    try:
        path.write_text(changed)
        if tests.runs_on_import(mutant):
            warm = None
        for chosen in tests.order(mutant, everything=everything)[: 2 if mutated else 1]:
            verdict = Verdict("survived")
            if chosen and warm is not None:
                try:
                    limits_s = [_limit_s(tests.seconds[test]) for test in chosen]
                    outcome, by = warm.run(path, original, changed, chosen, limits_s)
                    verdict = Verdict(outcome, by)
                except Unfit:
                    warm = None
            if chosen and warm is None:
                verdict = _run(tree, chosen, tests)
            if verdict.outcome != "survived":
                break
    finally:
        path.write_text(original)
    return verdict._replace(seconds=round(time.monotonic() - began, 1))


def _limit_s(usual_s: float) -> float:
    return max(15, 5 * usual_s)


def _run(tree: Path, chosen: Sequence[str], tests: KillerMap) -> Verdict:
    seconds = [tests.seconds[test] for test in chosen]
    (tree / "chosen.json").write_text(json.dumps(chosen))
    files = sorted({test.split("::")[0] for test in chosen})
    command = [
        sys.executable,
        "-B",
        "-m",
        "pytest",
        *files,
        "-x",
        "-q",
        "-n",
        "0",
        "-m",
        "not broker",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.mutation.plugin",
        "--chosen",
        "chosen.json",
        "--tb=line",
        "--durations=0",
        "--durations-min=1000",
        "-o",
        f"timeout={_limit_s(max(seconds)):.0f}",
    ]
    limited = ["bash", "-c", f'ulimit -v {MEMORY_KIB}; exec "$@"', "pytest", *command]
    with subprocess.Popen(
        limited,
        cwd=tree,
        env=environment(tree),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    ) as running:
        try:
            output, _ = running.communicate(timeout=150 + 5 * sum(seconds))
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            return Verdict("timed out", "the whole run")
        finally:
            _end_children(running.pid)
    return _verdict(running.returncode, output)


def _end_children(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _verdict(code: int, output: str) -> Verdict:
    if code == 0:
        return Verdict("survived")
    if "+ Timeout +" in output or "Failed: Timeout" in output:
        return Verdict("timed out", "a test")
    if "MemoryError" in output:
        return Verdict("timed out", f"memory of {MEMORY_KIB >> 20} GiB")
    if found := re.search(r"^(?:FAILED|ERROR) (tests/\S+\.py(?:::.*?)?)(?: - .*)?$", output, re.MULTILINE):
        return Verdict("killed", found[1])
    if code < 0 or code > 128 or "ImportError while loading conftest" in output or "Fatal Python error" in output:
        return Verdict("killed", "the interpreter or the import of conftest")
    raise HarnessBroke(f"pytest ended with {code}:\n{output[-3000:]}")
