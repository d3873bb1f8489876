"""Checks with short time-outs on a broker that is slow for a moment: its slowness is not judged."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from kohort.conformance.broker_under_test import BrokerUnderTest
from kohort.conformance.catalogue import CHECKS
from kohort.conformance.check import Check, CheckKind, Probe, Selection
from kohort.conformance.check_context import CheckContext
from kohort.conformance.errors import Blocked
from kohort.conformance.runner import SILENCE_MS, STRETCH, conduct
from kohort.conformance.verdict import CheckVerdict, Result
from kohort.testing.fake_broker import Call, FakeBroker, Hold
from kohort.testing.fake_broker.settings import CoordinatorSettings

SHORT_MS = 1500


def conducted(broker: FakeBroker, checks: Sequence[Check], only: str = "") -> tuple[Result, ...]:
    async def run() -> tuple[Result, ...]:
        target = await BrokerUnderTest.reach(broker.bootstrap)
        target.min_session_ms = CoordinatorSettings().group_min_session_timeout_ms
        return (await conduct(target, checks, selection=Selection.of(only, tuple(checks)))).results

    return asyncio.run(run())


def judged(probe: Probe) -> Result:
    """The result of one check whose body is `probe`."""
    check = Check("Z1", "made up", "Heartbeat", "0+", CheckKind.TIMING, "this test", "NONE", probe, once=True)
    with FakeBroker() as broker:
        (result,) = conducted(broker, [check])
    return result


@pytest.mark.parametrize("cell", ["C10@4", "D2b@4", "I6@9"])
def test_a_member_removed_because_a_response_took_too_long_is_no_failure(cell: str) -> None:
    with FakeBroker() as broker:
        hold = Hold()
        awake = threading.Timer(2.5, hold.release)  # longer than the short time-outs of these checks
        calls = 0

        def slow_once(call: Call) -> Hold | None:
            nonlocal calls
            calls += 1
            if calls != 2:
                return None
            awake.start()
            return hold

        broker.control("Heartbeat", slow_once)
        (result,) = [each for each in conducted(broker, CHECKS, cell) if each.cell == cell]
        awake.join()
    assert result.verdict is CheckVerdict.PASS, result.reason
    assert f"time-outs {STRETCH} times as long" in result.reason
    assert result.reason.partition("without a frame before: ")[2], "the reason of the first run"


async def _silence(scene: CheckContext) -> None:
    for _ in range(2):
        await scene.send("ApiVersions", version=0)
        await asyncio.sleep(1.2 * SILENCE_MS / 1000)  # the silence that is judged
    await scene.send("ApiVersions", version=0)


def test_a_failure_after_a_silence_is_repeated_once_with_longer_time_outs() -> None:
    sessions = list[int]()

    async def probe(scene: CheckContext) -> None:
        sessions.append(scene.session_within(SHORT_MS))
        await _silence(scene)
        scene.equal("the session", sessions[-1], 1)

    result = judged(probe)
    assert sessions == [SHORT_MS, STRETCH * SHORT_MS]
    assert (result.verdict, result.observed) == (CheckVerdict.FAIL, str(STRETCH * SHORT_MS))


def test_a_blocked_set_up_after_a_silence_is_repeated_too() -> None:
    async def probe(scene: CheckContext) -> None:
        if scene.session_within(SHORT_MS) == SHORT_MS:
            await _silence(scene)
            raise Blocked("JoinGroup failed")

    result = judged(probe)
    assert result.verdict is CheckVerdict.PASS
    assert result.reason.endswith("ms without a frame before: JoinGroup failed")


def test_a_failure_without_a_silence_is_final() -> None:
    sessions = list[int]()

    async def probe(scene: CheckContext) -> None:
        sessions.append(scene.session_within(SHORT_MS))
        await scene.send("ApiVersions", version=0)
        scene.equal("the session", sessions[-1], 1)

    assert judged(probe).verdict is CheckVerdict.FAIL
    assert sessions == [SHORT_MS]


def test_a_failure_without_short_time_outs_is_final() -> None:
    runs = 0

    async def probe(scene: CheckContext) -> None:
        nonlocal runs
        runs += 1
        await _silence(scene)
        scene.equal("runs", runs, 0)

    assert judged(probe).verdict is CheckVerdict.FAIL
    assert runs == 1
