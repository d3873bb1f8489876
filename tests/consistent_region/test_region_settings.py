"""Refused, forced and kept values of a region: settings, start positions, states, and the command that looks."""

import json
import logging
import math
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kohort import ConsistentRegion, Consumer, Producer, TopicPartition
from kohort.cli.main import main
from kohort.consistent_region import (
    DictState,
    FileState,
    Manual,
    MemoryStore,
    OperatorDriven,
    Periodic,
    SqliteState,
    SqlSink,
    StartPosition,
)
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import (
    ConfigurationError,
    DataLossError,
    NotCopartitionedError,
    ResetFailedError,
    TruncationError,
    UnsupportedError,
)
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.open_store import open_store
from kohort.consistent_region.region import consumer_settings, maker
from kohort.consistent_region.start_positions import beginnings, check_log
from kohort.consistent_region.store import SqliteStore
from kohort.consistent_region.tasks import TaskId, TaskMap
from kohort.testing import FakeBroker
from tests.consistent_region.task_calls import cuts, tasks

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))


def region(**changes: Any) -> ConsistentRegion:
    given: dict[str, Any] = {"group": "g", "bootstrap": "127.0.0.1:1", "topics": ["t"], "handler": print}
    return ConsistentRegion("r", **{**given, **changes})


def test_the_time_of_a_checkpoint_is_a_setting() -> None:
    made = region(checkpoint_timeout_s=400.0)
    assert made.settings.checkpoint_timeout_s == made.coordinator.checkpoint_timeout_s == 400.0
    assert made._consumer_settings["max_poll_interval_ms"] == 1_200_000
    assert region().coordinator.checkpoint_timeout_s == 60.0


