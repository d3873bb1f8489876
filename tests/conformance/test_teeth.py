"""Every check has teeth: a broker with one deliberate fault is caught by the checks of that rule, and by no others.

Faults change requests, responses or the coordinator of the scripted broker. Each is played against the checks of its
kind, each in its highest version; the verdicts of the sound broker are the baseline. A fault in one API cannot change
the verdict of a check that does not use this API, so those checks are left out. `make teeth` plays all faults;
`make test` plays every fourth.
A check that fails in a crowd of checks is repeated alone: a fault is there each time, a late machine is not.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from kohort.conformance.broker_under_test import BrokerUnderTest
from kohort.conformance.catalogue import CHECKS
from kohort.conformance.check import Check, CheckKind, Need
from kohort.conformance.runner import RunPlan, plan, play
from kohort.conformance.verdict import CheckVerdict, Result
from kohort.protocol.catalogue import API
from kohort.testing.fake_broker import FakeBroker
from tests.conformance import (
    faults_assigning,
    faults_entering,
    faults_in_share_records,
    faults_in_shares,
    faults_in_streams,
    faults_in_transactions,
    faults_showing,
    faults_staying,
    faults_waiting,
)
from tests.conformance.bending import Fault

AT_A_TIME = 4  # one interpreter plays them all, so that more make each slower, and late
# Requests of these go out outside of checks as well, so that a fault in them can reach every check.
OF_EVERY_CHECK = frozenset({"ApiVersions", "FindCoordinator", "Metadata", "CreateTopics", "DescribeConfigs"})
TRIES_ALONE = 3
SCRIPTED = (
    *faults_entering.FAULTS,
    *faults_staying.FAULTS,
    *faults_showing.FAULTS,
    *faults_assigning.FAULTS,
    *faults_in_transactions.FAULTS,
    *faults_in_shares.FAULTS,
    *faults_in_share_records.FAULTS,
    *faults_in_streams.FAULTS,
)
EVERY = 4
WAITING = faults_waiting.FAULTS
Verdicts = dict[str, CheckVerdict]


def is_quick(check: Check) -> bool:
    return check.kind is not CheckKind.TIMING


def is_slow(check: Check) -> bool:
    return check.kind is CheckKind.TIMING and Need.OPERATOR not in check.needs


@dataclass(frozen=True, slots=True)
class Baseline:
    """`verdicts` of the sound broker, and which APIs each check used."""

    verdicts: Verdicts
    apis: dict[str, frozenset[str]]

    def touched_by(self, fault: Fault) -> Callable[[Check], bool]:
        """The checks whose verdict the fault can change."""
        with FakeBroker() as broker:
            fault.install(broker)
            changed = {API[control.api_key].name for control in broker._controls}
        if not changed or changed & OF_EVERY_CHECK:  # without a control, it is the coordinator that is changed
            return lambda check: True
        return lambda check: check.id in fault.caught_by or bool(self.apis.get(check.id, changed) & changed)


def results_of(address: str, wanted: Callable[[Check], bool]) -> list[Result]:
    """The checks against the broker, in their highest versions."""

    async def run() -> list[Result]:
        target = await BrokerUnderTest.reach(address)
        await target.prepare()
        laid = plan(target, filter(wanted, CHECKS))
        highest = dict(laid.cells)  # versions go up, so that the last one stays
        results, ended_early = await play(target, RunPlan(tuple(highest.items()), ()), at_a_time=64)
        await target.clean_up()
        await target.close()
        assert not ended_early
        return results

    return asyncio.run(run())


def judged(fault: Fault | None, wanted: Callable[[Check], bool]) -> list[Result]:
    """The results of the scripted broker with this one fault."""
    with FakeBroker() as broker:
        if fault is not None:
            fault.install(broker)
        return results_of(broker.bootstrap, wanted)


def verdicts(fault: Fault | None, wanted: Callable[[Check], bool]) -> Verdicts:
    return {result.check: result.verdict for result in judged(fault, wanted)}


def among(names: Collection[str]) -> Callable[[Check], bool]:
    return lambda check: check.id in names


def sound(wanted: Callable[[Check], bool]) -> Baseline:
    """The baseline. A crowd on a busy machine can make a check late: what fails is tried again, alone."""
    results = judged(None, wanted)
    found = {result.check: result.verdict for result in results}
    crowded: set[str] = set()
    for _ in range(TRIES_ALONE):
        late = {check for check, got in found.items() if got in (CheckVerdict.FAIL, CheckVerdict.BLOCKED)}
        if not late:
            break
        crowded |= late
        warnings.warn(f"without a fault, {sorted(late)} failed in a crowd", stacklevel=2)
        found |= verdicts(None, among(late))
    apis = {
        # A request made by hand has a label in place of its API's name; the name is a word of it.
        result.check: frozenset(word for frame in result.frames for word in frame.api.split())
        for result in results
        if result.check not in crowded
    }
    return Baseline(found, apis)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The baseline, and the verdicts of every fault of this session."""

    baseline: Baseline
    of: dict[str, Future[Verdicts]]


