"""`kohort group` and `kohort topic` as a user types them, on a real broker."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.assignors.range import RangeAssignor
from kohort.cli import connection_options
from kohort.cli.group import _from_file
from kohort.cli.main import main
from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client import Consumer
from kohort.coordinator_client.group.states import MemberState
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce, wait_until
from tests.support.broker_selection import SelectedBroker

Run = Callable[..., Any]


@pytest.fixture
def run(broker: SelectedBroker, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("group", "list", "--json")` is what it printed, parsed if that is JSON; `code=1` expects an error."""

    def ran(*arguments: str, code: int = 0) -> Any:
        assert main([*arguments, "--bootstrap", broker.bootstrap]) == code, capsys.readouterr().err
        printed = capsys.readouterr()
        if code:
            return printed.err
        return json.loads(printed.out) if "--json" in arguments else printed.out

    return ran


@pytest.fixture
def committed(broker: SelectedBroker, topic: str, unique: Callable[[str], str]) -> str:
    """A group that has read 5 of 8 records of partition 0 and has gone."""
    group = unique("group")
    produce(broker.bootstrap, topic, numbers(0, 8))
    with Consumer(broker.bootstrap, group=group) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.commit({TopicPartition(topic, 0): 5})
    return group


def test_a_narrow_terminal_cuts_no_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(connection_options, "PIPE_WIDTH", 60)
    topic, group, instance = "t" * 90, "g" * 90, "x" * 90
    with (
        FakeBroker(topics={topic: 1}) as fake,
        Consumer(fake.bootstrap, group=group, group_instance_id=instance) as consumer,
    ):
        fake.produce(topic, 0, [(None, b"v")])
        consumer.subscribe([topic])
        poll_until(consumer, lambda: bool(consumer.assignment))
        consumer.commit({TopicPartition(topic, 0): 0})
        for typed, letter in (
            (("topic", "list"), "t"),
            (("group", "list"), "g"),
            (("group", "describe", group), "x"),
            (("group", "lag", group), "t"),
            (("plan", "--topic", topic), "t"),
        ):
            assert main([*typed, "-b", fake.bootstrap]) == 0
            printed = capsys.readouterr().out
            assert printed.count(letter) >= 90, typed
            assert "…" not in printed, typed


@pytest.mark.broker
def test_a_group_is_seen_moved_and_deleted(run: Run, committed: str, topic: str, tmp_path: Path) -> None:
    assert committed in run("group", "list")
    assert committed in {one["group"] for one in run("group", "list", "--json")}
    assert run("group", "lag", committed, "--json") == {
        "lag": 3,
        "partitions": [{"topic": topic, "partition": 0, "committed": 5, "end": 8, "lag": 3}],
    }
    assert "3 records wait in 1 partition" in run("group", "lag", committed)
    assert "change" not in run("group", "lag", committed)
    assert run("group", "describe", committed, "--json")["state"] == "Empty"
    assert "committed in 1 partition, where 3 records wait\nno members" in run("group", "describe", committed)
    dry = run("group", "offsets", "reset", committed, "--to", "earliest", "--dry-run", "--json")
    assert dry == {
        "group": committed,
        "changed": False,
        "offsets": [{"topic": topic, "partition": 0, "before": 5, "after": 0}],
    }
    for to, after in (("latest", 8), ("-2", 6), ("3", 3), ("2020-01-01T00:00:00Z", 0), ("PT1H", 0), ("+100", 8)):
        changed = run("group", "offsets", "reset", committed, "--to", to, "--yes", "--json")
        assert [one["after"] for one in changed["offsets"]] == [after], to
    offsets = tmp_path / "offsets.json"
    offsets.write_text(run("group", "offsets", "export", committed))
    run("group", "offsets", "reset", committed, "--to", "0", "--yes")
    run("group", "offsets", "reset", committed, "--file", str(offsets), "--yes")
    assert run("group", "lag", committed, "--json")["lag"] == 0
    assert run("group", "delete", committed, "--json") == {"deleted": [committed]}
    assert "no such group" in run("group", "lag", committed, code=1)
    assert "no such group" in run("group", "offsets", "export", committed, code=1)


