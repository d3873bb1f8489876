"""Runs checks against a broker.

The quick ones run some at a time, those that wait for timers all at once, those that restart brokers last, one by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kohort.common.errors import WireError
from kohort.common.foreign_text import cut
from kohort.conformance.broker_under_test import BrokerUnderTest
from kohort.conformance.check import Check, CheckKind, Need, Selection
from kohort.conformance.check_context import CheckContext
from kohort.conformance.errors import (
    Blocked,
    CheckEnd,
    ConformanceError,
    Failed,
    MissingResponse,
    NotApplicable,
    PeerClosed,
)
from kohort.conformance.frame_log import MAX_TEXT_SHOWN
from kohort.conformance.profile import Profile
from kohort.conformance.report import Report, Subject
from kohort.conformance.verdict import CheckVerdict, Result
from kohort.protocol.catalogue import API
from kohort.protocol.schema import Versions

AT_A_TIME = 32
SILENCE_MS = 500  # two frames of a check that waits for no timer are closer to each other
STRETCH = 4
ALIVE_TIMEOUT_S = 5.0
# Missing or surplus entries of a response, and null instead of a value.
ODD_SHAPE = (LookupError, ValueError, TypeError, AttributeError)
ALL = Selection()
STRICT = Profile()


class RunStopped:
    """Ends a run early, from its own event loop.

    The first `request` ends the checks, the second ends cleaning up.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.of_checks, self.of_cleaning = asyncio.Event(), asyncio.Event()

    def request(self, reason: str) -> None:
        """Set `reason`, which becomes the report's `ended_early`."""
        (self.of_cleaning if self.of_checks.is_set() else self.of_checks).set()
        self.reason = self.reason or reason


@dataclass(frozen=True, slots=True)
class RunPlan:
    """The cells to run, in order, and results that are known without running."""

    cells: tuple[tuple[Check, int], ...]
    known: tuple[Result, ...]


def plan(
    target: BrokerUnderTest, checks: Iterable[Check], selection: Selection = ALL, *, timing: bool = True
) -> RunPlan:
    """Plan the cells. A check that does not apply to this target becomes one result with the reason."""
    cells: list[tuple[Check, int]] = []
    known: list[Result] = []
    for check in checks:
        if check.kind is CheckKind.TIMING and not timing:
            if selection.takes(check, -1):
                known.append(
                    Result(check.id, -1, CheckVerdict.NOT_APPLICABLE, "TIMING checks were left out of this run")
                )
            continue
        reason = _missing(target, check)
        versions = () if reason else check.versions_with(*target.common(check.subject))
        if not versions:
            if selection.takes(check, -1):
                low, high = target.ranges.get(API[check.subject].key, (0, -1))
                reason = reason or f"{check.subject} {check.versions} is not among the broker's {low}-{high}"
                known.append(Result(check.id, -1, CheckVerdict.NOT_APPLICABLE, reason))
            continue
        cells += [(check, version) for version in versions if selection.takes(check, version)]
    return RunPlan(tuple(cells), tuple(known))


async def play(
    target: BrokerUnderTest,
    laid: RunPlan,
    *,
    profile: Profile = STRICT,
    on_result: Callable[[Result], None] = lambda result: None,
    at_a_time: int = AT_A_TIME,
    stop: RunStopped | None = None,
) -> tuple[list[Result], str]:
    """Run the cells. Returns (results, the reason of an early end or ""). Cells not reached have no result."""
    stop = stop or RunStopped()
    results = list(laid.known)
    for result in laid.known:
        on_result(result)
    serial = itertools.count(1)
    gate = asyncio.Semaphore(at_a_time)
    dead = asyncio.Event()

    async def gated(check: Check, version: int) -> None:
        async with gate:
            await one(check, version)

    async def one(check: Check, version: int) -> None:
        if dead.is_set():
            return
        result = profile.judge(await _judge(target, check, version, serial))
        if result.verdict in (CheckVerdict.FAIL, CheckVerdict.BLOCKED) and not await _alive(target):
            dead.set()
        results.append(result)
        on_result(result)

    rough = [cell for cell in laid.cells if Need.OPERATOR in cell[0].needs]
    quick = [cell for cell in laid.cells if not cell[0].is_timed and cell not in rough]
    waiting = [cell for cell in laid.cells if cell[0].is_timed and cell not in rough]

    async def every_cell() -> None:
        for cells, run in ((quick, gated), (waiting, one)):
            async with asyncio.TaskGroup() as group:
                for cell in cells:
                    group.create_task(run(*cell))
        for cell in rough:
            await one(*cell)
        if rough and not dead.is_set():
            with contextlib.suppress(CheckEnd, WireError, ConformanceError, *ODD_SHAPE):  # `clean_up` reports it
                await target.wake_coordinator()  # what it cleans up must be served again

    whole = await _unless(stop.of_checks, every_cell())
    order = {check.id: place for place, check in enumerate(dict.fromkeys(check for check, _ in laid.cells))}
    results.sort(key=lambda result: (order.get(result.check, -1), result.version))
    if dead.is_set():
        return results, "the broker stopped responding"
    return results, "" if whole else stop.reason


