"""range, roundrobin, sticky and cooperative-sticky: their rules one by one. The oracle is in test_against_java.py."""

from __future__ import annotations

import random
from types import ModuleType

import pytest

from kohort.assignors import GroupView, Plan, get, make_plan
from kohort.assignors.cooperative_sticky import CooperativeStickyAssignor
from kohort.common import TopicPartition
from kohort.protocol.codec import Message
from kohort.protocol.membership import (
    CooperativeStickyUserData,
    StickyUserData,
    TopicPartitions,
    build_cooperative_sticky,
    parse_cooperative_sticky,
    parse_sticky,
)

Members = dict[str, dict[str, object]]


def all_of(topics: str | list[str], *members: str) -> Members:
    return {member: {"topics": list(topics)} for member in members}


def test_range_cuts_each_topic_into_runs_the_first_ones_longer(core: ModuleType) -> None:
    plan = get("range").assign(GroupView.of({"t": 5, "u": 1}, all_of("tu", "a", "b", "c")))
    assert plan == {"a": [("t", 0), ("t", 1), ("u", 0)], "b": [("t", 2), ("t", 3)], "c": [("t", 4)]}


def test_range_puts_equal_topics_together_even_with_racks(core: ModuleType) -> None:
    members = {name: {"topics": ["t", "u"], "rack": rack} for name, rack in (("a", "1"), ("b", "2"), ("c", "3"))}
    racks = {"t": [["3"], ["2"], ["1"]], "u": [["3"], ["2"], ["1"]]}
    plan = get("range").assign(GroupView.of({"t": 3, "u": 3}, members, racks))
    assert plan == {"a": [("t", 2), ("u", 2)], "b": [("t", 1), ("u", 1)], "c": [("t", 0), ("u", 0)]}


def test_range_ignores_racks_that_every_partition_has(core: ModuleType) -> None:
    members: Members = {"a": {"topics": ["t"], "rack": "2"}, "b": {"topics": ["t"], "rack": "1"}}
    plan = get("range").assign(GroupView.of({"t": 2}, members, {"t": [["1", "2"], ["2", "1"]]}))
    assert plan == {"a": [("t", 0)], "b": [("t", 1)]}


def test_roundrobin_deals_and_passes_over_members_without_the_topic(core: ModuleType) -> None:
    members: Members = {"a": {"topics": ["t"]}, "b": {"topics": ["t", "u"]}, "c": {"topics": ["u"]}}
    plan = get("roundrobin").assign(GroupView.of({"t": 3, "u": 3}, members))
    assert plan == {"a": [("t", 0), ("t", 2)], "b": [("t", 1), ("u", 0), ("u", 2)], "c": [("u", 1)]}


def reported(owned: list[tuple[str, int]], generation: int) -> bytes:
    subscription = get("sticky").subscription(["t"], [TopicPartition(*each) for each in owned], generation)
    assert subscription.owned_partitions == ()
    assert subscription.user_data is not None
    return subscription.user_data


@pytest.mark.proves("G-07")
def test_sticky_keeps_what_members_had_though_they_own_nothing_now(core: ModuleType) -> None:
    members: Members = {
        "a": {"topics": ["t"], "user_data": reported([("t", 0), ("t", 3)], 4)},
        "b": {"topics": ["t"], "user_data": reported([("t", 1), ("t", 2)], 4)},
        "c": {"topics": ["t"]},
    }
    plan = get("sticky").assign(GroupView.of({"t": 5}, members))
    assert sum(plan.counts) == 5
    kept = set(plan["a"]) & {("t", 0), ("t", 3)} | set(plan["b"]) & {("t", 1), ("t", 2)}
    assert len(kept) == 4
    assert list(plan["c"]) == [("t", 4)]


def test_sticky_user_data_of_both_versions_is_read(core: ModuleType) -> None:
    value = StickyUserData(previous_assignment=(TopicPartitions(topic="t", partitions=(1,)),), generation=3)
    old, new = (Message.of(StickyUserData).build(value, version) for version in (0, 1))
    assert parse_sticky(new).generation == 3
    for data in (old, new):
        members: Members = {"a": {"topics": ["t"]}, "b": {"topics": ["t"]}, "c": {"topics": ["t"], "user_data": data}}
        assert list(get("sticky").assign(GroupView.of({"t": 3}, members))["c"]) == [("t", 1)]


def test_of_two_claims_the_later_generation_is_believed(core: ModuleType) -> None:
    for late, early in (("a", "b"), ("b", "a")):
        members: Members = {
            late: {"topics": ["t"], "user_data": reported([("t", 0)], 9)},
            early: {"topics": ["t"], "user_data": reported([("t", 0)], 8)},
        }
        assert list(get("sticky").assign(GroupView.of({"t": 2}, members))[late]) == [("t", 0)]


HOSTILE = {
    "nothing": b"",
    "one byte": b"\0",
    "a length of two billion": b"\x7f\xff\xff\xff",
    "a negative length": b"\xff\xff\xff\xfe" * 3,
    "a topic that is longer than its bytes": b"\0\0\0\1\x7f\xfft",
    "noise": random.Random(1).randbytes(200),
    "an unknown topic": reported([("ghost", 0)], 4),
    "partitions that are not there": reported([("t", 99), ("t", -5)], 4),
}


