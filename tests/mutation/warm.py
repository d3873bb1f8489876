"""A pytest that has collected every test once, and forks a child for each mutant.

A child puts the mutated code into the functions that are there, so that nothing is imported or collected again. Code
that runs on import cannot be mutated so: `Unfit` is raised, and a fresh pytest has to run.
"""

import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

import pytest

from tests.mutation.scope import TESTS

MEMORY_KIB = 6 << 20


class Unfit(Exception):
    """The mutant changes no code of a function that exists in the warm process."""


class Warm:
    """The process. `run` is for one thread at a time."""

    def __init__(self, tree: Path, environment: Mapping[str, str], folders: Sequence[str] = TESTS) -> None:
        read_requests, self._requests = os.pipe()
        self._responses, write_responses = os.pipe()
        command = [
            sys.executable,
            "-B",
            "-m",
            "pytest",
            *folders,
            "-q",
            "-s",
            "-n",
            "0",
            "-m",
            "not broker",
            "--no-header",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.mutation.plugin",
            "--tb=line",
            "-o",
            "timeout=0",
            "--warm",
            f"{read_requests},{write_responses}",
        ]
        self.log = tree / "warm.log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", f'ulimit -v {MEMORY_KIB}; exec "$@"', "pytest", *command],
                cwd=tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                pass_fds=(read_requests, write_responses),
            )
        os.close(read_requests)
        os.close(write_responses)
        self._lines = os.fdopen(self._responses)

    def run(
        self, path: Path, before: str, after: str, chosen: Sequence[str], limits_s: Sequence[float]
    ) -> tuple[str, str]:
        """The outcome and the test that decided it. Raises Unfit, or EOFError where the process has ended."""
        request = {"path": str(path), "before": before, "after": after, "chosen": chosen, "limits_s": limits_s}
        with contextlib.suppress(BrokenPipeError):  # the end of the responses says so below
            _write(self._requests, json.dumps(request).encode() + b"\n")
        line = self._lines.readline()
        if not line:
            raise EOFError(f"the warm pytest has ended with {self._process.wait()}: {self.log.read_text()[-3000:]}")
        outcome, by = json.loads(line)
        if outcome == "unfit":
            raise Unfit
        return outcome, by

    def close(self) -> None:
        os.close(self._requests)
        self._process.wait()
        self._lines.close()


def serve(session: pytest.Session, requests: int, responses: int) -> None:
    """The loop of the warm process: a request is a line, and so is its response."""
    if threading.active_count() > 1:
        raise RuntimeError(f"a fork would lose threads: {threading.enumerate()}")
    items = {item.nodeid: item for item in session.items}
    gc.unfreeze()  # tests/conftest.py has frozen the functions of the product
    functions = _functions()
    gc.collect()
    gc.freeze()
    with os.fdopen(requests) as lines:
        for line in lines:
            request = json.loads(line)
            reads, writes = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reads)
                _child(session, [items[name] for name in request["chosen"]], request, functions, writes)
            os.close(writes)
            with contextlib.suppress(OSError):  # the child may do so first, or have ended
                os.setpgid(child, child)
            found = _watch(child, reads, request["chosen"], request["limits_s"])
            _write(responses, json.dumps(found).encode() + b"\n")


def _watch(child: int, reads: int, chosen: Sequence[str], limits_s: Sequence[float]) -> list[str]:
    """Read the lines of a child, one for each test that begins and one for its end; end it if a test takes long."""
    reported, running = b"", 0
    until = time.monotonic() + 30
    found: list[str] | None = None
    while found is None:
        if not select.select([reads], [], [], max(0.0, until - time.monotonic()))[0]:
            found = ["timed out", chosen[running]]
            break
        got = os.read(reads, 1 << 16)
        if not got:
            break
        *lines, reported = (reported + got).split(b"\n")
        for line in map(json.loads, lines):
            if isinstance(line, int):
                running, until = line, time.monotonic() + limits_s[line]
            else:
                found = line
    os.close(reads)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return found or ["killed", f"the interpreter, in {chosen[running]}"]


def _child(
    session: pytest.Session,
    items: Sequence[pytest.Item],
    request: Mapping[str, Any],
    functions: Mapping[str, Sequence[FunctionType]],
    writes: int,
) -> NoReturn:
    """Mutate, run `items` up to the first that fails, and end."""
    os.setpgid(0, 0)
    try:
        if request["before"] != request["after"] and not _swap(request, functions):
            found = ["unfit", ""]
        else:
            found = _run(session, items, writes)
    except BaseException as error:
        found = ["killed", f"{type(error).__name__} outside of a test"]
    _write(writes, json.dumps(found).encode() + b"\n")
    os._exit(0)


def _run(session: pytest.Session, items: Sequence[pytest.Item], writes: int) -> list[str]:
    failures = _Failures()
    session.config.pluginmanager.register(failures)
    for number, (item, following) in enumerate(zip(items, [*items[1:], None], strict=True)):
        _write(writes, f"{number}\n".encode())
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failures.texts:
            if any("MemoryError" in text for text in failures.texts):
                return ["timed out", f"memory of {MEMORY_KIB >> 20} GiB"]
            return ["killed", item.nodeid]
    return ["survived", ""]


class _Failures:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.texts.append(str(report.longrepr))


def _functions() -> Mapping[str, Sequence[FunctionType]]:
    """Every Python function that exists, by the real path of its source."""
    found: defaultdict[str, list[FunctionType]] = defaultdict(list)
    for thing in gc.get_objects():
        if type(thing) is FunctionType:
            found[thing.__code__.co_filename].append(thing)
    by_path: defaultdict[str, list[FunctionType]] = defaultdict(list)
    for name, functions in found.items():
        by_path[os.path.realpath(name)] += functions
    return by_path


def _swap(request: Mapping[str, Any], functions: Mapping[str, Sequence[FunctionType]]) -> bool:
    """Put the mutated code into the functions of a source; True if that changed any."""
    path = os.path.realpath(request["path"])
    there = functions.get(path, ())
    before, after = (_by_name(compile(request[key], path, "exec", dont_inherit=True)) for key in ("before", "after"))
    fresh: dict[tuple[Any, ...], tuple[CodeType, bool]] = {}
    for name, codes in before.items():
        if len(codes) == len(after.get(name, ())):
            for old, new in zip(codes, after[name], strict=True):
                fresh[_key(old)] = new, _shape(old) != _shape(new)
    changed = False
    for function in there:
        new, differs = fresh.get(_key(function.__code__), (function.__code__, False))
        if differs:
            if len(new.co_freevars) != len(function.__code__.co_freevars):
                return False
            function.__code__ = new.replace(co_filename=function.__code__.co_filename)
            changed = True
    return changed


def _by_name(module: CodeType) -> Mapping[str, Sequence[CodeType]]:
    found: defaultdict[str, list[CodeType]] = defaultdict(list)
    for code in _inside(module):
        found[code.co_qualname].append(code)
    return found


def _inside(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _inside(each)


def _key(code: CodeType) -> tuple[Any, ...]:
    return code.co_qualname, code.co_firstlineno, code.co_code


def _shape(code: CodeType) -> tuple[Any, ...]:
    """All of a code object but its lines."""
    constants = tuple(_shape(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts)
    return (
        code.co_code,
        constants,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_exceptiontable,
    )


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