@pytest.mark.proves("CR-05")
@pytest.mark.parametrize(
    "changes",
    [
        {"start_position": "offset"},
        {"start_position": "time"},
        {"topics": None},
        {"topics": []},
        {"topics": "t"},
        {"topics": 5},
        {"topics": [5]},
        {"topics": [""]},
        {"topics": None, "pattern": 5},
        {"pattern": "t.*"},
        {"commit_point": "now"},
        {"on_commit_failure": "ignore"},
        {"on_data_loss": "latest"},
        {"drain_timeout_s": 0.0},
        {"drain_timeout_s": math.inf},
        {"reset_timeout_s": math.nan},
        {"drain_timeout_s": math.nan},
        {"checkpoint_timeout_s": 0.0},
        {"checkpoint_timeout_s": math.inf},
        {"max_consecutive_resets": 0},
        {"kept_checkpoints": -1},
        {"lease_s": 0.0},
        {"lease_s": math.inf},
        {"lease_s": math.nan},
        {"coordinator": "postgres://x"},
        {"coordinator": "sqlite:///"},
        {"coordinator": None},
        {"coordinator": Path("x.db")},
        {"coordinator": MemoryStore},
        {"auto_offset_reset": "latest"},
        {"protocol": "consumer"},
        {"protocol": "consumer", "hand_over": True},
        {"topics": None, "pattern": "("},
        {"bootstrap": "127.0.0.1"},
        {"group": ""},
        {"max_pol_records": 5},
        {"max_poll_interval_ms": "900000"},
        {"heartbeat_interval_ms": 25_000},
        {"isolation_level": "read"},
        {"on_reset": print},
        {"tasks": "member"},
        {"tasks": {}},
        {"tasks": {"a/b": ["t"]}},
        {"tasks": {"a": "t"}},
        {"tasks": {"a": ["t"], "b": ["t"]}},
        {"tasks": 5},
        {"tasks": ["t"]},
        {"tasks": {5: ["t"]}},
        {"tasks": {"a": 5}},
        {"tasks": {"a": ["t", 5]}},
        {"tasks": {"a": ["u"]}},
        {"state_version": 0},
        {"state_version": 1.5},
        {"state_version": True},
        {"state_version": "2"},
        {"state_version": 1 << 64},
        {"max_consecutive_resets": 1.5},
        {"kept_checkpoints": 2.5},
        {"batch_records": 1.5},
        {"lease_s": 1e300},
        {"lease_s": "30"},
        {"member": 5},
        {"member": "\ud800"},
        {"sinks": {"out": "sqlite:///x.db"}},
        {"sinks": {"out": SqlSink}},
        {"sinks": {5: None}},
        {"sinks": {"": None}},
        {"sinks": {"\ud800": None}},
        {"sinks": ["out"]},
        {"sinks": 5},
        {"trigger": 5.0},
        {"trigger": Periodic},
        {"start_position": 5},
        {"handler": None},
        {"group": None},
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_subscribed(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        region(**changes)


def test_a_name_of_a_region_that_no_record_holds_is_refused() -> None:
    wrongs: tuple[Any, ...] = ("", 5, "\ud800")
    for wrong in wrongs:
        with pytest.raises(ConfigurationError):
            ConsistentRegion(wrong, group="g", bootstrap="127.0.0.1:1", topics=["t"], handler=print)


@pytest.mark.proves("CR-05")
@pytest.mark.parametrize("name", ["handler", "migrate", "on_moment"])
def test_functions_that_cannot_be_called_or_are_not_awaited_are_refused(name: str) -> None:
    async def awaited(*_given: object) -> None: ...

    for wrong in (5, awaited):
        with pytest.raises(ConfigurationError, match=f"{name} is a .*function"):
            region(**{name: wrong})


@pytest.mark.proves("CR-05")
def test_a_state_in_files_keeps_more_copies_than_the_region_checkpoints(tmp_path: Path) -> None:
    task = TaskId("", 0)
    maker(lambda: FileState(tmp_path), 3)(task)
    maker(lambda: FileState(tmp_path, kept=11), 10)(task)
    with pytest.raises(ConfigurationError, match="kept=5"):
        maker(lambda: FileState(tmp_path), 4)(task)


@pytest.mark.proves("CR-05")
def test_what_makes_the_state_of_a_task_is_a_class_or_a_function(tmp_path: Path) -> None:
    class Own(DictState):
        def __init__(self, start: int = 5) -> None:
            super().__init__(n=start)

    def made(state: Any) -> Any:
        return maker(state, 3)(TaskId("clicks", 3))

    assert made(DictState) == {}
    assert made(Own) == {"n": 5}
    assert made(lambda: Own(6)) == {"n": 6}
    assert made(lambda given: DictState(task=str(given))) == {"task": "clicks/3"}
    wrongs: tuple[Any, ...] = (DictState(), SqliteState, lambda one, two: DictState())
    for wrong in wrongs:
        with pytest.raises(ConfigurationError, match="state="):
            region(state=wrong)
    no_states: tuple[Any, ...] = (dict, lambda: None, lambda: DictState)
    for no_state in no_states:
        with pytest.raises(ConfigurationError, match="the state that state= makes"):
            made(no_state)


def test_two_tasks_have_no_folder_in_common(tmp_path: Path) -> None:
    """Each would remove the files of the other, as those of a former owner."""
    make = maker(lambda: FileState(tmp_path), 3)
    make(TaskId("", 0))
    make(TaskId("", 0))
    with pytest.raises(ConfigurationError, match="have a FileState in one folder"):
        make(TaskId("", 1))


def test_two_processes_with_default_settings_have_names_of_their_own() -> None:
    one, two = region(), region()
    assert one._member.name != two._member.name
    assert region(member="one")._member.name == "one"


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("number", ["3", "3", "4"]),
        ("topic", ["orders/3", "payments/3", "orders/4"]),
        ({"sales": ["orders", "payments"]}, ["sales/3", "sales/3", "sales/4"]),
        ({"one": ["orders"], "two": ["payments"]}, ["one/3", "two/3", "one/4"]),
    ],
)
def test_a_partition_belongs_to_the_task_that_the_setting_says(rule: Any, expected: list[str]) -> None:
    places = [TopicPartition("orders", 3), TopicPartition("payments", 3), TopicPartition("orders", 4)]
    tasks = [TaskMap.of(rule).task_of(one) for one in places]
    assert [str(one) for one in tasks] == expected
    assert [TaskId.parsed(str(one)) for one in tasks] == tasks


def test_topics_of_one_set_have_equal_numbers_of_partitions() -> None:
    places = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0)]
    with pytest.raises(NotCopartitionedError, match=r'orders 2, payments 1.*tasks="topic"'):
        TaskMap.of("number").check_counts(places)
    TaskMap.of("topic").check_counts(places)
    TaskMap.of({"a": ["orders"], "b": ["payments"]}).check_counts(places)
    with pytest.raises(ConfigurationError, match="in no set of tasks"):
        TaskMap.of({"a": ["orders"]}).check_counts(places)


