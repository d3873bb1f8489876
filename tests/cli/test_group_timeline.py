"""`kohort group timeline`: what a member went through, drawn from its tape or from its own account."""

import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kohort import Consumer, TopicPartition
from kohort.assignors import Assignor, GroupView, Plan
from kohort.assignors.cooperative_sticky import CooperativeStickyAssignor
from kohort.assignors.range import RangeAssignor
from kohort.cli.group_timeline import drawing, plain
from kohort.cli.main import main
from kohort.coordinator_client.group.leader_assignment import AssignorFailed
from kohort.coordinator_client.group.states import MemberState, RebalancePhase, RebalanceRecord
from kohort.coordinator_client.hooks import RebalanceCause, RebalanceReason
from kohort.testing import FakeBroker
from tests.support.broker_selection import SelectedBroker


def assignor_name(assignor: str | Assignor) -> str:
    return assignor if isinstance(assignor, str) else type(assignor).__name__


T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
REPORTED = RebalanceRecord(
    RebalanceCause(RebalanceReason.REBALANCE_IN_PROGRESS),
    started_at=2.0,
    ended_at=3.5,
    outcome=MemberState.STABLE,
    generation=7,
    protocol="cooperative-sticky",
    leader=True,
    phases=(
        RebalancePhase(MemberState.REVOKING, 2.0, 2.25),
        RebalancePhase(MemberState.JOINING, 2.25, 3.25),
        RebalancePhase(MemberState.SYNCING, 3.25, 3.5),
    ),
    members_joined=frozenset({"m3"}),
    members_left=frozenset({"m1"}),
    revoked=frozenset({T1}),
    kept=frozenset({T0}),
    added=frozenset({T2}),
    attempts=2,
    commits_refused=((T1, 27),),
    troubles=("a hook raised",),
)


def shown(rebalances: tuple[RebalanceRecord, ...], now: float) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(drawing(rebalances, now))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_member_names_and_reasons_order_the_terminal_nothing() -> None:
    named = REPORTED._replace(members_joined=frozenset({"\x1b[2Jm3"}), troubles=("\x9b2Jraised",))
    said = shown((named,), 9.0)
    assert "came \\x1b[2Jm3" in said
    assert "trouble \\x9b2Jraised" in said
    assert not set(said) & {"\x1b", "\x9b"}


def test_a_rebalance_is_drawn_with_its_cause_phases_moves_and_refusals() -> None:
    text = shown((REPORTED,), 9.0)
    head, bar, *details = text.splitlines()
    assert head.startswith("+2.000 s  the coordinator requested it")
    assert head.endswith("->  generation 7, cooperative-sticky, leader  1.500 s")
    assert bar.split()[0] == "R" * 8 + "J" * 32 + "S" * 8
    assert "joining 1.000 s" in bar
    reported = {line.split()[0]: line.strip() for line in details}
    assert reported["+"] == "+ t 2"
    assert reported["-"] == "- t 1"
    assert reported["kept"] == "kept t 0"
    assert (reported["came"], reported["went"]) == ("came m3", "went m1")
    assert reported["commit"] == "commit refused t-1: REBALANCE_IN_PROGRESS"
    assert reported["trouble"] == "trouble a hook raised"
    assert reported["attempts"] == "attempts 2"


def test_one_under_way_lasts_until_now_and_an_empty_history_says_so() -> None:
    waiting = RebalanceRecord(
        RebalanceCause(RebalanceReason.FIRST_JOIN), 1.0, phases=(RebalancePhase(MemberState.JOINING, 1.0),)
    )
    assert "under way  4.000 s" in shown((waiting,), 5.0)
    assert plain(waiting, 5.0)["ended_s"] is None
    assert shown((), 0.0) == "no rebalance yet\n"


def test_the_rebalances_of_another_process_are_set_apart() -> None:
    cut = REPORTED._replace(outcome=None)
    other = REPORTED._replace(started_at=0.5, ended_at=0.75)
    heads = [line for line in shown((REPORTED, cut, other), 9.0).splitlines() if not line.startswith(" ")]
    assert heads[0].startswith("+2.000 s")
    assert heads[1].endswith("->  the process ended  1.500 s")
    assert heads[2] == "another process, with times of its own"
    assert heads[3].startswith("+0.500 s")


def test_only_the_newest_are_drawn_and_the_rest_is_counted() -> None:
    text = shown((REPORTED,) * 40, 9.0)
    assert text.startswith("(10 earlier rebalances not shown)")
    assert text.count("generation 7") == 30


