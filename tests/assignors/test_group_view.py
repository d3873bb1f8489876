"""The door of the assignors: what a group may be, and how it is ordered."""

import json
from pathlib import Path

import pytest

from kohort.assignors import BadGroup, GroupView, Plan, PlanError
from kohort.assignors.group_file import from_json, read, to_json
from kohort.common import TopicPartition
from kohort.protocol.membership import parse_assignment


def test_unwanted_topics_and_topics_without_partitions_are_left_out() -> None:
    group = GroupView.of(
        {"b": 2, "a": 3, "unwanted": 5, "empty": 0}, {"m": {"topics": ["b", "a", "ghost", "empty", "a"]}}
    )
    assert group.topics == ("a", "b")
    assert group.topic_offsets == (0, 3, 5)
    assert group.unknown_topics == ("empty", "ghost")
    assert group.members[0].topics == ("a", "b", "empty", "ghost")
    assert group.partition(3) == TopicPartition("b", 0)
    assert [group.index("a", 2), group.index("a", 3), group.index("a", -1), group.index("ghost", 0)] == [
        2,
        None,
        None,
        None,
    ]


def test_static_members_come_first_by_instance_then_the_others_by_id() -> None:
    members: dict[str, dict[str, object]] = {
        "z": {"topics": ["t"], "instance_id": "1"},
        "a": {"topics": ["t"]},
        "b": {"topics": ["t"], "instance_id": "2"},
        "B": {"topics": ["t"]},
    }
    assert [member.id for member in GroupView.of({"t": 1}, members).members] == ["z", "b", "B", "a"]


def test_names_sort_by_utf16_units_as_in_java() -> None:
    late, early = "\N{FULLWIDTH LATIN SMALL LETTER A}", "\N{GRINNING FACE}"  # U+FF41 < U+1F600, but D83D < FF41
    group = GroupView.of({"t": 1}, {name: {"topics": ["t"]} for name in (late, early)})
    assert [member.id for member in group.members] == [early, late]


def test_the_order_of_notifications_to_members_changes_nothing() -> None:
    members = {f"m{number}": {"topics": ["t"]} for number in range(9)}
    turned = dict(reversed(members.items()))
    assert GroupView.of({"t": 4}, members).members == GroupView.of({"t": 4}, turned).members


def test_owned_partitions_in_either_form_and_unknown_ones_dropped() -> None:
    pairs = [("t", 1), ("gone", 0), ("t", 9), ("t", -1)]
    table = {"t": [1, 9, -1], "gone": [0]}
    for owned in (pairs, table):
        group = GroupView.of({"t": 2}, {"m": {"topics": ["t"], "owned": owned}})
        assert list(group.members[0].owned_partitions) == [1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (({"t": -1}, {"m": {"topics": ["t"]}}), "-1 partitions"),
        (({"t": 1}, {"m": {}}), "without a subscription"),
        (({"t": 1}, {"m": {"topics": "t"}}), "one string"),
        (({"t": 1}, {"m": {"topics": ["t"], "racks": "a"}}), "'racks'"),
        (({"t": 2}, {"m": {"topics": ["t"]}}, {"t": [["a"]]}), "racks of 1 partitions"),
        (({"t": 2}, {"m": {"topics": ["t"]}}, None, {("t", 0): -5}), "lag of -5"),
        (({"t": 2**31}, {"m": {"topics": ["t"]}}), "31 bits"),
        (({"t": 1}, {"m": {"topics": ["t"], "generation": 2**31}}), "generation 2147483648"),
        (({"t": 1}, {"m": {"topics": ["t"], "generation": -(2**31) - 1}}), "generation -2147483649"),
        (
            ({"t": 1}, {"a": {"topics": [], "instance_id": "i"}, "b": {"topics": [], "instance_id": "i"}}),
            "instance 'i'",
        ),
    ],
)
def test_groups_that_cannot_be_are_refused_with_their_place(arguments: tuple[object, ...], says: str) -> None:
    with pytest.raises(BadGroup, match=says):
        GroupView.of(*arguments)  # type: ignore[arg-type]


