"""Plans are checked where they are made: a wrong one names its assignor and can be replayed."""

from __future__ import annotations

import json
import runpy
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kohort.assignors import AssignorError, GroupView, MemberSubscription, Plan, PlanError, Rebalance, make_plan, replay
from kohort.assignors.run_assignor import MOST_REPLAYS
from kohort.common import TopicPartition

EXAMPLE = Path(__file__).parents[2] / "examples" / "first_letter_assignor.py"
Made = Mapping[str, Iterable[tuple[str, int]]]


class Users:
    """An assignor of a user: its plan is the result of `make`."""

    name = "users/own"

    def __init__(self, make: Callable[[GroupView], Any], rebalance: Rebalance = Rebalance.EAGER) -> None:
        self.make, self.rebalance = make, rebalance

    def subscription(
        self, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int
    ) -> MemberSubscription:
        return MemberSubscription(tuple(topics))

    def assign(self, group: GroupView) -> Plan:
        made: Plan = self.make(group)
        return made


def two_members(**said: Any) -> GroupView:
    members = {"a": {"topics": ["t"]}, "b": {"topics": ["t", "u"], **said}}
    return GroupView.of({"t": 2, "u": 1}, members)


GOOD: Made = {"a": [("t", 0)], "b": [("t", 1), ("u", 0)]}


def test_a_good_plan_may_be_a_plain_mapping(tmp_path: Path) -> None:
    plan = make_plan(Users(lambda group: GOOD), two_members(), replay_dir=tmp_path)
    assert plan == GOOD
    assert list(tmp_path.iterdir()) == []


WRONG: dict[str, tuple[Any, str]] = {
    "twice": ({**GOOD, "a": [("t", 0), ("t", 1)]}, r"given twice.*topic=t, partition=1"),
    "missing": ({"a": [("t", 0)], "b": [("u", 0)]}, r"without an owner.*topic=t, partition=1"),
    "a stranger": ({"a": [("t", 0), ("u", 0)], "b": [("t", 1)]}, r"does not subscribe.*topic=u, partition=0, member=a"),
    "not in the group": ({**GOOD, "c": []}, r"not in the group.*member=c"),
    "no such partition": ({**GOOD, "a": [("t", 0), ("t", 7)]}, r"partition=7"),
    "not a mapping": (None, r"it raised \w+Error"),
    "not partitions": ({"a": [1]}, r"it raised \w+Error"),
    "a plan of another group": (Plan.of(two_members(), {}), r"without an owner"),
}


@pytest.mark.parametrize(("made", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_plan_is_refused_by_name_and_replays(made: Any, says: str, tmp_path: Path) -> None:
    assignor = Users(lambda group: made)
    group = two_members(rack="r", user_data=b"\xff\0", owned=[("u", 0)], generation=3)
    with pytest.raises(PlanError, match=says) as refused:
        make_plan(assignor, group, replay_dir=tmp_path)
    assert "assignor=users/own" in str(refused.value)
    (saved,) = tmp_path.iterdir()
    assert refused.value.place["replay"] == saved
    document = json.loads(saved.read_text())
    assert document["assignor"] == "users/own"
    with pytest.raises(PlanError, match=says):
        replay(saved, assignor)
    cured = replay(saved, Users(lambda group: GOOD))
    assert cured.group.members == group.members


def test_an_exception_of_the_users_is_the_cause(tmp_path: Path) -> None:
    def fail(group: GroupView) -> Plan:
        raise ZeroDivisionError("their own words")

    with pytest.raises(PlanError, match=r"users/own.*ZeroDivisionError: their own words.*replay") as refused:
        make_plan(Users(fail), two_members(), replay_dir=tmp_path)
    assert isinstance(refused.value.__cause__, ZeroDivisionError)


def test_a_folder_that_cannot_be_written_does_not_hide_the_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PlanError, match="without an owner") as refused:
        make_plan(Users(lambda group: {}), two_members(), replay_dir=tmp_path / "file")
    assert "replay" not in refused.value.place


@pytest.mark.proves("G-08")
def test_a_cooperative_plan_must_not_give_away_what_is_held(tmp_path: Path) -> None:
    group = two_members(owned=[("t", 0)], generation=1)
    hasty = Users(lambda group: GOOD, Rebalance.COOPERATIVE)
    with pytest.raises(PlanError, match=r"given away while another member holds it.*topic=t, partition=0, member=a"):
        make_plan(hasty, group, replay_dir=tmp_path)
    assert make_plan(Users(lambda group: GOOD), group, replay_dir=tmp_path) == GOOD  # eager members hold nothing
    patient = Users(lambda group: {"a": [], "b": [("t", 1), ("u", 0)]}, Rebalance.COOPERATIVE)
    assert list(make_plan(patient, group, replay_dir=tmp_path)["a"]) == []
    forgetful = Users(lambda group: {"b": [("u", 0)]}, Rebalance.COOPERATIVE)
    with pytest.raises(PlanError, match=r"without an owner.*partition=1"):
        make_plan(forgetful, group, replay_dir=tmp_path)


def test_a_replay_runs_the_assignor_that_it_names(tmp_path: Path) -> None:
    class Broken(Users):
        name = "range"

    with pytest.raises(PlanError) as refused:
        make_plan(Broken(lambda group: {}), two_members(), replay_dir=tmp_path)
    saved = Path(str(refused.value.place["replay"]))
    assert sum(replay(saved).counts) == 3
    saved.write_text(json.dumps({**json.loads(saved.read_text()), "assignor": None}))
    with pytest.raises(AssignorError, match="names no assignor"):
        replay(saved)


def test_the_tutorial_prints_its_plan(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [
        "left: apples-0, apples-1, apricots-0",
        "right: bananas-0, bananas-1, bananas-2",
    ]


def refused_replay(number: int) -> Path:
    """The path at which the group of a refused plan was kept; each number makes another group."""
    with pytest.raises(PlanError) as refused:
        make_plan(Users(lambda group: None), two_members(rack=f"rack-{number}"))
    path = refused.value.place["replay"]
    assert isinstance(path, Path)
    return path


def test_replays_are_private_and_only_the_newest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    paths = [refused_replay(number) for number in range(12)]
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert set(folder.iterdir()) == set(paths[-MOST_REPLAYS:])
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert refused_replay(11) == paths[-1]  # the same group is the same file


def test_a_replay_is_not_written_through_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    replay_file = refused_replay(1)
    replay_file.unlink()
    target = tmp_path / "target"
    target.write_text("before")
    replay_file.symlink_to(target)
    refused_replay(1)
    assert target.read_text() == "before"
    replay_file.parent.rename(tmp_path / "aside")
    replay_file.parent.symlink_to(tmp_path)
    with pytest.raises(PlanError) as refused:
        make_plan(Users(lambda group: None), two_members(rack="r"))
    assert "replay" not in refused.value.place
