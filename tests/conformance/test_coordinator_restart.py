"""The checks that restart brokers, on scripted ones: the sound broker passes, and faults of its loading are caught."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kohort.conformance.broker_control import Commands
from kohort.conformance.broker_under_test import BrokerUnderTest
from kohort.conformance.catalogue import CHECKS
from kohort.conformance.check import Selection
from kohort.conformance.errors import Blocked
from kohort.conformance.runner import RunStopped, plan, play
from kohort.conformance.verdict import CheckVerdict, Result
from kohort.protocol.errors import ErrorCode
from kohort.testing.fake_broker import Alter, Call, CoordinatorSettings, FakeBroker

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
LOADS_FOR_S = 0.3


@dataclass
class Puppeteer:
    """Stops and starts nodes of the scripted broker; `moves`: groups go to another node when theirs stops."""

    broker: FakeBroker
    moves: bool = False
    has_started: bool = False
    loads_until: float | None = None

    async def stop(self, node: int) -> None:
        self.broker.stop_node(node)
        if self.moves:
            for group in list(self.broker._cluster.groups.classic.groups):
                self.broker.move_coordinator(group, 1 if node != 1 else 2)

    async def start(self, node: int) -> None:
        await asyncio.sleep(0.05)
        self.broker.start_node(node)
        self.has_started, self.loads_until = True, None

    @property
    def is_loading(self) -> bool:
        if not self.has_started:
            return False
        if self.loads_until is None:  # from the first request on: a loaded machine must not miss it
            self.loads_until = time.monotonic() + LOADS_FOR_S
        return time.monotonic() < self.loads_until


def judged(
    broker: FakeBroker, operator: Puppeteer, only: str, settings: dict[str, str] | None = None
) -> dict[str, Result]:
    """Results by check. `settings`: the settings that a real broker would return from DescribeConfigs, which the
    scripted one lacks."""

    async def run() -> dict[str, Result]:
        target = await BrokerUnderTest.reach(broker.bootstrap)
        target.operator = operator
        await target.prepare()
        target.settings = settings or {}
        results, _ = await play(target, plan(target, CHECKS, Selection.of(only, CHECKS)))
        assert await target.clean_up() == []
        await target.close()
        return {result.check: result for result in results}

    return asyncio.run(run())


def loads(broker: FakeBroker, operator: Puppeteer, apis: dict[str, int]) -> None:
    """While the coordinator loads, these APIs get these codes."""

    def control(code: int) -> Callable[[Call], Alter | None]:
        def change(response: Any) -> Any:
            if hasattr(response, "topics") and not hasattr(response, "error_code"):  # OffsetCommit
                return response._replace(
                    topics=tuple(
                        topic._replace(partitions=tuple(entry._replace(error_code=code) for entry in topic.partitions))
                        for topic in response.topics
                    )
                )
            parts = "results" if hasattr(response, "results") else "groups" if hasattr(response, "groups") else ""
            if parts:
                return response._replace(
                    **{parts: tuple(entry._replace(error_code=code) for entry in getattr(response, parts))}
                )
            return response._replace(error_code=code)

        return lambda call: Alter(change) if operator.is_loading else None

    for api, code in apis.items():
        broker.control(api, control(code))


SOUND = dict.fromkeys(
    ("JoinGroup", "SyncGroup", "LeaveGroup", "OffsetCommit", "OffsetFetch", "DescribeGroups", "DeleteGroups"), LOADING
) | {"Heartbeat": 0}


def test_sound_broker_is_seen_loading_and_passes() -> None:
    with FakeBroker() as broker:
        operator = Puppeteer(broker)
        loads(broker, operator, SOUND)
        found = judged(broker, operator, "A10*,N3*")
    assert {name: result.verdict for name, result in found.items()} == {
        "A10a": CheckVerdict.PASS,
        "A10b": CheckVerdict.PASS,
        "N3a": CheckVerdict.PASS,
        "N3b": CheckVerdict.NOT_APPLICABLE,
    }


@pytest.mark.parametrize(("longest_ms", "is_judged"), [(40_000, True), (10_000, False)])
def test_restarts_keep_to_the_longest_session_that_the_broker_allows(longest_ms: int, is_judged: bool) -> None:
    with FakeBroker(settings=CoordinatorSettings(group_max_session_timeout_ms=longest_ms)) as broker:
        operator = Puppeteer(broker)
        loads(broker, operator, SOUND)
        settings = {"group.max.session.timeout.ms": str(longest_ms)}
        found = judged(broker, operator, "A10a,A10b,N3a", settings)
    verdict = CheckVerdict.PASS if is_judged else CheckVerdict.NOT_APPLICABLE
    assert {name: result.verdict for name, result in found.items()} == dict.fromkeys(("A10a", "A10b", "N3a"), verdict)
    if not is_judged:
        assert "sessions end after 10000 ms at most" in found["N3a"].reason


@pytest.mark.parametrize(("only", "nodes"), [("N3a", 1), ("N3b", 3)])
def test_an_interrupted_restart_leaves_no_broker_down(only: str, nodes: int) -> None:
    with FakeBroker(nodes=nodes) as broker:
        broker._cluster.coordinator_nodes = _Elsewhere(nodes)
        operator = Puppeteer(broker)
        results, ended_early = interrupted(broker, operator, only)
    assert (results, ended_early) == ([], "SIGINT was received")
    assert operator.has_started


def test_an_interrupt_ends_the_run_if_the_broker_does_not_start_again() -> None:
    class Broken(Puppeteer):
        async def start(self, node: int) -> None:
            raise Blocked("the start command ended with 1")

    with FakeBroker() as broker:
        results, ended_early = interrupted(broker, Broken(broker), "A10*,N3a")
    assert (results, ended_early) == ([], "SIGINT was received")


def interrupted(broker: FakeBroker, operator: Puppeteer, only: str) -> tuple[list[Result], str]:
    """The results of a run that is interrupted while a broker stops, and the reason of its end."""
    stop, stopped = RunStopped(), operator.stop

    async def interrupted(node: int) -> None:
        await stopped(node)
        stop.request("SIGINT was received")
        await asyncio.Event().wait()

    async def run() -> tuple[list[Result], str]:
        target = await BrokerUnderTest.reach(broker.bootstrap)
        await target.prepare()
        target.operator = operator
        operator.stop = interrupted  # type: ignore[method-assign]
        found = await play(target, plan(target, CHECKS, Selection.of(only, CHECKS)), stop=stop)
        await target.close()
        return found

    return asyncio.run(run())


def test_an_interrupted_command_ends_before_the_next_one(tmp_path: Path) -> None:
    begun, may_end, log = (tmp_path / name for name in ("begun", "may-end", "log"))
    os.mkfifo(may_end)
    operator = Commands(f"touch {begun}; cat {may_end}; echo stopped >> {log}", f"echo started >> {log}")

    async def run() -> None:
        stopping = asyncio.create_task(operator.stop(1))
        while not begun.exists():
            await asyncio.sleep(0.001)
        stopping.cancel()
        await asyncio.sleep(0)
        await asyncio.to_thread(may_end.write_text, "")
        with pytest.raises(asyncio.CancelledError):
            await stopping
        await operator.start(1)

    asyncio.run(run())
    assert log.read_text().split() == ["stopped", "started"]


def test_broker_that_loads_in_no_time_is_not_judged_on_loading() -> None:
    with FakeBroker() as broker:
        found = judged(broker, Puppeteer(broker), "A10*")
    assert {result.verdict for result in found.values()} == {CheckVerdict.NOT_APPLICABLE}
    assert "before the first request" in found["A10a"].reason


@pytest.mark.parametrize(
    ("api", "code", "check"),
    [
        ("Heartbeat", "UNKNOWN_MEMBER_ID", "A10b"),
        ("Heartbeat", "ILLEGAL_GENERATION", "A10b"),
        ("OffsetCommit", "GROUP_ID_NOT_FOUND", "A10a"),
        ("OffsetFetch", "UNKNOWN_SERVER_ERROR", "A10a"),
        ("DeleteGroups", "GROUP_ID_NOT_FOUND", "A10a"),
        ("JoinGroup", "REBALANCE_IN_PROGRESS", "A10a"),
    ],
)
def test_broker_that_responds_before_it_knows_is_caught(api: str, code: str, check: str) -> None:
    with FakeBroker() as broker:
        operator = Puppeteer(broker)
        loads(broker, operator, SOUND | {api: ErrorCode[code]})
        found = judged(broker, operator, "A10*")
    assert found[check].verdict is CheckVerdict.FAIL
    assert code in found[check].observed


def test_coordinator_that_comes_back_without_offsets_is_caught() -> None:
    with FakeBroker() as broker:

        class Forgetful(Puppeteer):
            async def start(self, node: int) -> None:
                for group in self.broker._cluster.groups.classic.groups.values():
                    group.offsets.clear()
                await super().start(node)

        found = judged(broker, Forgetful(broker), "N3a")
    assert found["N3a"].verdict is CheckVerdict.FAIL
    assert found["N3a"].what == "the offset"


def test_failover_in_a_cluster() -> None:
    with FakeBroker(nodes=3) as broker:
        broker._cluster.coordinator_nodes = _Elsewhere(2)
        found = judged(broker, Puppeteer(broker, moves=True), "N3b")
    assert found["N3b"].verdict is CheckVerdict.PASS, found["N3b"].reason


def test_old_coordinator_that_goes_on_is_caught() -> None:
    with FakeBroker(nodes=3) as broker:
        broker._cluster.coordinator_nodes = _Elsewhere(2)
        broker.control(
            "Heartbeat",
            lambda call: Alter(lambda response: response._replace(error_code=0)) if call.node == 2 else None,
        )
        found = judged(broker, Puppeteer(broker, moves=True), "N3b")
    assert found["N3b"].verdict is CheckVerdict.FAIL
    assert "old coordinator" in found["N3b"].what


class _Elsewhere(dict[str, int]):
    """Coordinators by group; those of groups that were not moved are another than the first node."""

    def __init__(self, node: int) -> None:
        super().__init__()
        self._node = node

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, self._node)


def test_commands_are_run_with_the_broker_s_id(tmp_path: Path) -> None:
    program = f"import pathlib, sys; pathlib.Path({str(tmp_path)!r}, sys.argv[1]).touch()"
    quoted = f'{sys.executable} -c "{program}"'
    operator = Commands(f"{quoted} stopped-{{node}}", f"{quoted} started-{{node}}")
    asyncio.run(operator.stop(3))
    asyncio.run(operator.start(3))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["started-3", "stopped-3"]
    with pytest.raises(Blocked, match="ended with 7"):
        asyncio.run(Commands("exit 7", "").stop(1))