@pytest.mark.parametrize("text", ["", "x", "-1", "03", "/3", "a/", "a/x", "\u0663"])
def test_what_names_no_task_is_no_task(text: str) -> None:
    with pytest.raises(ValueError, match="not a task"):
        TaskId.parsed(text)


@pytest.mark.proves("CR-05")
def test_triggers_and_times_are_checked_where_they_are_written() -> None:
    no_periods: tuple[Any, ...] = (0, -5.0, "5", None, True, math.nan)
    for no_period in no_periods:
        with pytest.raises(ConfigurationError):
            Periodic(no_period)
    wrongs: tuple[Any, ...] = (0, 1.5, True)
    for wrong in wrongs:
        with pytest.raises(ConfigurationError):
            OperatorDriven(wrong)
    with pytest.raises(ConfigurationError):
        StartPosition("beginning", time_ms=5)
    no_times: tuple[Any, ...] = (-5, 1.5, "5", 1 << 70)
    for no_time in no_times:
        with pytest.raises(ConfigurationError, match="ms since 1970"):
            StartPosition("time", time_ms=no_time)
    assert StartPosition("time", time_ms=5).time_ms == 5
    assert region(trigger=Manual()).settings.trigger == Manual()


@pytest.mark.proves("CR-04")
def test_a_region_is_not_told_where_to_read() -> None:
    one = region()
    for refused in (one.assign, one.unassign, one.seek):
        with pytest.raises(UnsupportedError):
            refused([P0])
    assert one.metrics()["failed_control_requests_total"] == 3
    assert one.region_state().name == "INITIALIZED"


def settings(**given: Any) -> dict[str, Any]:
    own = {name: given.pop(name) for name in ("together", "hand_over") if name in given}
    topics = given.pop("topics", 1)
    return consumer_settings(given, topics=topics, drain_timeout_s=180.0, reset_timeout_s=200.0, **own)


@pytest.mark.proves("CR-07")
def test_cooperative_assignors_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="kohort.region"):
        assert settings(assignors=["cooperative-sticky", "sticky"])["assignors"] == ["sticky"]
        assert settings(assignors=["cooperative-sticky"])["assignors"] == ["range"]
        assert settings(assignors="cooperative-sticky", topics=2)["assignors"] == ["roundrobin"]
        assert settings(assignors=["roundrobin", "range"], topics=2, together=True)["assignors"] == ["range"]
        assert settings(assignors=["sticky"], topics=2, together=True)["assignors"] == ["range"]
    assert settings(topics=2, together=True, hand_over=True)["assignors"] == ["copartition"]
    assert len(caplog.records) == 5
    assert "cooperative-sticky" in caplog.text


@pytest.mark.proves("CR-07")
def test_assignors_are_named_as_a_consumer_takes_them() -> None:
    java = "org.apache.kafka.clients.consumer.RoundRobinAssignor"
    assert settings(assignors=[java, "range"])["assignors"] == ["roundrobin", "range"]
    assert settings(assignors="range, sticky")["assignors"] == ["range", "sticky"]
    assert settings(assignors=None)["assignors"] == ["range"]