@pytest.mark.proves("B-19")
@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky", "weighted"])
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_hostile_user_data_claims_nothing_and_harms_no_member(data: bytes, name: str, core: ModuleType) -> None:
    members: Members = {"a": {"topics": ["t"], "user_data": data}, "b": {"topics": ["t"], "user_data": None}}
    plan = get(name).assign(GroupView.of({"t": 4}, members))
    assert plan.counts == [2, 2]


def test_cooperative_members_say_what_they_own_and_since_when() -> None:
    said = CooperativeStickyAssignor().subscription(["t"], [TopicPartition("t", 1), TopicPartition("t", 0)], 7)
    assert said.owned_partitions == (("t", 0), ("t", 1))
    assert said.generation_id == 7
    assert said.user_data is not None
    assert parse_cooperative_sticky(said.user_data).generation == 7


@pytest.mark.proves("G-08")
def test_a_partition_on_the_move_is_given_to_no_member_until_it_is_let_go(core: ModuleType) -> None:
    assignor = CooperativeStickyAssignor()
    owned = [("t", number) for number in range(4)]
    members: Members = {"a": {"topics": ["t"], "owned": owned, "generation": 1}, "b": {"topics": ["t"]}}
    first = assignor.assign(GroupView.of({"t": 4}, members))
    assert len(first["a"]) == 2
    assert list(first["b"]) == []
    members = {
        "a": {"topics": ["t"], "owned": list(first["a"]), "generation": 2},
        "b": {"topics": ["t"], "generation": 2},
    }
    second = assignor.assign(GroupView.of({"t": 4}, members))
    assert list(second["a"]) == list(first["a"])
    assert {*second["a"], *second["b"]} == set(owned)


@pytest.mark.parametrize(
    ("claims", "given"),
    [
        ({"a": 5, "b": 5}, set()),  # one of them is wrong: both let go first
        ({"a": 5, "b": 4}, {"a"}),  # b's claim is stale: a keeps on reading
        ({"a": -1, "b": -1}, set()),
    ],
)
def test_contradicting_claims_never_make_two_readers(claims: dict[str, int], given: set[str], core: ModuleType) -> None:
    members: Members = {
        name: {"topics": ["t"], "owned": [("t", 0)], "generation": generation} for name, generation in claims.items()
    }
    plan = CooperativeStickyAssignor().assign(GroupView.of({"t": 1}, members))
    assert {member for member in plan if plan[member]} == given


def test_the_generation_of_older_clients_is_in_the_user_data(core: ModuleType) -> None:
    late = build_cooperative_sticky(CooperativeStickyUserData(generation=6))
    members: Members = {
        "a": {"topics": ["t"], "owned": [("t", 0)], "generation": 5},
        "b": {"topics": ["t"], "owned": [("t", 0)], "generation": -1, "user_data": late},
    }
    group = GroupView.of({"t": 2}, members)
    assert list(CooperativeStickyAssignor().target(group)["b"]) == [("t", 0)]
    assert list(make_plan(CooperativeStickyAssignor(), group)["b"]) == [("t", 0)]


@pytest.mark.proves("G-08")
@pytest.mark.parametrize("seed", range(25))
def test_through_joins_and_leaves_there_is_one_owner_and_two_rounds_settle(seed: int, core: ModuleType) -> None:
    """A story of a cooperative group: members come, go and change their minds; generations pass."""
    chance = random.Random(seed)
    topics = {"t": 12, "u": 5, "v": 1}
    assignor = CooperativeStickyAssignor()
    holding: dict[str, set[TopicPartition]] = {}
    wants: dict[str, list[str]] = {}
    generation = 0

    def round_of_the_group() -> Plan:
        nonlocal generation
        generation += 1
        members = {
            name: {"topics": wants[name], "owned": holding[name], "generation": generation - 1} for name in holding
        }
        plan = assignor.assign(GroupView.of(topics, members))
        for name in holding:
            for partition in plan[name]:
                others = [other for other in holding if other != name and partition in holding[other]]
                assert not others, f"{partition} went to {name} while {others} held it"
        for name in holding:
            holding[name] = set(plan[name])
        return plan

    for _ in range(12):
        if holding and chance.random() < 0.4:
            gone = chance.choice(sorted(holding))
            del holding[gone], wants[gone]
        else:
            name = f"m{chance.randrange(100)}"
            holding.setdefault(name, set())
            wants[name] = chance.sample(sorted(topics), chance.randint(1, 3))
            holding[name] = {each for each in holding[name] if each[0] in wants[name]}
        if not holding:
            continue
        round_of_the_group()
        settled = round_of_the_group()
        wanted = {topic for names in wants.values() for topic in names}
        assert sum(settled.counts) == sum(topics[topic] for topic in wanted), "two rounds did not hand everything out"
        assert round_of_the_group() == settled, "a settled group moved"
