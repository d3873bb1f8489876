"""B19 on a scripted broker: the delay of a group's first join, and a second JoinGroup that comes too late."""

import asyncio
from itertools import count

import pytest

from kohort.conformance import join_group
from kohort.conformance.broker_under_test import BrokerUnderTest
from kohort.conformance.catalogue import CHECKS
from kohort.conformance.check import Selection
from kohort.conformance.runner import plan, play
from kohort.conformance.verdict import CheckVerdict, Result
from kohort.testing.fake_broker import Action, Call, CoordinatorSettings, Delay, FakeBroker

DELAY_MS = 300
ONE_STEP = "B19@3"  # without MEMBER_ID_REQUIRED: two JoinGroups for each try


def judged(broker: FakeBroker) -> Result:
    async def run() -> Result:
        target = await BrokerUnderTest.reach(broker.bootstrap)
        await target.prepare()
        target.settings = {"group.initial.rebalance.delay.ms": str(DELAY_MS)}
        (result,), _ = await play(target, plan(target, CHECKS, Selection.of(ONE_STEP, CHECKS)))
        await target.close()
        return result

    return asyncio.run(run())


def delaying() -> FakeBroker:
    return FakeBroker(settings=CoordinatorSettings(group_initial_rebalance_delay_ms=DELAY_MS))


def late(broker: FakeBroker, *, tries: int, seconds: float) -> None:
    """The second JoinGroup of each of the first `tries` tries is held up for longer than the delay."""
    number = count(1)

    def control(call: Call) -> Action:
        serial = next(number)
        return Delay(seconds) if serial % 2 == 0 and serial <= 2 * tries else None

    broker.control("JoinGroup", control)


def test_two_that_join_within_the_delay_are_in_one_generation() -> None:
    with delaying() as broker:
        assert judged(broker).verdict is CheckVerdict.PASS
        assert len(broker.calls_of("JoinGroup")) == 2


@pytest.mark.parametrize("tries", [1, 2])
def test_a_second_join_that_comes_after_the_delay_is_tried_again(tries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_group, "SAME_GENERATION_S", 0.5)
    with delaying() as broker:
        late(broker, tries=tries, seconds=1.0)
        assert judged(broker).verdict is CheckVerdict.PASS


def test_a_second_join_that_is_never_in_the_generation_is_a_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_group, "SAME_GENERATION_S", 0.5)
    with delaying() as broker:
        late(broker, tries=3, seconds=1.0)
        result = judged(broker)
    assert (result.verdict, result.what) == (CheckVerdict.FAIL, "JoinGroup of both")


def test_a_broker_without_the_delay_that_it_announces_is_a_fail() -> None:
    with FakeBroker() as broker:
        result = judged(broker)
    assert (result.verdict, result.what) == (CheckVerdict.FAIL, "the time until it was complete")
