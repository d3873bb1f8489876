"""Every check has teeth: a broker with one deliberate fault is caught by the checks of that rule, and by no others.

Faults bend what the scripted broker is asked and what it answers, or its coordinator. Each runs against the checks of
its kind, each in its highest version; the verdicts that the sound broker gets are the baseline. `make teeth` plays all
faults; `make test` plays every fourth.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from kohort.conformance.catalogue import CHECKS
from kohort.conformance.check import Check, Kind, Need
from kohort.conformance.runner import Plan, plan, play
from kohort.conformance.target import Target
from kohort.conformance.verdict import Verdict
from kohort.testing.fake_broker import FakeBroker
from tests.conformance import (
    faults_assigning,
    faults_entering,
    faults_in_transactions,
    faults_showing,
    faults_staying,
    faults_waiting,
)
from tests.conformance.bending import Fault

AT_A_TIME = 6
SCRIPTED = (
    *faults_entering.FAULTS, *faults_staying.FAULTS, *faults_showing.FAULTS, *faults_assigning.FAULTS,
    *faults_in_transactions.FAULTS,
)  # fmt: skip
EVERY = 4
WAITING = faults_waiting.FAULTS
Verdicts = dict[str, Verdict]


def is_quick(check: Check) -> bool:
    return check.kind is not Kind.TIMING


def is_slow(check: Check) -> bool:
    return check.kind is Kind.TIMING and Need.OPERATOR not in check.needs


def verdicts(address: str, wanted: Callable[[Check], bool]) -> Verdicts:
    """The checks against the broker, in their highest versions."""

    async def run() -> Verdicts:
        target = await Target.reach(address)
        await target.prepare()
        laid = plan(target, filter(wanted, CHECKS))
        highest = dict(laid.cells)  # versions go up, so that the last one stays
        results, ended_early = await play(target, Plan(tuple(highest.items()), ()), at_a_time=64)
        await target.clean_up()
        await target.close()
        assert not ended_early
        return {result.check: result.verdict for result in results}

    return asyncio.run(run())


def judged(fault: Fault | None, wanted: Callable[[Check], bool]) -> Verdicts:
    """What the scripted broker with this one fault gets."""
    with FakeBroker() as broker:
        if fault is not None:
            fault.install(broker)
        return verdicts(broker.bootstrap, wanted)


def among(names: Collection[str]) -> Callable[[Check], bool]:
    return lambda check: check.id in names


def sound(wanted: Callable[[Check], bool]) -> Verdicts:
    """What a sound broker gets. A crowd on a busy machine can make a check late: what fails has a second try, alone."""
    found = judged(None, wanted)
    late = {check for check, got in found.items() if got in (Verdict.FAIL, Verdict.BLOCKED)}
    if late:
        warnings.warn(f"without a fault, {sorted(late)} failed at first", stacklevel=2)
        found |= judged(None, among(late))
    return found


Outcomes = dict[str | None, "Future[Verdicts]"]


def played(
    request: pytest.FixtureRequest, checks: Callable[[Check], bool], faults: tuple[Fault, ...], many: int
) -> Iterator[Outcomes]:
    """Every fault of this session, several at a time: a run mostly waits. None stands for no fault."""
    wanted = [item.callspec.params.get("fault") for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(many) as pool:
        outcomes: Outcomes = {None: pool.submit(sound, checks)}
        outcomes |= {fault.name: pool.submit(judged, fault, checks) for fault in faults if fault in wanted}
        yield outcomes
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def of_scripted(request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    yield from played(request, is_quick, SCRIPTED, AT_A_TIME)


@pytest.fixture(scope="module")
def of_waiting(request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    yield from played(request, is_slow, WAITING, len(WAITING) + 1)


def caught(fault: Fault, outcomes: Outcomes) -> None:
    baseline = outcomes[None].result()

    def failed(found: Verdicts) -> set[str]:
        return {check for check, got in found.items() if got is Verdict.FAIL and baseline[check] is not Verdict.FAIL}

    assert baseline[fault.caught_by[0]] is Verdict.PASS, "its own check does not pass without the fault"
    noticed = failed(outcomes[fault.name].result())
    if fault.caught_by[0] not in noticed:
        # A crowd can be late for a moment that its own check waits for: alone, it has to notice.
        noticed |= failed(judged(fault, among(fault.caught_by[:1])))
        assert fault.caught_by[0] in noticed, "its own check does not notice"
        warnings.warn(f"{fault.name}: {fault.caught_by[0]} noticed only alone", stacklevel=2)
    strangers = noticed - set(fault.caught_by)
    if strangers:
        # Many brokers and checks at a time can make one of them late on a busy machine; a fault does it again, alone.
        repeated = failed(judged(fault, among(strangers)))
        assert repeated == set(), "checks of other rules notice too"
        warnings.warn(f"{fault.name}: {sorted(strangers)} failed once, and not again", stacklevel=2)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=fault.name, marks=[pytest.mark.full] if number % EVERY else [])
        for number, fault in enumerate(SCRIPTED)
    ],
)
def test_fault_is_caught_by_its_check_and_by_no_other(fault: Fault, of_scripted: Outcomes) -> None:
    caught(fault, of_scripted)


@pytest.mark.parametrize("fault", WAITING, ids=lambda fault: fault.name)
def test_fault_of_a_clock_is_caught_by_its_check_and_by_no_other(fault: Fault, of_waiting: Outcomes) -> None:
    caught(fault, of_waiting)


def test_scripted_broker_passes_the_whole_suite(of_scripted: Outcomes, of_waiting: Outcomes) -> None:
    found = of_scripted[None].result() | of_waiting[None].result()
    assert {check: verdict for check, verdict in found.items() if verdict in (Verdict.FAIL, Verdict.BLOCKED)} == {}


def test_every_section_has_teeth() -> None:
    """Each section has faults; a check that no fault is about is counted, so that the number is known."""
    faults: tuple[Any, ...] = (*SCRIPTED, *WAITING)
    bitten = {fault.caught_by[0] for fault in faults}
    assert len(bitten) >= 100
    assert {check.section for check in CHECKS} == {identity[0] for identity in bitten}
