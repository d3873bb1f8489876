"""Raises an exception at each point of a run where CPython could run a signal handler that raises.

CPython runs handlers in the main thread after a call, at a backward jump, and at the entry of a function. `every_point`
runs a script once for each such point of the product's own frames, and has the handler's exception raised there. The
script is a function without arguments; it catches `Interrupt`, goes on, and asserts what must hold.

    def script() -> None:
        with FakeBroker(...) as fake:
            consumer = Consumer(fake.bootstrap)
            out = attempt(lambda: consumer.poll(1))     # called again if it was interrupted
            ...

    print(every_point(script))

A point is (place in the code, number of times that it was passed). Runs differ a little from each other, as threads
do; a point that a run does not come to is counted as missed. KOHORT_INTERRUPTS=N takes each Nth point only, by default
`stride`. The first of them is drawn by a seed, which the report prints: KOHORT_INTERRUPTS_SEED, by default the number
of the day. So a run can be repeated, and days differ.

`every_point_within` is for scripts in which only a part is interrupted:

    def script(tracer: Tracer) -> None:
        ...
        with tracer.on():
            consumer.close()
"""

import contextlib
import datetime
import dis
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, TypeVar

import pytest

import kohort

T = TypeVar("T")

HERE = str(Path(kohort.__file__).parent)
UNTRACED = (str(Path(HERE, "testing")), str(Path(HERE, "cli")))
CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})


class Interrupt(BaseException):
    """The exception that the handler raises."""


class Place(NamedTuple):
    """An instruction of the product; `kind` is "entry", "call" or "jump"."""

    file: str
    function: str
    offset: int
    line: int
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.function} ({self.file}:{self.line})"


class Point(NamedTuple):
    """The `nth` time (from 1) that a place is passed."""

    place: Place
    nth: int


@dataclass
class Report:
    """The result of `every_point`."""

    raised: int = 0
    missed: int = 0
    places: int = 0
    stride: int = 1
    seed: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        failed = len(self.failures)
        drawn = f" (each {self.stride}th, seed {self.seed})" if self.stride > 1 else ""
        return f"{self.raised} points interrupted at {self.places} places{drawn}, {self.missed} missed, {failed} failed"


@cache
def _points_of(code: CodeType) -> dict[int, tuple[int, str]]:
    """Kinds of points by offset, each with the offset of the instruction that must have come before (-1: any).

    After a call the handler runs as part of the call. Raising before the next instruction is the same where the same
    `except` covers both; elsewhere `_profiled` does it, for calls of compiled functions.
    """
    handlers = [(entry.start, entry.end, entry.target) for entry in dis._parse_exception_table(code)]  # type: ignore[attr-defined]

    def handler(offset: int) -> int:
        return next((target for start, end, target in handlers if start <= offset < end), -1)

    found: dict[int, tuple[int, str]] = {}
    before: dis.Instruction | None = None
    for one in dis.get_instructions(code):
        if before is not None and before.opname in CALLS and handler(before.offset) == handler(one.offset):
            found[one.offset] = (before.offset, "call")
        if "JUMP_BACKWARD" in one.opname and "NO_INTERRUPT" not in one.opname:
            found[one.offset] = (-1, "jump")
        before = one
    return found


@cache
def _is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(HERE) and not code.co_filename.startswith(UNTRACED)