@pytest.mark.proves("CR-08")
def test_settings_that_consistency_requests(caplog: pytest.LogCaptureFixture) -> None:
    made = settings(enable_auto_commit=True)
    assert "enable_auto_commit" in caplog.text
    assert made["enable_auto_commit"] is False
    assert made["isolation_level"] == "read_committed"
    assert settings(isolation_level="read_uncommitted")["isolation_level"] == "read_uncommitted"
    assert made["max_poll_interval_ms"] == 600_000
    assert settings(max_poll_interval_ms=700_000)["max_poll_interval_ms"] == 700_000
    assert made["session_timeout_ms"] == 20_000
    assert settings(group_instance_id="one")["session_timeout_ms"] == 240_000
    assert settings(session_timeout_ms=60_000)["request_timeout_ms"] == 65_000
    assert made["metadata_max_age_ms"] == 2_000


# --- where partitions begin


class Listed(NamedTuple):
    offset: int
    metadata: str = ""


class Logs:
    """Logs that begin at 10 and end at 100, with partition 0 committed at 50; only it has an offset for a time."""

    def committed(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> Mapping[TopicPartition, Any]:
        return {one: Listed(50) if one == P0 else None for one in partitions}

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)

    def end_offsets(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 100)

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Any]:
        return {one: Listed(70) if one == P0 else None for one in times_ms}

    def partitions_for(self, topic: str, *, fresh: bool = False) -> list[TopicPartition]:
        return [TopicPartition(topic, 0), TopicPartition(topic, 1)]


@pytest.mark.proves("CR-11", "CR-12", "CR-13", "CR-14")
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (StartPosition("beginning"), (10, 10)),
        (StartPosition("end"), (100, 100)),
        (StartPosition("default"), (50, 10)),
        (StartPosition("default", otherwise="latest"), (50, 100)),
        (StartPosition("time", time_ms=5), (70, 10)),
        (StartPosition("time", time_ms=5, otherwise="latest"), (70, 100)),
    ],
)
def test_the_first_member_that_sees_a_topic_decides_for_all_of_its_partitions(
    start: StartPosition, expected: tuple[int, int]
) -> None:
    found = beginnings([P0], {}, start, Logs())
    assert {one: at.offset for one, at in found.items()} == {P0: expected[0], P1: expected[1]}


@pytest.mark.proves("CR-15", "CR-66", "CR-78", "A10")
def test_what_has_a_beginning_keeps_it_and_what_comes_later_loses_nothing() -> None:
    known = {P0: RegionPosition(33)}
    assert beginnings([P0], known, StartPosition("end"), Logs()) == {}
    assert beginnings([P0, P2], known, StartPosition("end"), Logs()) == {P2: RegionPosition(10)}
    assert beginnings([P2], known, StartPosition("beginning", discovered="latest"), Logs()) == {P2: RegionPosition(100)}


@pytest.mark.proves("A10", "B-41")
def test_a_topic_that_a_pattern_matches_later_loses_nothing_and_one_added_to_a_list_begins_as_the_others() -> None:
    other = TopicPartition("u", 0)
    known = {P0: RegionPosition(33), P1: RegionPosition(33)}
    at_first = beginnings([P0], {}, StartPosition("end"), Logs(), lambda: [P0, P1, other])
    assert {one: at.offset for one, at in at_first.items()} == {P0: 100, P1: 100, other: 100}
    later = {other: RegionPosition(10), TopicPartition("u", 1): RegionPosition(10)}
    assert beginnings([other], known, StartPosition("end"), Logs(), list) == later
    assert beginnings([other], known, StartPosition("end"), Logs()) == dict.fromkeys(later, RegionPosition(100))
    assert beginnings([other], known | later, StartPosition("end"), Logs(), list) == {}


