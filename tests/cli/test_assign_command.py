"""`kohort assign`: what it says of an event, from numbers, a file and a live group, and what it refuses."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kohort.admin import Admin, GroupMissing
from kohort.assignors import AssignorError, BadGroup, Rebalance, get
from kohort.cli.assigning.events import BadEvent, happen
from kohort.cli.assigning.live import GroupNotReadable, read_group
from kohort.cli.assigning.migration import chosen, plan_migration
from kohort.cli.assigning.simulation import from_numbers, settle, simulate
from kohort.cli.main import main
from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer
from tests.support.broker_selection import SelectedBroker

SIX = ["--topic", "t:12", "--members", "3", "--no-java"]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["assign", "simulate", *arguments, "--json"]) == 0, capsys.readouterr().err
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_a_join_moves_a_share_and_stops_only_that_where_it_is_cooperative(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = said(capsys, *SIX, "-a", "sticky", "-a", "cooperative-sticky", "-e", "join")["outcomes"]
    assert [(o["assignor"], o["moves"], o["stopped"], o["rounds"]) for o in outcomes] == [
        ("sticky", 3, 12, 1),
        ("cooperative-sticky", 3, 3, 2),
    ]
    joined = outcomes[1]["members"][-1]
    assert (joined["member"], joined["before"], joined["after"], joined["kept"]) == ("new-1", 0, 3, 0)
    assert outcomes[1]["after"]["skew"] == 0


def test_a_member_that_leaves_moves_only_what_it_had(capsys: pytest.CaptureFixture[str]) -> None:
    (outcome,) = said(capsys, *SIX, "-a", "cooperative-sticky", "-e", "leave:member-2")["outcomes"]
    assert (outcome["moves"], outcome["forced"], outcome["stopped"], outcome["rounds"]) == (4, 4, 0, 1)
    gone = outcome["members"][-1]
    assert (gone["member"], gone["before"], gone["after"], gone["far"]) == ("member-2", 4, 0, None)
    assert "member-2" not in outcome["after"]["loads"]


def test_a_topic_that_grows_moves_nothing_under_sticky(capsys: pytest.CaptureFixture[str]) -> None:
    (outcome,) = said(capsys, *SIX, "-a", "sticky", "-e", "grow:t:15")["outcomes"]
    assert outcome["moves"] == 0
    assert sum(outcome["after"]["loads"].values()) == 15


def test_a_changed_subscription_moves_what_is_no_longer_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--topic", "t:4", "--topic", "u:4", "--members", "2", "--no-java", "-e", "subscribe:member-1:t"]
    (outcome,) = said(capsys, *arguments)["outcomes"]
    assert all(topic == "t" for topic, _ in outcome["plan"]["member-1"])
    assert outcome["after"]["skew"] == 0


def test_racks_and_lag_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*SIX, "--racks", "3", "--lag", "100", "-a", "range", "-a", "rack-range", "-a", "lag"]
    plain, nearer, lag = said(capsys, *arguments)["outcomes"]
    assert nearer["after"]["far"] == 0
    assert nearer["after"]["loads"] == plain["after"]["loads"]
    assert lag["after"]["lag_spread"] < plain["after"]["lag_spread"]


def test_java_beside_ours(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--topic",
        "t:7",
        "--members",
        "3",
        "-e",
        "leave",
        "-a",
        "range",
        "-a",
        "cooperative-sticky",
        "-a",
        "lag",
    ]
    ranged, sticky, lag = said(capsys, *arguments, "--lag", "5")["outcomes"]
    assert (ranged["java"]["differs"], ranged["java"]["moves"]) == (0, ranged["moves"])
    assert sticky["java"]["moves"] == sticky["moves"]
    assert sticky["java"]["skew"] == sticky["after"]["skew"]
    assert lag["java"] is None


@pytest.mark.parametrize("variable", ["JAVA_HOME", "KOHORT_CACHE"])
def test_without_a_jdk_or_a_cache_it_says_so_and_goes_on(
    variable: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "file" / "folder"))
    (tmp_path / "file").touch()
    document = said(capsys, "--topic", "t:7", "-a", "range")
    assert document["outcomes"][0]["java"] is None
    assert "not compared with Java's plans" in document["notes"][0]


def test_the_page_is_whole_and_its_picture_a_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "deep" / "plan.html"
    said(capsys, *SIX, "-e", "join", "-a", "range", "-a", "sticky", "--report", str(page))
    html = page.read_text()
    assert "<h2>range</h2>" in html
    assert "<h2>sticky</h2>" in html
    assert "new-1" in html
    assert "http://" not in html
    assert "https://" not in html
    image = page.with_suffix(".png").read_bytes()
    assert image.startswith(b"\x89PNG")
    assert len(image) > 10_000


def test_the_page_shows_a_members_name_and_obeys_nothing_in_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    saved, page = tmp_path / "group.json", tmp_path / "plan.html"
    said(capsys, *SIX, "--save", str(saved))
    document = json.loads(saved.read_text())
    document["members"]["<script>x\x1b[31m"] = document["members"].pop("member-1")
    saved.write_text(json.dumps(document))
    said(capsys, str(saved), "--no-java", "--report", str(page))
    html = page.read_text()
    assert "\x1b" not in html
    assert "&lt;script&gt;x\\x1b[31m" in html


def test_tables_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assign", "simulate", *SIX, "-e", "join", "-a", "sticky"]) == 0
    reported = capsys.readouterr().out
    assert "new-1" in reported
    assert "moves" in reported


def test_columns_without_a_value_leave_their_room_to_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assign", "simulate", *SIX, "-e", "join"]) == 0
    without = capsys.readouterr().out
    assert main(["assign", "simulate", *SIX, "-e", "join", "--racks", "3"]) == 0
    with_racks = capsys.readouterr().out
    for column in ("far", "far reads", "lag spread", "records waiting", "differ"):
        assert column not in without
        assert (column in with_racks) == column.startswith("far")


def test_no_name_is_folded_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assign", "simulate", "--topic", "t:3", "--no-java", "-a", "cooperative-sticky"]) == 0
    assert any(line.split()[:1] == ["cooperative-sticky"] for line in capsys.readouterr().out.splitlines()[3:5])


def test_a_saved_group_is_simulated_from_where_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = tmp_path / "group.json"
    said(capsys, *SIX, "--save", str(saved))
    document = json.loads(saved.read_text())
    document["members"]["member-1"]["owned"] = {"t": list(range(12))}
    saved.write_text(json.dumps(document))
    (outcome,) = said(capsys, str(saved), "--no-java")["outcomes"]
    assert outcome["before"]["loads"] == {"member-1": 12, "member-2": 0, "member-3": 0}
    assert (outcome["moves"], outcome["after"]["skew"]) == (8, 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "no group"),
        (["--topic", "t:3", "--group", "g"], "different groups"),
        (["--bootstrap", "127.0.0.1:1"], "add --group"),
        (["--bootstrap", "127.0.0.1:1", "--group", "g"], "cannot reach the broker"),
        (["--topic", "t"], "NAME:PARTITIONS"),
        ([*SIX, "-a", "stiky"], "did you mean 'sticky'"),
        ([*SIX, "-a", "lag"], "the lag is unknown"),
        ([*SIX, "-e", "jion"], "did you mean 'join'"),
        ([*SIX, "-e", "leave:nobody"], "no member 'nobody'"),
        ([*SIX, "-e", "grow:t:3"], "grows to more"),
        ([*SIX, "-e", "grow:t:²"], "grows to more"),
        (["--topic", "t:²"], "NAME:PARTITIONS"),
        (["--topic", "t:1" + "0" * 5_000], "NAME:PARTITIONS"),
        (["--topic", "t:1999999", "--topic", "u:2"], "the topics have 2000001 partitions, more than 2,000,000"),
        ([*SIX, "-e", "grow:t:2000000000"], "more than 2,000,000"),
        ([*SIX, "--lag", str(2**63)], "9223372036854775808 is not a number of records"),
        ([*SIX, "-e", "grow:tt:30"], "did you mean 't'"),
        ([*SIX, "-e", "join:member-1"], "already"),
        ([*SIX, "-e", "join:a:b:c"], "too many parts"),
        (["absent.json"], "cannot read a group"),
    ],
)
def test_what_cannot_be_is_one_clear_error(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assign", "simulate", *arguments]) == 1
    reported = capsys.readouterr().err
    assert says in reported
    assert "Traceback" not in reported


def test_a_topic_without_partitions_grows(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--topic", "t:0", "--members", "2", "--racks", "2", "--lag", "9", "--no-java", "-e", "grow:t:4"]
    (outcome,) = said(capsys, *arguments)["outcomes"]
    assert outcome["after"]["loads"] == {"member-1": 2, "member-2": 2}


def test_events_leave_the_document_they_change_as_it_was() -> None:
    document = from_numbers(["t:3"], 2, 2, 10)
    as_it_was = json.dumps(document)
    grown = happen(document, "grow:t:5")
    assert (len(grown["racks"]["t"]), len(grown["lag"]["t"]), grown["partitions"]["t"]) == (5, 5, 5)
    assert happen(document, "join")["members"]["new-1"]["rack"] == "rack-1"
    assert json.dumps(document) == as_it_was
    with pytest.raises(BadEvent, match="no member to leave"):
        happen({**document, "members": {}}, "leave")


def test_a_file_that_is_no_group_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"kohort": "group", "version": 1}')
    with pytest.raises(BadGroup, match="missing"):
        simulate(json.loads(path.read_text()), get("range"), None, None)


def test_a_settled_group_stays_settled_under_every_assignor() -> None:
    from kohort.assignors.group_file import from_json

    group = from_json(from_numbers(["t:10", "u:7"], 4, 3, 50))
    for name in (
        "range",
        "roundrobin",
        "sticky",
        "cooperative-sticky",
        "weighted",
        "copartition",
        "lag",
        "rack-sticky",
    ):
        plan, rounds = settle(group, get(name))
        assert (sum(plan.counts), rounds) == (17, 1), name


@pytest.mark.parametrize(
    ("old", "new"),
    [("range", "cooperative-sticky"), ("cooperative-sticky", "range"), ("range", "sticky"), ("weighted", "lag")],
)
def test_a_migration_never_leaves_a_member_without_a_common_assignor(old: str, new: str) -> None:
    bounces = plan_migration(get(old), get(new), 5)
    lists: list[tuple[str, ...]] = [(old,)] * 5
    in_use = old
    for bounce in bounces:
        for member in range(5):
            lists[member] = bounce.settings
            assert chosen(lists) == bounce.used[member + 1]  # raises where they share nothing
        assert bounce.used[0] == in_use
        in_use = bounce.used[-1]
    assert in_use == new
    assert set(lists) == {(new,)}
    cooperative = {bounce.settings: bounce.mode is Rebalance.COOPERATIVE for bounce in bounces}
    both = get(old).rebalance is get(new).rebalance is Rebalance.COOPERATIVE
    assert cooperative[(new, old)] is both


def test_one_bounce_alone_would_be_refused_by_the_coordinator() -> None:
    with pytest.raises(AssignorError, match="share no assignor"):
        chosen([("cooperative-sticky",), ("range",), ("range",)])


def test_the_migration_has_both_clients_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assign", "plan-migration", "range", "cooperative-sticky", "--members", "4"]) == 0
    reported = capsys.readouterr().out
    assert "assignors=['cooperative-sticky', 'range']" in reported
    assert "CooperativeStickyAssignor,org.apache.kafka.clients.consumer.RangeAssignor" in reported
    assert "until 4 of 4" in reported
    assert main(["assign", "plan-migration", "range", "range"]) == 0
    assert capsys.readouterr().out == "No restart is needed: the group uses 'range' already.\n"
    assert main(["assign", "plan-migration", "range", "sticky", "--json"]) == 0
    bounces = json.loads(capsys.readouterr().out)["bounces"]
    assert [(each["used_before"], each["used_after"]) for each in bounces] == [
        ("range", "sticky"),
        ("sticky", "sticky"),
    ]
    assert all(a["used_after"] == b["used_before"] for a, b in pairwise(bounces))


@pytest.mark.broker
def test_a_live_group_is_read_with_its_lag(
    broker: SelectedBroker,
    make_topic: Callable[..., str],
    unique: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    from confluent_kafka import Producer

    topic, group = make_topic(4), unique("live")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, b"x", partition=number % 2)
    assert producer.flush(20) == 0
    with (
        Admin(broker.bootstrap) as admin,
        Consumer(broker.bootstrap, group=group, assignors=["range"]) as consumer,
    ):
        with pytest.raises(GroupMissing):
            read_group(admin, group)
        consumer.subscribe([topic])
        limit = time.monotonic() + 120
        while not consumer.assignment:
            assert time.monotonic() < limit
            consumer.poll(0.1)
        consumer.pause(consumer.assignment)
        document, assignor = read_group(admin, group)
        assert assignor == "range"
        (member,) = document["members"].values()
        assert (member["topics"], member["owned"]) == ([topic], {topic: [0, 1, 2, 3]})
        assert document["partitions"] == {topic: 4}
        assert document["lag"] == {topic: [5, 5, 0, 0]}
        arguments = ["--bootstrap", broker.bootstrap, "--group", group, "-e", "join", "--no-java"]
        (outcome,) = said(capsys, *arguments)["outcomes"]
    assert (outcome["assignor"], outcome["moves"], outcome["after"]["skew"]) == ("range", 2, 0)
    assert outcome["before"]["lag_spread"] == 0
    with Admin(broker.bootstrap) as admin:
        admin.reset_offsets(group, {TopicPartition(topic, 0): 0})
        with pytest.raises(GroupNotReadable, match="Empty"):
            read_group(admin, group)


@pytest.mark.parametrize("where", ["/", ".", "plan.png", "plan.PNG"])
def test_a_page_that_cannot_be_or_would_be_its_own_picture_is_a_usage_error(
    where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["assign", "simulate", *SIX, "--no-java", "--report", where]) == 2
    assert "--report" in capsys.readouterr().err


def test_a_page_without_its_library_is_one_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["assign", "simulate", *SIX, "--no-java", "--report", str(tmp_path / "plan.html")]) == 1
    assert capsys.readouterr().err.endswith("which is not installed; pip install matplotlib\n")


@pytest.mark.parametrize("option", ["--save", "--report"])
def test_a_file_that_cannot_be_written_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str
) -> None:
    (tmp_path / "file").touch()
    where = tmp_path / "file" / "group.json"
    assert main(["assign", "simulate", "--topic", "t:3", "--no-java", option, str(where)]) == 1
    reported = capsys.readouterr().err
    assert "the file cannot be written: " in reported
    assert reported.endswith(f"(path={where})\n")