@pytest.mark.broker
def test_members_are_seen_and_removed(
    run: Run, broker: SelectedBroker, topic: str, unique: Callable[[str], str]
) -> None:
    group = unique("group")
    produce(broker.bootstrap, topic, numbers(0, 4))
    with Consumer(broker.bootstrap, group=group, group_instance_id="i-1", heartbeat_interval_ms=200) as consumer:
        consumer.subscribe([topic])
        poll_until(consumer, lambda: len(consumer.assignment) == 3)
        consumer.commit({TopicPartition(topic, 0): 1})
        (member,) = run("group", "describe", group, "--json")["members"]
        assert (member["instance_id"], len(member["owned"])) == ("i-1", 3)
        shown = run("group", "describe", group)
        assert f"{topic} 0-2" in shown
        assert "where 3 records wait" in shown
        assert "the group has members" in run("group", "offsets", "reset", group, "--to", "0", "--yes", code=1)
        assert "the group has members" in run("group", "delete", group, "--yes", code=1)
        assert "has no such member" in run("group", "remove-members", group, "i-2", "--yes", code=1)
        removed = run("group", "remove-members", group, "i-1", "--json")
        assert removed == {"group": group, "removed": [member["member_id"]]}
        # It gets the error, and joins again.
        poll_until(consumer, lambda: [one.outcome for one in consumer.timeline()] == [MemberState.STABLE] * 2)
        assert "removed 1 member of" in run("group", "remove-members", group, "--yes")


