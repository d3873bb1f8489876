"""Runs that a signal ends, and waits that would last too long: what was judged is reported."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kohort.cli import conformance
from kohort.cli.main import main
from kohort.conformance.broker_under_test import BrokerUnderTest
from kohort.conformance.catalogue import CHECKS
from kohort.conformance.check import Selection
from kohort.conformance.check_context import CheckContext
from kohort.conformance.errors import Blocked
from kohort.conformance.report import Report
from kohort.conformance.retry_timing import BRIEF_S, TRIES, Expected
from kohort.conformance.runner import RunStopped, conduct
from kohort.conformance.verdict import CheckVerdict, Result
from kohort.testing.fake_broker import Alter, Call, Drop, FakeBroker, Hold
from tests.conformance.bending import altered, code

BY_ID = {check.id: check for check in CHECKS}


def conducted(broker: FakeBroker, only: str, stop: RunStopped | None = None, **how: object) -> Report:
    async def run() -> Report:
        target = await BrokerUnderTest.reach(broker.bootstrap)
        return await conduct(target, CHECKS, selection=Selection.of(only, CHECKS), timing=False, stop=stop, **how)  # type: ignore[arg-type]

    return asyncio.run(run())


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_and_every_report_is_written(
    number: signal.Signals, exit_code: int, tmp_path: Path
) -> None:
    with FakeBroker() as broker:
        # From here on Heartbeat has no response, so the run stands still among its checks until the signal.
        hold = Hold()
        broker.control("Heartbeat", lambda call: hold)
        output = tmp_path / "report"
        command = [
            sys.executable,
            "-m",
            "kohort.cli.main",
            "conformance",
            "--bootstrap",
            broker.bootstrap,
            "--only",
            "B1,B4,D3c",
            "--at-a-time",
            "64",
            "--json",
            "--output",
            str(output),
        ]
        for kind in ("html", "md", "json", "junit"):
            command += ["--report", kind]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ) as running:
            assert hold.reached.wait(120)
            running.send_signal(number)
            said, complained = running.communicate(timeout=120)
        hold.release()
        assert running.returncode == exit_code, complained
        response = json.loads(said)
        assert response["ended_early"] == f"{number.name} was received"
        assert response["left_behind"] == []
        assert not any(entry["check"] == "D3c" for entry in response["results"])
        assert json.loads(output.with_suffix(".json").read_text()) == response
        assert f"**The run ended early: {number.name} was received.**" in output.with_suffix(".md").read_text()
        assert output.with_suffix(".html").stat().st_size > 20_000
        assert ElementTree.parse(output.with_suffix(".xml")).find("testsuite[@name='run']/testcase/error") is not None
        assert broker._cluster.groups.classic.groups == {}


def test_the_first_request_to_stop_keeps_what_was_judged_and_cleans_up() -> None:
    with FakeBroker() as broker:
        stop, seen = RunStopped(), list[Result]()

        def count(result: Result) -> None:
            seen.append(result)
            if len(seen) == 5:
                stop.request("enough")

        report = conducted(broker, "B*", stop, on_result=count, at_a_time=1)
        assert 5 <= len(report.results) < 20
        assert {result.verdict for result in report.results} <= {CheckVerdict.PASS, CheckVerdict.NOT_APPLICABLE}
        assert (report.ended_early, report.left_behind, report.exit_code) == ("enough", (), 3)
        assert broker._cluster.groups.classic.groups == {}


def test_the_second_request_ends_cleaning_up_too() -> None:
    with FakeBroker() as broker:
        stop, hold = RunStopped(), Hold()
        broker.control("DeleteGroups", lambda call: hold)

        def twice(result: Result) -> None:
            stop.request("first")
            stop.request("second")

        report = conducted(broker, "B4", stop, on_result=twice, at_a_time=1)
        hold.release()
        assert report.ended_early == "first"
        assert "cleaning up was interrupted" in report.left_behind[0]


def test_a_request_to_stop_before_the_first_check_is_reported_as_well() -> None:
    with FakeBroker() as broker:
        stop = RunStopped()
        stop.request("at once")
        report = conducted(broker, "B4", stop)
        assert (report.results, report.ended_early, report.exit_code) == ((), "at once", 3)


def test_a_run_that_nothing_stops_comes_to_its_end() -> None:
    with FakeBroker() as broker:
        report = conducted(broker, "B4", RunStopped())
        assert (report.ended_early, report.exit_code) == ("", 0)


def test_what_never_came_is_waited_for_a_moment_only() -> None:
    expected = Expected()
    for _ in range(TRIES):
        assert expected.patience_s(6.0) == 6.0
        expected.missed += 1
    assert expected.patience_s(6.0) == BRIEF_S
    assert expected.patience_s(0.1) == 0.1
    expected.came += 1
    assert expected.patience_s(6.0) == 6.0


@pytest.mark.full
def test_waits_end_early_and_in_growing_steps_once_they_were_in_vain() -> None:
    """The number of Heartbeats that a broker without REBALANCE_IN_PROGRESS costs is bounded."""
    with FakeBroker() as broker:
        altered("Heartbeat", code("REBALANCE_IN_PROGRESS", "NONE"))(broker)

        async def run() -> tuple[list[int], Expected]:
            target = await BrokerUnderTest.reach(broker.bootstrap)
            counts = []
            for serial in range(TRIES + 1):
                scene = CheckContext(target, BY_ID["D2a"], 4, serial)
                (leader,) = await scene.stable(1)
                before = len(broker.calls_of("Heartbeat"))
                with pytest.raises(Blocked, match="REBALANCE_IN_PROGRESS"):
                    await scene.rebalancing(leader)
                counts.append(len(broker.calls_of("Heartbeat")) - before)
                await scene.close()
            await target.close()
            return counts, target.expected["Heartbeat", 4]

        counts, expected = asyncio.run(run())
    assert max(counts[:TRIES]) <= 40, "steps of 30 ms would be 200"
    assert counts[TRIES] <= 15
    assert (expected.came, expected.missed) == (0, TRIES + 1)


def test_a_response_that_lacks_what_a_check_reads_is_a_fail() -> None:
    with FakeBroker() as broker:
        broker.control("DeleteGroups", lambda call: Alter(lambda response: response._replace(results=())))
        report = conducted(broker, "H4b@2")
    (result,) = report.results
    assert result.verdict is CheckVerdict.FAIL
    assert "the response's shape" in result.reason


@contextmanager
def before_reports(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> Iterator[None]:
    """The command gets the signals after its run, as the first report is made."""
    rendered = conformance._rendered
    left = list(numbers)

    def interrupted(report: Report, kind: conformance.Format) -> str:
        while left:
            signal.raise_signal(left.pop(0))
        return rendered(report, kind)

    monkeypatch.setattr(conformance, "_rendered", interrupted)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    assert {number: signal.getsignal(number) for number in before} == before


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_after_the_run_does_not_keep_reports_from_being_written(
    number: int, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "report"
    with FakeBroker() as broker, before_reports(monkeypatch, number):
        command = ["conformance", "--bootstrap", broker.bootstrap, "--only", "D3c", "--output", str(output)]
        assert main([*command, "--report", "json", "--report", "md"]) == exit_code
    assert json.loads(output.with_suffix(".json").read_text())["ended_early"] == ""
    assert output.with_suffix(".md").exists()


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_second_signal_after_the_run_ends_the_command(
    number: int, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "report"
    with FakeBroker() as broker, before_reports(monkeypatch, number, number):
        command = ["conformance", "--bootstrap", broker.bootstrap, "--only", "D3c", "--output", str(output)]
        try:
            ended_with: object = main([*command, "--report", "json"])
        except SystemExit as end:
            ended_with = end.code
    assert ended_with == exit_code
    assert not output.with_suffix(".json").exists()


def test_a_signal_while_a_started_broker_stops_is_one_after_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output, stopped = tmp_path / "report", []

    @contextmanager
    def started(*_: object) -> Iterator[tuple[str, str, str, None]]:
        with FakeBroker() as broker:
            yield broker.bootstrap, "", "", None
            signal.raise_signal(signal.SIGINT)
            stopped.append(True)

    monkeypatch.setattr(conformance, "_broker", started)
    monkeypatch.setenv("KOHORT_BOOTSTRAP", "127.0.0.1:1")  # the option wins
    command = ["conformance", "--start", "4.3.1", "--only", "D3c", "--output", str(output), "--report", "json"]
    assert main(command) == 130
    assert stopped
    assert output.with_suffix(".json").exists()


def test_a_signal_before_the_run_ends_the_command_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def reach(*_: object) -> BrokerUnderTest:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the signal did not raise")

    monkeypatch.setattr(BrokerUnderTest, "reach", reach)
    output = tmp_path / "report"
    assert main(["conformance", "--bootstrap", "127.0.0.1:1", "--output", str(output), "--report", "json"]) == 130
    assert not output.with_suffix(".json").exists()


def test_a_broker_that_never_signals_a_rebalance_fails_its_rows_and_is_not_asked_without_end() -> None:
    """In every version: none is blocked, though their set-ups wait for the signal as well."""
    with FakeBroker() as broker:
        altered("Heartbeat", code("REBALANCE_IN_PROGRESS", "NONE"))(broker)
        report = conducted(broker, "B16,B17,D2a,E7")
        heartbeats = len(broker.calls_of("Heartbeat"))
    assert {result.check for result in report.results} == {"B16", "B17", "D2a", "E7"}
    assert [result.cell for result in report.results if result.verdict is not CheckVerdict.FAIL] == []
    assert {result.what.partition(" of ")[0] for result in report.results} == {"Heartbeat"}
    assert heartbeats < 60 * len(report.results)


def test_topics_whose_creation_was_interrupted_are_removed() -> None:
    stop = RunStopped()

    async def run(broker: FakeBroker) -> Report:
        loop = asyncio.get_running_loop()

        def interrupt(_call: object) -> None:
            loop.call_soon_threadsafe(stop.request, "enough")

        broker.control("CreateTopics", interrupt)
        target = await BrokerUnderTest.reach(broker.bootstrap)
        return await conduct(target, CHECKS, stop=stop)

    with FakeBroker() as broker:
        report = asyncio.run(run(broker))
        assert report.ended_early == "enough"
        assert report.left_behind == ()
        assert not [name for name in broker._cluster.topics if name.startswith("kohort-conformance")]


@pytest.mark.parametrize(
    ("only", "api", "versions"),
    [("M10", "ConsumerGroupHeartbeat", 2), ("R2a", "ShareGroupHeartbeat", 1), ("S2a", "StreamsGroupHeartbeat", 2)],
)
def test_members_whose_first_heartbeat_was_interrupted_leave(only: str, api: str, versions: int) -> None:
    """In version 0 of ConsumerGroupHeartbeat the coordinator gives the id, which the run then does not know."""
    stop = RunStopped()
    joined: list[str] = []

    async def run(broker: FakeBroker) -> Report:
        loop = asyncio.get_running_loop()

        def interrupt(call: Call) -> Drop | None:
            request: Any = call.request
            if request.member_epoch != 0:
                return None
            joined.append(request.group_id)
            if len(joined) == versions:
                loop.call_soon_threadsafe(stop.request, "enough")
            return Drop(after_work=True)

        broker.control(api, interrupt)
        target = await BrokerUnderTest.reach(broker.bootstrap)
        return await conduct(target, CHECKS, selection=Selection.of(only, CHECKS), stop=stop)

    with FakeBroker() as broker:
        report = asyncio.run(run(broker))
        assert len(joined) == versions
        assert (report.ended_early, report.left_behind) == ("enough", ())
        assert broker._cluster.groups.all() == []