def test_a_tape_that_is_not_there_is_an_error_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", "timeline", "no.tape"]) == 1
    assert "no such tape" in capsys.readouterr().err


class Mine(RangeAssignor):
    """Passed as an instance, and installed nowhere."""

    name = "mine\x1b[2J"


class MyCooperative(CooperativeStickyAssignor):
    name = "my-cooperative"


@pytest.mark.broker
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky", Mine(), MyCooperative()], ids=assignor_name)
def test_the_tape_of_a_life_tells_what_the_living_consumer_told(
    assignor: str | Assignor, broker: SelectedBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "life.tape"
    quick: Any = {"assignors": [assignor], "heartbeat_interval_ms": 300, "session_timeout_ms": 6_000}
    with Consumer(broker.bootstrap, group=topic, tape=str(path), **quick) as first:
        first.subscribe([topic])
        poll_until(lambda: len(first.assignment) == 3, first)
        with Consumer(broker.bootstrap, group=topic, **quick) as second:
            second.subscribe([topic])
            poll_until(lambda: len(first.assignment) < 3 and bool(second.assignment), first, second)
        # Owned already while the hook is due: the tape goes on until the join is over.
        poll_until(lambda: len(first.assignment) == 3 and first.timeline()[-1].outcome is not None, first)
        living = first.timeline()
        so_far = tmp_path / "so-far.tape"
        so_far.write_text(path.read_text() + '{"time_s": 1')  # as a consumer that is just writing leaves it
    assert main(["group", "timeline", str(so_far), "--json"]) == 0
    reported = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    facts = ("cause", "generation", "protocol", "leader", "outcome", "added", "revoked", "kept", "members_joined")
    assert [[one[fact] for fact in facts] for one in reported] == [
        [plain(each, 0.0)[fact] for fact in facts] for each in living
    ]
    assert len(living) >= 3
    assert main(["group", "timeline", str(so_far)]) == 0
    drawn = capsys.readouterr().out
    assert f"generation {living[0].generation}, {living[0].protocol}".replace("\x1b", "\\x1b") in drawn
    assert "\x1b" not in drawn


class Refuses(Mine):
    def assign(self, group: GroupView) -> Plan:
        raise ValueError("no")


@contextmanager
def taped(path: Path, assignor: Assignor) -> Iterator[Consumer]:
    with (
        FakeBroker(topics={"t": 1}) as fake,
        Consumer(fake.bootstrap, group="g", assignors=[assignor], tape=str(path)) as consumer,
    ):
        consumer.subscribe(["t"])
        yield consumer


def only_outcome(path: Path, capsys: pytest.CaptureFixture[str]) -> str | None:
    assert main(["group", "timeline", str(path), "--json"]) == 0
    outcome: str | None = json.loads(capsys.readouterr().out)["outcome"]
    return outcome


def test_a_plan_of_ones_own_that_failed_did_so_on_the_tape_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "life.tape"
    with taped(path, Refuses()) as consumer:
        with pytest.raises(AssignorFailed):
            poll_until(lambda: False, consumer)
        assert [each.outcome for each in consumer.timeline()] == [MemberState.FAILED]
    assert only_outcome(path, capsys) == "FAILED"


def test_a_plan_of_ones_own_that_is_not_yet_on_the_tape_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "life.tape"
    with taped(path, Mine()) as consumer:
        poll_until(lambda: bool(consumer.assignment), consumer)
    lines = path.read_text().splitlines(keepends=True)
    sync = next(number for number, line in enumerate(lines) if "SyncGroup" in line)
    path.write_text("".join(lines[:sync]))
    assert only_outcome(path, capsys) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_a_tape_comes_by_standard_input_or_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pipe = tmp_path / "life.tape", tmp_path / "pipe"
    with taped(path, Mine()) as consumer:
        poll_until(lambda: bool(consumer.assignment), consumer)
    assert main(["group", "timeline", str(path)]) == 0
    drawn = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.StringIO(path.read_text()))
    assert main(["group", "timeline", "-"]) == 0
    assert capsys.readouterr().out == drawn
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(path.read_text(),), daemon=True)
    writer.start()
    assert main(["group", "timeline", str(pipe)]) == 0
    writer.join()
    assert capsys.readouterr().out == drawn
    assert main(["group", "timeline", "-", "--follow"]) == 1
    assert "--follow needs a file" in capsys.readouterr().err


def poll_until(reached: Callable[[], bool], *consumers: Consumer) -> None:
    while not reached():
        for consumer in consumers:
            consumer.poll(0.1)