async def _unless(stopped: asyncio.Event, work: Coroutine[object, object, None]) -> bool:
    """Run `work`, which the event cancels. Returns True if it completed."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        return False
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


async def conduct(
    target: BrokerUnderTest,
    checks: Sequence[Check],
    *,
    selection: Selection = ALL,
    timing: bool = True,
    profile: Profile = STRICT,
    at_a_time: int = AT_A_TIME,
    command: str = "",
    on_plan: Callable[[int], None] = lambda cells: None,
    on_result: Callable[[Result], None] = lambda result: None,
    stop: RunStopped | None = None,
) -> Report:
    """Do a whole run: prepare, play, clean up, report. Cleans up also when it is cancelled.

    `stop` ends it early. The report then has the results until then.
    """
    stop = stop or RunStopped()
    started = datetime.now(UTC)
    clock = time.monotonic()
    ended_early = ""
    results: list[Result] = []
    left: list[str] = []
    try:
        if await _unless(stop.of_checks, target.prepare()):
            laid = plan(target, checks, selection, timing=timing)
            on_plan(len(laid.cells) + len(laid.known))
            results, ended_early = await play(
                target, laid, profile=profile, on_result=on_result, at_a_time=at_a_time, stop=stop
            )
            if not results and not ended_early:
                ended_early = "the selection has no check in a version that the broker supports"
        else:
            ended_early = stop.reason
    except (CheckEnd, WireError, *ODD_SHAPE) as error:
        ended_early = cut(f"the run could not be prepared: {error}", MAX_TEXT_SHOWN)
    finally:
        left = [f"everything named {target.prefix}-*: cleaning up was interrupted, too"]

        async def clean() -> None:
            nonlocal left
            try:
                left = await target.clean_up()
            except (CheckEnd, WireError, OSError, *ODD_SHAPE) as error:
                left = [f"everything named {target.prefix}-*: {error}"]

        await _unless(stop.of_cleaning, clean())
        await target.close()
    return Report(
        subject=Subject(
            target.address, profile.name, target.cluster_id, len(target.nodes), target.ranges, target.features
        ),
        started=started.isoformat(timespec="seconds"),
        took_s=round(time.monotonic() - clock, 1),
        command=command,
        results=tuple(results),
        ended_early=ended_early,
        left_behind=tuple(left),
    )


async def _judge(target: BrokerUnderTest, check: Check, version: int, serials: Iterator[int]) -> Result:
    """Run one check, and once more with longer time-outs if requests may have taken longer than its short ones."""
    scene = CheckContext(target, check, version, next(serials))
    result = await _run(check, scene)
    silence_ms = scene.longest_silence_ms if scene.has_short_timeouts else 0
    if result.verdict not in (CheckVerdict.FAIL, CheckVerdict.BLOCKED) or silence_ms <= SILENCE_MS:
        return result
    again = await _run(check, CheckContext(target, check, version, next(serials), STRETCH))
    if again.verdict is not CheckVerdict.PASS:
        return again
    reason = f"passes with time-outs {STRETCH} times as long; {silence_ms} ms without a frame before"
    return replace(again, reason=f"{reason}: {result.reason}")


async def _run(check: Check, scene: CheckContext) -> Result:
    """Run a check. Any exception becomes a result, also one from a bug in the check."""
    started = time.monotonic()
    verdict, reason, what, expected, observed = CheckVerdict.PASS, "", "", "", ""
    try:
        async with asyncio.timeout(check.limit_s):
            await check.probe(scene)
    except NotApplicable as end:
        verdict, reason = CheckVerdict.NOT_APPLICABLE, str(end)
    except Blocked as end:
        verdict, reason = CheckVerdict.BLOCKED, str(end)
    except Failed as end:
        verdict, reason = CheckVerdict.FAIL, str(end)
        what, expected, observed = end.what, str(end.expected), str(end.observed)
    except (PeerClosed, MissingResponse, WireError) as end:
        verdict, reason, what, expected, observed = (
            CheckVerdict.FAIL,
            str(end),
            "the response",
            check.expected,
            str(end),
        )
    except TimeoutError:
        verdict, reason = CheckVerdict.BLOCKED, f"not over after {check.limit_s:g} s"
    except ODD_SHAPE as error:
        what, expected, observed = "the response's shape", check.expected, f"{type(error).__name__}: {error}"
        verdict, reason = CheckVerdict.FAIL, f"{what}: the check does not find in it what it looks for ({observed})"
        if not any(not frame.sent for frame in scene.frames):
            verdict, reason = CheckVerdict.BLOCKED, f"the check has a defect: {observed}"
    except Exception as error:  # a bug of the check's own: the others go on
        verdict, reason = CheckVerdict.BLOCKED, f"the check has a defect: {type(error).__name__}: {error}"
    finally:
        await scene.close()
    if (task := asyncio.current_task()) is not None and task.cancelling():
        raise asyncio.CancelledError  # the check lost it, because a broker did not start again
    return Result(
        check.id,
        scene.version,
        verdict,
        cut(reason, MAX_TEXT_SHOWN),
        cut(what, MAX_TEXT_SHOWN),
        cut(expected, MAX_TEXT_SHOWN),
        cut(observed, MAX_TEXT_SHOWN),
        int((time.monotonic() - started) * 1000),
        tuple(scene.frames),
    )


async def _alive(target: BrokerUnderTest) -> bool:
    """True if the broker responds to ApiVersions within a few seconds."""
    for last in (False, False, True):
        try:
            peer = await target.connect()
            try:
                await peer.send("ApiVersions", 0, {}, ALIVE_TIMEOUT_S)
            finally:
                await peer.close()
        except (CheckEnd, WireError):
            if not last:
                await asyncio.sleep(1.0)
        else:
            return True
    return False


def _missing(target: BrokerUnderTest, check: Check) -> str:
    """Return the reason why a check cannot run against this target, or ""."""
    for entry in check.apis:
        name, _, versions = entry.partition(" ")
        low, high = target.common(name)
        rule = Versions.of(versions or "0+")
        if not any(version in rule for version in range(low, high + 1)):
            return f"requires {entry}, which the broker does not support"
    if Need.TOPIC in check.needs and not target.topics:
        return f"no topic could be created: {target.topic_error}"
    if Need.TRACES in check.needs and not target.leave_traces:
        return "may leave a group that the broker cannot delete (allow it with --leave-traces)"
    if Need.CLUSTER in check.needs and len(target.nodes) < 2:
        return "requires a cluster of two or more brokers"
    if Need.SETTINGS in check.needs and not target.settings:
        return f"the broker's settings are unknown: {target.settings_error}"
    if Need.CONSUMER in check.needs and not target.consumer_protocol:
        return "the consumer group protocol (KIP-848) is not supported, or is switched off"
    if Need.NO_CONSUMER in check.needs and target.consumer_protocol:
        return "the consumer group protocol (KIP-848) is switched on"
    if Need.SHARE in check.needs and not target.share_groups:
        return "share groups (KIP-932) are not supported, or are switched off"
    if Need.STREAMS in check.needs and not target.streams_groups:
        return "streams groups (KIP-1071) are not supported, or are switched off"
    if Need.STRANGER in check.needs and target.stranger is None:
        return "requires a user without rights (--stranger NAME:PASSWORD)"
    if Need.OPERATOR in check.needs and target.operator is None:
        return "requires commands that stop and start brokers (--stop-command and --start-command)"
    return ""