class Tracer:
    """Counts the points that the current thread passes, and raises at one of them."""

    def __init__(self, at: Point | None = None, error: Callable[[], BaseException] = Interrupt) -> None:
        self.passed: Counter[Place] = Counter()
        self.raised = False
        self._at = at
        self._error = error

    @contextmanager
    def on(self) -> Iterator["Tracer"]:
        """Trace this thread."""
        before = sys.gettrace(), sys.getprofile()
        sys.setprofile(self._profiled)
        sys.settrace(self._entered)
        try:
            yield self
        finally:
            sys.settrace(before[0])
            sys.setprofile(before[1])

    def _entered(self, frame: FrameType, _event: str, _given: Any) -> Any:
        if not _is_ours(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        points, before = _points_of(frame.f_code), -2

        def step(frame: FrameType, event: str, _given: Any) -> Any:
            nonlocal before
            if event == "opcode":
                at = frame.f_lasti
                needs, kind = points.get(at, (-3, ""))
                came, before = before, at
                if needs in (-1, came):
                    self._pass(frame, kind)
            return step

        self._pass(frame, "entry")
        return step

    def _profiled(self, frame: FrameType, event: str, _given: Any) -> None:
        if event == "c_return" and _is_ours(frame.f_code):
            self._pass(frame, "call")

    def _pass(self, frame: FrameType, kind: str) -> None:
        code = frame.f_code
        place = Place(Path(code.co_filename).name, code.co_qualname, frame.f_lasti, frame.f_lineno, kind)
        self.passed[place] += 1
        if not self.raised and self._at is not None and self._at == (place, self.passed[place]):
            self.raised = True
            sys.settrace(None)
            sys.setprofile(None)
            raise self._error()


def attempt(call: Callable[[], T], *, again: bool = True) -> T:
    """Call; once more if it was interrupted and `again`, else the interrupt is raised."""
    try:
        return call()
    except Interrupt:
        if not again:
            raise
        return call()


def reported(report: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Print a report in spite of the capture of output."""
    with capsys.disabled():
        print(f"\n    {report}", end="")


def until(reached: Callable[[], bool], step: Callable[[], object], *, patience_s: float = 120.0) -> None:
    """Take steps, which may be interrupted, until it is reached."""
    limit = time.monotonic() + patience_s
    while not reached():
        assert time.monotonic() < limit, "it stands still"
        with contextlib.suppress(Interrupt):
            step()


def elsewhere(call: Callable[[], T], timeout_s: float = 120.0) -> T:
    """Call on another thread: proof that no lock was left held. Raises what it raises."""
    came: list[tuple[T | None, BaseException | None]] = []

    def run() -> None:
        try:
            came.append((call(), None))
        except BaseException as error:
            came.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    assert came, "a lock is held"
    value, error = came[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def every_point(
    script: Callable[[], object],
    *,
    stride: int = 1,
    most_times: int = 2,
    error: Callable[[], BaseException] = Interrupt,
) -> Report:
    """Run `script` once without an interrupt and then once for each point, of one place the first `most_times` times.

    Failures of the script are collected; an AssertionError at the end names them with their points.
    """

    def traced(tracer: Tracer) -> None:
        with tracer.on():
            script()

    return every_point_within(traced, stride=stride, most_times=most_times, error=error)


def every_point_within(
    script: Callable[[Tracer], object],
    *,
    stride: int = 1,
    most_times: int = 2,
    error: Callable[[], BaseException] = Interrupt,
) -> Report:
    """As `every_point`. The script itself turns its tracer on, around what is to be interrupted."""
    stride = int(os.environ.get("KOHORT_INTERRUPTS", stride))
    seed = int(os.environ.get("KOHORT_INTERRUPTS_SEED", datetime.date.today().toordinal()))
    report = Report(stride=stride, seed=seed)
    known: Counter[Place] = Counter()
    for _ in range(2):
        script(first := Tracer())
        known |= first.passed
    todo = [Point(place, nth) for place in sorted(known) for nth in range(1, min(known[place], most_times) + 1)]
    places = set()
    for point in todo[seed % stride :: stride]:
        tracer = Tracer(point, error)
        try:
            script(tracer)
        except BaseException as problem:
            if isinstance(problem, KeyboardInterrupt):
                raise
            report.failures.append(f"{point.place}, time {point.nth}: {type(problem).__name__}: {problem}")
        report.raised += tracer.raised
        report.missed += not tracer.raised
        places.add(point.place)
    report.places = len(places)
    assert not report.failures, f"{report}\n" + "\n".join(report.failures[:40])
    return report