@pytest.mark.broker
def test_nothing_is_changed_without_a_yes(
    run: Run, committed: str, topic: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_flight = (
        ("group", "offsets", "reset", committed, "--to", "0"),
        ("group", "delete", committed),
        ("group", "remove-members", committed),
        ("topic", "delete", topic),
    )
    for command in in_flight:
        monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
        assert "Aborted" in run(*command, code=1)
    assert run("group", "lag", committed, "--json")["lag"] == 3
    assert topic in {one["topic"] for one in run("topic", "list", "--json")}


@pytest.mark.broker
def test_wrong_words_are_one_line(run: Run, committed: str, tmp_path: Path) -> None:
    assert "neither an offset nor a time" in run("group", "offsets", "reset", committed, "--to", "soon", code=1)
    assert "no offsets are given" in run("group", "offsets", "reset", committed, code=1)
    assert "name topics" in run("group", "offsets", "reset", "nobody", "--to", "latest", code=1)
    broken = tmp_path / "broken.json"
    broken.write_text("[1]")
    assert "not a file of offsets" in run("group", "offsets", "reset", committed, "--file", str(broken), code=1)
    assert "did you mean" in run("group", "list", "-X", "session.timeout=5", code=1)
    assert "-X NAME=VALUE" in run("group", "list", "-X", "session", code=1)
    missing = tmp_path / "missing.properties"
    assert "cannot be read" in run("group", "list", "--config", str(missing), code=1)


@pytest.mark.broker
def test_a_properties_file_of_kafkas_own_tools_will_do(
    broker: SelectedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KOHORT_BOOTSTRAP", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "client.properties"
    file.write_text(f"# ours\nbootstrap.servers={broker.bootstrap}\nkey.serializer=a.b.C\nclient.id=tools\n")
    assert main(["topic", "list", "--config", str(file)]) == 0
    file.write_text("bootstrap.servers")
    assert main(["topic", "list", "--config", str(file)]) == 1
    assert main(["topic", "list"]) == 1


@pytest.mark.broker
def test_topics_are_made_seen_and_deleted(run: Run, unique: Callable[[str], str]) -> None:
    topic = unique("topic")
    created = run("topic", "create", topic, "--partitions", "3", "--setting", "retention.ms=60000", "--json")
    assert created == {"created": topic}
    assert "there already" in run("topic", "create", topic, code=1)
    described = run("topic", "describe", topic, "--json")
    assert described["configs"] == {"retention.ms": "60000"}
    assert [(one["partition"], one["end_offset"]) for one in described["partitions"]] == [(0, 0), (1, 0), (2, 0)]
    assert "retention.ms=60000" in run("topic", "describe", topic)
    assert topic in {one["topic"] for one in run("topic", "list", "--json")}
    assert run("topic", "delete", topic, "--json") == {"deleted": [topic]}
    wait_until(lambda: topic not in {one["topic"] for one in run("topic", "list", "--json")})  # the broker follows
    assert "no such topic" in run("topic", "describe", topic, code=1)


@pytest.mark.broker
def test_one_that_is_missing_keeps_no_other_from_being_deleted(
    run: Run, committed: str, unique: Callable[[str], str], capsys: pytest.CaptureFixture[str], broker: SelectedBroker
) -> None:
    topics = [unique("topic"), unique("topic")]
    for topic in topics:
        run("topic", "create", topic)
    for kind, first, last in (("group", unique("none"), committed), ("topic", *topics)):
        names = (first, last) if kind == "group" else (first, unique("none"), last)
        assert main([kind, "delete", *names, "--yes", "--bootstrap", broker.bootstrap]) == 1
        printed = capsys.readouterr()
        assert printed.out == f"deleted {', '.join((last,) if kind == 'group' else topics)}\n"
        assert f"no such {kind}" in printed.err


def test_a_name_that_the_library_refuses_keeps_no_other_from_being_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker(topics={"one": 1, "two": 1}) as fake:
        assert main(["topic", "delete", "one", "", "two", "--yes", "--bootstrap", fake.bootstrap]) == 1
    printed = capsys.readouterr()
    assert printed.out == "deleted one, two\n"
    assert "empty" in printed.err


@pytest.mark.parametrize("command", [("group",), ("group", "offsets"), ("topic",)])
def test_help_shows_the_way(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker() as fake:
        for group in ("[prod]", "[/prod]"):
            fake.commit(group, {})
        assert main(["group", "list", "--bootstrap", fake.bootstrap]) == 0
    rows = [line.split()[1] for line in capsys.readouterr().out.splitlines() if "classic" in line]
    assert sorted(rows) == ["[/prod]", "[prod]"]


def test_what_others_have_named_orders_the_terminal_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeBroker() as fake:
        fake.commit("\x1b]0;title\x07\x9b2Jg", {})
        assert main(["group", "list", "--bootstrap", fake.bootstrap]) == 0
        assert main(["group", "describe", "no\x1b[2J", "--bootstrap", fake.bootstrap]) == 1
    said = capsys.readouterr()
    assert "\\x1b]0;title\\x07\\x9b2Jg" in said.out
    assert not {*said.out, *said.err} & {"\x1b", "\x07", "\x9b"}


class Orders(RangeAssignor):
    """An assignor with control characters in its name, which every member of a group sends."""

    name = "\x1b]0;assignor\x07"


def test_what_members_call_themselves_orders_the_terminal_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "life.tape")
    with (
        FakeBroker(topics={"t": 1}) as fake,
        Consumer(fake.bootstrap, group="g", client_id="\x9b2Jme", assignors=[Orders()], tape=path) as consumer,
    ):
        consumer.subscribe(["t"])
        poll_until(consumer, lambda: bool(consumer.assignment))
        assert main(["group", "describe", "g", "--bootstrap", fake.bootstrap]) == 0
    described = capsys.readouterr().out
    assert main(["wire", "explain", path, "--only", "JoinGroup"]) == 0
    explained = capsys.readouterr().out
    for said in (described, explained):
        assert "\\x1b]0;assignor\\x07" in said
        assert "\\x9b2Jme" in said
        assert not set(said) & {"\x1b", "\x07", "\x9b"}


@pytest.mark.parametrize("offset", ["5.7", "Infinity", "true", "-1", '"5"', "[5]"])
def test_a_file_of_offsets_holds_nothing_else(offset: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(f'{{"topic": {{"0": {offset}}}}}')
    with pytest.raises(KohortError, match="not a file of offsets"):
        _from_file(file)
    for number in ("0_0", "-1", "x", "+1", " 1", "\uff11", "9" * 5000):
        file.write_text(f'{{"topic": {{"{number}": 5}}}}')
        with pytest.raises(KohortError, match="not a file of offsets"):
            _from_file(file)
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):  # PowerShell's `>` writes the last one
        file.write_text('{"topic": {"0": 5}}', encoding)
        assert _from_file(file) == {TopicPartition("topic", 0): 5}


@pytest.mark.parametrize(
    ("options", "error"),
    [([], "no offsets are given"), (["--to", "5", "--file", "x"], "--to and --file are both given")],
)
def test_offsets_are_given_in_one_way(options: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["group", "offsets", "reset", "group", *options]) == 1
    assert error in capsys.readouterr().err


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    """Ten records in each of two partitions of two topics; of these, `group` has committed 5 in partition 0."""
    with FakeBroker(topics={"one": 2, "two": 2}) as broker:
        for topic in ("one", "two"):
            for partition in (0, 1):
                broker.produce(topic, partition, [(None, b"v")] * 10)
            broker.commit("group", {TopicPartition(topic, 0): 5})
        yield broker


def reset(fake: FakeBroker, *arguments: str, code: int = 0) -> dict[TopicPartition, int]:
    """The committed offsets after `kohort group offsets reset group`."""
    assert main(["group", "offsets", "reset", "group", *arguments, "--yes", "-b", fake.bootstrap]) == code
    return {one: at.offset for one, at in sorted(fake.group("group").offsets.items())}


def test_of_a_file_only_the_topics_that_are_requested(
    fake: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text('{"one": {"0": 1}, "two": {"0": 2}}')
    assert reset(fake, "--file", str(file), "--topic", "two") == {("one", 0): 5, ("two", 0): 2}
    assert reset(fake, "--file", str(file), "--topic", "three", code=1) == {("one", 0): 5, ("two", 0): 2}
    assert "the file has no offsets of these topics" in capsys.readouterr().err
    assert reset(fake, "--file", str(file)) == {("one", 0): 1, ("two", 0): 2}


def test_a_topic_that_is_named_is_moved_as_a_whole(fake: FakeBroker) -> None:
    others = {("two", 0): 5}
    assert reset(fake, "--to", "+2", "--topic", "one") == {("one", 0): 7, **others}
    assert reset(fake, "--to", "latest", "--topic", "one") == {("one", 0): 10, ("one", 1): 10, **others}
    assert reset(fake, "--to", "earliest") == {("one", 0): 0, ("one", 1): 0, ("two", 0): 0}


@pytest.mark.parametrize("to", ["earliest", "latest", "PT1H"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_leader_that_just_moves_is_waited_for(fake: FakeBroker, to: str, which: int) -> None:
    fake.control("ListOffsets", lambda call: Alter(refused) if call.number == which else None)
    moved = reset(fake, "--to", to, "--topic", "one")
    assert moved.keys() == {("one", 0), ("one", 1), ("two", 0)}
    assert moved[TopicPartition("one", 0)] == moved[TopicPartition("one", 1)]


@pytest.mark.parametrize("to", ["earliest", "latest", "PT1H"])
def test_no_partition_is_left_out_for_its_leader_does_not_come(
    fake: FakeBroker, capsys: pytest.CaptureFixture[str], to: str
) -> None:
    fake.control("ListOffsets", lambda call: Alter(refused))
    short = ("-X", "default.api.timeout.ms=1000")
    assert reset(fake, "--to", to, "--topic", "one", *short, code=1) == {("one", 0): 5, ("two", 0): 5}
    assert "leader" in capsys.readouterr().err


def refused(response: Any) -> Any:
    """The response with the error of a former leader in the place of the first partition."""
    topic, *others = response.topics
    moved = topic.partitions[0]._replace(error_code=6, offset=-1, timestamp=-1)
    return response._replace(topics=(topic._replace(partitions=(moved, *topic.partitions[1:])), *others))


def test_of_topics_that_are_gone_nothing_is_moved(fake: FakeBroker) -> None:
    fake.delete_topic("two")
    fake.commit("group", {TopicPartition("two", 0): 5})  # brokers keep such an offset for a moment
    assert reset(fake, "--to", "latest") == {("one", 0): 10, ("two", 0): 5}