@pytest.mark.proves("CR-73", "B-40")
def test_a_start_outside_the_log_is_never_passed_over() -> None:
    assert check_log({P0: RegionPosition(10), P1: RegionPosition(100)}, Logs()) == {}
    with pytest.raises(DataLossError, match="log_start=10"):
        check_log({P0: RegionPosition(9)}, Logs())
    assert check_log({P0: RegionPosition(7)}, Logs(), on_data_loss="earliest") == {P0: 3}
    for policy in ("raise", "earliest"):
        with pytest.raises(TruncationError, match="log_end=100"):
            check_log({P0: RegionPosition(101)}, Logs(), on_data_loss=policy)


@pytest.mark.proves("CR-14", "CR-74")
def test_a_start_behind_the_last_stable_offset_is_no_truncation() -> None:
    with (
        FakeBroker(topics={"t": 1}) as broker,
        Producer(broker.bootstrap, transactional_id="slow") as producer,
        Consumer(broker.bootstrap, isolation_level="read_committed") as consumer,
        producer.transaction(),
    ):
        for _ in range(3):
            producer.send("t", b"open")
        producer.flush()
        assert consumer.end_offsets([P0]) == {P0: 0}
        # The former user of the group may have read, and committed, what is not decided yet.
        assert check_log({P0: RegionPosition(3)}, consumer) == {}
        with pytest.raises(TruncationError, match="log_end=3"):
            check_log({P0: RegionPosition(4)}, consumer)


# --- states


def test_a_dict_comes_back_and_says_at_once_what_it_cannot_hold(tmp_path: Path) -> None:
    state = DictState(a=1, b={"c": [1, 2]})
    data = state.snapshot({})
    state["a"] = 2
    state.restore(data, {})
    assert state == {"a": 1, "b": {"c": [1, 2]}}
    state.reset_initial()
    assert state == {}
    others = (
        b"KEFFECT\n\x00\x00\x00\x02{}",
        SqliteState("CREATE TABLE t (n INTEGER)").snapshot({}),
        FileState(tmp_path).snapshot({}),
        b'[["a", 1]]',
        b"5",
    )
    for other in others:
        with pytest.raises(ResetFailedError, match="none of a DictState"):
            state.restore(other, {})
    state.restore(DictState({"a": (1, (2, 3))}).snapshot({}), {})
    assert state == {"a": [1, [2, 3]]}
    wrongs: tuple[Any, ...] = (
        {1: "x"},
        {None: 1},
        {"x": b"bytes"},
        {"x": float("nan")},
        {"x": {1: 2}},
        {"x": [({}, {"y": {1: 2}})]},
    )
    for wrong in wrongs:
        with pytest.raises(ConfigurationError):
            DictState(wrong).snapshot({})


def test_an_sqlite_state_comes_back_with_the_offsets_it_belongs_to() -> None:
    offsets = {P0: RegionPosition(5, 2), P1: RegionPosition(0)}
    state = SqliteState("CREATE TABLE totals (key TEXT PRIMARY KEY, n INTEGER)")
    state.connection.execute("INSERT INTO totals VALUES ('a', 1)")
    data = state.snapshot(offsets)
    state.connection.execute("UPDATE totals SET n = 9")
    state.restore(data, offsets)
    assert state.connection.execute("SELECT * FROM totals").fetchall() == [("a", 1)]
    others = (
        {P0: RegionPosition(6, 2), P1: RegionPosition(0)},
        {P0: RegionPosition(6, 2)},
        {**offsets, P2: RegionPosition(1)},
    )
    for other in others:
        with pytest.raises(ResetFailedError, match="offsets"):
            state.restore(data, other)
    state.restore(data, {P0: RegionPosition(5, 2)})  # the topic of P1 was forgotten
    for damaged in (b"", b"no database", data[:50]):
        with pytest.raises(ResetFailedError):
            state.restore(damaged, offsets)
    assert state.connection.execute("SELECT * FROM totals").fetchall() == [("a", 1)]
    state.reset_initial()
    assert state.connection.execute("SELECT * FROM totals").fetchall() == []


