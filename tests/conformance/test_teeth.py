"""Every check has teeth: a broker with one deliberate fault is caught by the checks of that rule, and by no others.

The broker is the scripted one, whose answers are bent on their way out. Each fault runs against all quick checks, each
in its highest version; the verdicts that the sound broker gets are the baseline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kohort.conformance.catalogue import CHECKS
from kohort.conformance.check import Kind
from kohort.conformance.runner import Plan, plan, play
from kohort.conformance.target import Target
from kohort.conformance.verdict import Verdict
from kohort.testing.fake_broker import FakeBroker
from tests.conformance import faults_entering, faults_staying
from tests.conformance.bending import Fault

AT_A_TIME = 6
FAULTS = (*faults_entering.FAULTS, *faults_staying.FAULTS)


def verdicts(broker: FakeBroker) -> dict[str, Verdict]:
    """Every quick check against the broker, in its highest version."""

    async def run() -> dict[str, Verdict]:
        target = await Target.reach(broker.bootstrap)
        await target.prepare()
        laid = plan(target, (check for check in CHECKS if check.kind is not Kind.TIMING))
        highest = dict(laid.cells)  # versions go up, so that the last one stays
        results, ended_early = await play(target, Plan(tuple(highest.items()), ()), at_a_time=64)
        await target.close()
        assert not ended_early
        return {result.check: result.verdict for result in results}

    return asyncio.run(run())


@pytest.fixture(scope="module")
def sound() -> dict[str, Verdict]:
    """What the broker without a fault gets."""
    with FakeBroker() as broker:
        return verdicts(broker)


def test_sound_broker_passes_what_the_faults_are_about(sound: dict[str, Verdict]) -> None:
    about = {check for fault in FAULTS for check in fault.caught_by}
    assert {check: sound[check] for check in about} == dict.fromkeys(about, Verdict.PASS)


Outcomes = dict[str, "Future[dict[str, Verdict]]"]


def judge(fault: Fault) -> dict[str, Verdict]:
    """What a broker with this one fault gets."""
    with FakeBroker() as broker:
        fault.install(broker)
        return verdicts(broker)


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[Outcomes]:
    """Every fault of this session, several at a time: a run mostly waits."""
    wanted = [item.callspec.params.get("fault") for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {fault.name: pool.submit(judge, fault) for fault in wanted if isinstance(fault, Fault)}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_caught_by_its_check_and_by_no_other(
    fault: Fault, outcomes: Outcomes, sound: dict[str, Verdict]
) -> None:
    def failed(found: dict[str, Verdict]) -> set[str]:
        return {check for check, got in found.items() if got is Verdict.FAIL and sound[check] is not Verdict.FAIL}

    noticed = failed(outcomes[fault.name].result())
    assert fault.caught_by[0] in noticed, "its own check does not notice"
    strangers = noticed - set(fault.caught_by)
    if strangers:
        # Many brokers and checks at a time can make one of them late on a busy machine; a fault does it again.
        strangers &= failed(judge(fault))
    assert strangers == set(), "checks of other rules notice too"


def test_there_are_enough_faults() -> None:
    assert len({fault.caught_by[0] for fault in FAULTS}) >= 40