def played(
    request: pytest.FixtureRequest, checks: Callable[[Check], bool], faults: tuple[Fault, ...], many: int
) -> Iterator[Outcomes]:
    """Every fault of this session, several at a time, since a run mostly waits."""
    wanted = [item.callspec.params.get("fault") for item in request.session.items if hasattr(item, "callspec")]
    baseline = sound(checks)

    def play_one(fault: Fault) -> Verdicts:
        touched = baseline.touched_by(fault)
        return verdicts(fault, lambda check: checks(check) and touched(check))

    with ThreadPoolExecutor(many) as pool:
        yield Outcomes(baseline, {fault.name: pool.submit(play_one, fault) for fault in faults if fault in wanted})
        pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def of_scripted(request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    yield from played(request, is_quick, SCRIPTED, AT_A_TIME)


@pytest.fixture(scope="module")
def of_waiting(request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    yield from played(request, is_slow, WAITING, len(WAITING))


def caught(fault: Fault, outcomes: Outcomes) -> None:
    baseline = outcomes.baseline.verdicts

    def failed(found: Verdicts) -> set[str]:
        return {
            check
            for check, got in found.items()
            if got is CheckVerdict.FAIL and baseline[check] is not CheckVerdict.FAIL
        }

    assert baseline[fault.caught_by[0]] is CheckVerdict.PASS, "its own check does not pass without the fault"
    noticed = failed(outcomes.of[fault.name].result())
    for _ in range(TRIES_ALONE):
        if fault.caught_by[0] in noticed:
            break
        # A crowd can be late for a moment that its own check waits for: alone, it has to notice.
        noticed |= failed(verdicts(fault, among(fault.caught_by[:1])))
        warnings.warn(f"{fault.name}: {fault.caught_by[0]} noticed only alone", stacklevel=2)
    assert fault.caught_by[0] in noticed, "its own check does not notice"
    strangers = noticed - set(fault.caught_by)
    for _ in range(TRIES_ALONE):
        if not strangers:
            break
        # Many brokers and checks at a time can make one of them late on a busy machine; a fault does it each time.
        warnings.warn(f"{fault.name}: {sorted(strangers)} failed in a crowd", stacklevel=2)
        strangers &= failed(verdicts(fault, among(strangers)))
    assert strangers == set(), "checks of other rules notice too"


def some_of(faults: Sequence[Fault]) -> list[Any]:
    """Every EVERY-th fault, and the others with the mark `full`."""
    return [
        pytest.param(fault, id=fault.name, marks=[pytest.mark.full] if number % EVERY else [])
        for number, fault in enumerate(faults)
    ]


@pytest.mark.parametrize("fault", some_of(SCRIPTED))
def test_fault_is_caught_by_its_check_and_by_no_other(fault: Fault, of_scripted: Outcomes) -> None:
    caught(fault, of_scripted)


@pytest.mark.parametrize("fault", some_of(WAITING))
def test_fault_of_a_clock_is_caught_by_its_check_and_by_no_other(fault: Fault, of_waiting: Outcomes) -> None:
    caught(fault, of_waiting)


def test_scripted_broker_passes_the_whole_suite(of_scripted: Outcomes, of_waiting: Outcomes) -> None:
    found = of_scripted.baseline.verdicts | of_waiting.baseline.verdicts
    assert {
        check: verdict for check, verdict in found.items() if verdict in (CheckVerdict.FAIL, CheckVerdict.BLOCKED)
    } == {}


def test_every_section_has_teeth() -> None:
    """Each section has faults; a check that no fault is about is counted, so that the number is known."""
    faults: tuple[Any, ...] = (*SCRIPTED, *WAITING)
    bitten = {fault.caught_by[0] for fault in faults}
    assert len(bitten) >= 100
    assert {check.section for check in CHECKS} == {identity[0] for identity in bitten}


def test_a_check_is_left_out_only_if_it_does_not_use_what_a_fault_changes() -> None:
    used = {
        "B1": ("JoinGroup",),
        "D1a": ("JoinGroup", "Heartbeat"),
        "D9": ("JoinGroup",),
        "M1k": ("ConsumerGroupHeartbeat",),
    }
    baseline = Baseline({}, {check: frozenset(apis) for check, apis in used.items()})

    def played_against(*apis: str) -> set[str]:
        def install(broker: FakeBroker) -> None:
            for api in apis:
                broker.control(api, lambda call: None)

        touched = baseline.touched_by(Fault("", install, ("D9",)))
        return {check.id for check in CHECKS if touched(check)}

    everything = {check.id for check in CHECKS}
    # D9 is the fault's own; of checks that are not in the baseline nothing is known.
    assert played_against("Heartbeat") == everything - {"B1", "M1k"}
    assert played_against("FindCoordinator") == everything
    assert played_against() == everything, "a fault of the coordinator itself"


def test_the_baseline_knows_the_apis_of_every_check(of_scripted: Outcomes) -> None:
    """A check sends its subject, by the codec or by hand. A6a reads what the run's preparation has sent."""
    subjects = {check.id: check.subject for check in CHECKS}
    apis = of_scripted.baseline.apis
    assert len(apis) > 200
    assert {check for check, used in apis.items() if subjects[check] not in used} == {"A6a"}