# --- the command


@pytest.fixture
def url(tmp_path: Path) -> str:
    path = tmp_path / "region.db"
    coordinator = RegionCoordinator(SqliteStore(path), "bills", "billing")
    ticket = coordinator.register("one").ticket
    coordinator.put_initial(ticket, {P0: RegionPosition(0)})
    coordinator.take(ticket, 0, 5, 1, tasks(P0))
    for offset in (3, 8):
        barrier = coordinator.begin_checkpoint(ticket, 0).barrier
        assert barrier is not None
        coordinator.contribute(ticket, barrier, cuts({P0: RegionPosition(offset)}, b'{"a":1}'))
    coordinator.store.close()
    return f"sqlite:///{path}"


def test_the_command_shows_regions_checkpoints_and_one_of_them(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    def respond(*arguments: str) -> Any:
        assert main(["region", *arguments, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    status = respond("status", url)
    store = open_store(url)
    (member,) = RegionCoordinator(store, "bills", "billing").record().members.values()
    store.close()
    assert (status["region"], status["group"], status["newest_checkpoint"]) == ("bills", "billing", 2)
    assert status["members"]["one"] == {
        "incarnation": member.incarnation,
        "present": True,
        "in_epoch": True,
        "generation": 5,
        "partitions": 1,
        "state_version": 1,
    }
    assert status["tasks"] == {
        "0": {"owner": "one", "handed_over_by": None, "leaving": False, "state_bytes": 7, "state_version": 1}
    }
    assert [row["sequence"] for row in respond("checkpoints", url)["checkpoints"]] == [1, 2]
    shown = respond("inspect", url, "2", "--group", "billing")
    assert (shown["tasks"][0]["task"], shown["tasks"][0]["by"]) == ("0", "one")
    assert shown["tasks"][0]["offsets"] == {"t-0": 8}
    for arguments, text in (
        (("status", url), "task 0"),
        (("checkpoints", url), "sequence"),
        (("inspect", url, "1"), "t-0"),
    ):
        assert main(["region", *arguments]) == 0
        assert text in capsys.readouterr().out


@pytest.mark.proves("CR-54")
def test_the_command_refuses_what_is_not_there(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["region", "inspect", url, "7"]) == 1
    assert "checkpoint 7 is not known" in capsys.readouterr().err
    assert main(["region", "status", url, "--group", "other"]) == 1
    assert "--group with one of: billing" in capsys.readouterr().err
    mistyped, empty = tmp_path / "mistyped.db", tmp_path / "empty.db"
    assert main(["region", "status", f"sqlite:///{mistyped}"]) == 1
    error = capsys.readouterr().err
    assert "no such coordinator" in error
    assert "name the coordinator that the members use" in error
    assert not mistyped.exists()
    empty.touch()
    assert main(["region", "status", f"sqlite:///{empty}"]) == 1
    assert "has no region" in capsys.readouterr().err
    assert empty.read_bytes() == b""


@pytest.mark.parametrize("name", ["other.db", "a file?mode=memory&x=%41#.db"])
def test_no_command_changes_a_database_of_another_program(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (name TEXT)")
        other.commit()
    before, there = path.read_bytes(), sorted(tmp_path.iterdir())
    for command, *options in (
        ("status",),
        ("checkpoints",),
        ("inspect", "1"),
        ("reset", "--to", "0", "-y"),
        ("begin", "--anew", "-y"),
    ):
        assert main(["region", command, f"sqlite:///{path}", *options]) == 1
        assert "the file has no region" in capsys.readouterr().err
    assert (path.read_bytes(), sorted(tmp_path.iterdir())) == (before, there)