def test_a_group_survives_its_file(tmp_path: Path) -> None:
    group = GroupView.of(
        {"t": 2, "u": 1},
        {
            "a": {"topics": ["t", "ghost"], "owned": [("t", 1)], "generation": 3, "rack": "r", "user_data": b"\0\xff"},
            "b": {"topics": ["t", "u"], "instance_id": "i"},
        },
        {"t": [["r"], []], "u": [["s", "r"]]},
        {("t", 1): 5},
    )
    path = tmp_path / "group.json"
    path.write_text(json.dumps(to_json(group)))
    again = read(path)
    assert (again.topics, again.topic_offsets, again.members) == (group.topics, group.topic_offsets, group.members)
    assert (again.racks, again.lag, again.unknown_topics) == (group.racks, group.lag, group.unknown_topics)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kohort": "plan"}, "not a group"),
        ({"version": 2}, "version 2"),
        ({"partitions": {"t": "2"}}, "partitions.t"),
        ({"partitions": [1]}, "not an object"),
        ({"members": None}, "missing"),
        ({"members": {"m": {}}}, "members.m.topics"),
        ({"members": {"m": {"topics": [1]}}}, r"members.m.topics\[0\]"),
        ({"members": {"m": {"topics": ["t"], "owned": {"t": [True]}}}}, "members.m.owned.t"),
        ({"members": {"m": {"topics": ["t"], "user_data": "%"}}}, "members.m.user_data"),
        ({"members": {"m": {"topics": ["t"], "generation": "1"}}}, "members.m.generation"),
        ({"members": {"m": {"topics": ["t"], "generation": True}}}, "members.m.generation"),
        ({"members": {"m": {"topics": ["t"], "rack": 5}}}, "members.m.rack"),
        ({"racks": {"t": [["a"], [7]]}}, r"racks.t\[1\]\[0\]"),
        ({"racks": {"t": ["a", "b"]}}, r"racks.t\[0\]"),
        ({"lag": {"t": [-1]}}, r"lag.t\[0\]"),
        ({"lag": {"t": [5]}}, "lag of 1 partitions for a topic of 2"),
        ({"lag": {"t": [5, 5, 5]}}, "lag of 3 partitions for a topic of 2"),
    ],
)
def test_a_file_that_is_no_group_is_refused_at_its_field(change: dict[str, object], says: str) -> None:
    good = {"kohort": "group", "version": 1, "partitions": {"t": 2}, "members": {"m": {"topics": ["t"]}}}
    from_json(good)
    with pytest.raises(BadGroup, match=says):
        from_json({**good, **change})


def test_a_file_that_is_not_there_or_not_json_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    for path in (tmp_path / "absent.json", broken):
        with pytest.raises(BadGroup, match=path.name):
            read(path)


def test_a_plan_is_a_mapping_whose_names_come_when_read() -> None:
    group = GroupView.of({"t": 3, "u": 2}, {name: {"topics": ["t", "u"]} for name in "abc"})
    plan = Plan.of(group, {"b": [("u", 1), ("t", 0)], "a": [("t", 2), ("t", 1), ("u", 0)]})
    assert dict(plan) == {"a": [("t", 1), ("t", 2), ("u", 0)], "b": [("t", 0), ("u", 1)], "c": []}
    assert plan["a"][1] == TopicPartition("t", 2)
    assert plan["a"][-2:] == [("t", 2), ("u", 0)]
    assert ("u", 1) in plan["b"]
    assert plan.counts == [3, 2, 0]
    with pytest.raises(KeyError):
        plan["stranger"]


def test_a_plan_goes_to_the_wire_straight_from_its_arrays() -> None:
    group = GroupView.of({"t": 300, "ü": 2}, {name: {"topics": ["t", "ü"]} for name in "ab"})
    plan = Plan.of(group, {"a": [("t", number) for number in range(0, 300, 2)] + [("ü", 1)]})
    for version, user_data in ((0, None), (3, b"told")):
        wire = plan.encode("a", version, user_data)
        read_back = parse_assignment(wire)
        assert wire[:2] == version.to_bytes(2, "big")
        assert read_back.user_data == user_data
        assert [(row.topic, n) for row in read_back.assigned_partitions for n in row.partitions] == list(plan["a"])
    assert parse_assignment(plan.encode("b")).assigned_partitions == ()


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"x": []}, "not in the group"),
        ({"a": [("t", 3)]}, "no member subscribes"),
        ({"a": [("ghost", 0)]}, "no member subscribes"),
        ({"a": [("t", 0)], "b": [("t", 0)]}, "given twice"),
        ({"a": [("t", 0), ("t", 0)]}, "given twice"),
    ],
)
def test_a_plan_of_names_that_contradicts_its_group_is_refused(
    named: dict[str, list[tuple[str, int]]], says: str
) -> None:
    group = GroupView.of({"t": 3}, {name: {"topics": ["t"]} for name in "ab"})
    with pytest.raises(PlanError, match=says):
        Plan.of(group, named)
