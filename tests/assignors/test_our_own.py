"""lag, weighted, copartition and rack: the property each of them promises."""

from __future__ import annotations

from array import array
from fractions import Fraction
from itertools import product
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.assignors import AssignorError, BadGroup, GroupView, MemberSubscription, Plan, PlanError, Rebalance, get
from kohort.assignors.copartition import CopartitionAssignor
from kohort.assignors.lag import LagAssignor, lag_from_offsets
from kohort.assignors.rack import RackAssignor
from kohort.assignors.run_assignor import check, make_plan
from kohort.assignors.weighted import WeightedAssignor
from kohort.common import TopicPartition

QUICK = settings(max_examples=120, derandomize=True)


# ------------------------------------------------------------------------------------------------------------- lag


def waiting(plan: Plan) -> list[int]:
    lag = plan.group.lag
    assert lag is not None
    return [sum(lag[index] for index in plan.row(member).indexes) for member in range(len(plan))]


@QUICK
@given(st.lists(st.integers(0, 50), min_size=1, max_size=7), st.integers(1, 3))
def test_lag_stays_within_grahams_bound_of_the_best(lags: list[int], count: int) -> None:
    members = {f"m{number}": {"topics": ["t"]} for number in range(count)}
    group = GroupView.of({"t": len(lags)}, members, lag={("t", number): lag for number, lag in enumerate(lags)})
    longest = max(waiting(LagAssignor().target(group)))
    best = min(max(waiting(Plan(group, array("i", owners)))) for owners in product(range(count), repeat=len(lags)))
    assert longest <= best * (Fraction(4, 3) - Fraction(1, 3 * count))


@QUICK
@given(st.data())
def test_no_reader_waits_longer_than_another_reader_of_its_last_partition_by_more_than_it(data: st.DataObject) -> None:
    topics = ["t", "u", "v"]
    counts = {topic: data.draw(st.integers(1, 5)) for topic in topics}
    members = {f"m{n}": {"topics": data.draw(st.sets(st.sampled_from(topics)))} for n in range(4)}
    lag = {(topic, number): data.draw(st.integers(0, 99)) for topic in topics for number in range(counts[topic])}
    group = GroupView.of(counts, members, lag=lag)
    plan = LagAssignor().target(group)
    check(plan, Rebalance.EAGER)
    load = waiting(plan)
    assert group.lag is not None
    for member in range(len(group.members)):
        mine = [index for index in plan.row(member).indexes if group.lag[index]]
        if mine:
            last = min(mine, key=lambda index: (group.lag[index], -index))  # type: ignore[index]
            for other in group.subscribers[group.number_of_topic[group.partition(last).topic]]:
                assert load[member] - group.lag[last] <= load[other]


def test_partitions_without_lag_are_spread_by_number() -> None:
    members = {name: {"topics": ["t"]} for name in "abc"}
    plan = LagAssignor().target(GroupView.of({"t": 10}, members, lag={("t", 0): 1000}))
    assert sorted(plan.counts) == [3, 3, 4]


def test_equal_lag_keeps_the_owner() -> None:
    members = {name: {"topics": ["t"], "owned": [("t", n)], "generation": 1} for name, n in (("a", 1), ("b", 0))}
    plan = LagAssignor().assign(GroupView.of({"t": 2}, members, lag={("t", 0): 5, ("t", 1): 5}))
    assert plan == {"a": [("t", 1)], "b": [("t", 0)]}


def test_where_nothing_waits_or_nothing_is_known_it_is_sticky(core: ModuleType) -> None:
    members = {
        name: {"topics": ["t"], "owned": [("t", n) for n in owned], "generation": 1}
        for name, owned in (("a", (0, 1, 2)), ("b", (3,)), ("c", ()))
    }
    group = GroupView.of({"t": 6}, members, lag={})
    assert LagAssignor().target(group) == get("cooperative-sticky").target(group)  # type: ignore[attr-defined]


@QUICK
@given(st.data())
def test_by_the_same_numbers_two_rounds_are_enough(data: st.DataObject) -> None:
    counts = {"t": data.draw(st.integers(1, 6)), "u": data.draw(st.integers(0, 3))}
    lag = {(topic, number): data.draw(st.integers(0, 9)) for topic, count in counts.items() for number in range(count)}
    names = [f"m{number}" for number in range(data.draw(st.integers(1, 4)))]
    wants = {name: data.draw(st.sampled_from([("t",), ("t", "u")])) for name in names}
    owned: dict[str, set[tuple[str, int]]] = {name: set() for name in names}
    for topic, number in lag:
        owner = data.draw(st.sampled_from([None, *(name for name in names if topic in wants[name])]))
        if owner is not None:
            owned[owner].add((topic, number))

    def group(generation: int) -> GroupView:
        members = {
            name: {"topics": wants[name], "owned": sorted(owned[name]), "generation": generation} for name in names
        }
        return GroupView.of(counts, members, lag=lag)

    heading_for = LagAssignor().target(group(1))
    for generation in (1, 2):
        plan = LagAssignor().assign(group(generation))
        owned = {name: {(one.topic, one.partition) for one in plan[name]} for name in names}
    assert plan == heading_for
    assert LagAssignor().assign(group(3)) == heading_for


def test_lag_is_measured_by_the_leader_unless_somebody_else_tells_it() -> None:
    for assignor, measured in (
        (LagAssignor(), True),
        (RackAssignor(LagAssignor()), True),
        (LagAssignor(lambda partitions: {}), False),
        (RackAssignor(WeightedAssignor()), False),
    ):
        assert assignor.needs_lag is measured


def test_lag_is_requested_and_its_absence_is_an_error() -> None:
    group = GroupView.of({"t": 2}, {"a": {"topics": ["t"]}, "b": {"topics": ["t"]}})
    assert LagAssignor(lambda partitions: {each: each.partition for each in partitions}).assign(group).counts == [1, 1]
    with pytest.raises(AssignorError, match="lag is unknown"):
        LagAssignor().assign(group)


def test_lag_counts_from_the_committed_offset_or_the_beginning() -> None:
    partitions = [TopicPartition("t", number) for number in range(5)]
    committed = dict(zip(partitions, [4, None, 2, 99, 10], strict=True))
    lag = lag_from_offsets(committed, dict.fromkeys(partitions, 10), dict.fromkeys(partitions, 3))
    assert list(lag.values()) == [6, 7, 7, 0, 0]


# -------------------------------------------------------------------------------------------------------- weighted


def weighing(weights: dict[str, int], partitions: int) -> Plan:
    members = {
        name: {"topics": ["t"], "user_data": WeightedAssignor(weight).subscription(["t"], [], -1).user_data}
        for name, weight in weights.items()
    }
    return WeightedAssignor().target(GroupView.of({"t": partitions}, members))


@QUICK
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 40))
def test_the_highest_load_by_weight_is_as_low_as_it_can_be(weights: list[int], partitions: int) -> None:
    plan = weighing({f"m{number}": weight for number, weight in enumerate(weights)}, partitions)
    highest = max(Fraction(load, weight) for load, weight in zip(plan.counts, weights, strict=True))
    # Below that level the members could not take all partitions together.
    assert sum(-(-highest * weight // 1) - 1 for weight in weights) < partitions


def test_four_times_the_capacity_four_times_the_partitions(core: ModuleType) -> None:
    assert weighing({"big": 4, "small": 1}, 10).counts == [8, 2]


def test_without_weights_it_is_sticky(core: ModuleType) -> None:
    members = {
        name: {"topics": ["t"], "owned": owned, "generation": 1} for name, owned in (("a", [("t", 2)]), ("b", []))
    }
    group = GroupView.of({"t": 4}, members)
    assert WeightedAssignor().target(group) == get("cooperative-sticky").target(group)  # type: ignore[attr-defined]


@pytest.mark.parametrize("weight", [0, -1, 1_000_001])
def test_weights_out_of_range_are_refused(weight: int) -> None:
    with pytest.raises(AssignorError, match=str(weight)):
        WeightedAssignor(weight)


# ----------------------------------------------------------------------------------------------------- copartition


@QUICK
@given(st.data())
def test_no_bundle_ever_has_two_owners_and_bundles_are_balanced(data: st.DataObject) -> None:
    partitions = data.draw(st.integers(1, 6))
    together = ["orders", "payments", "refunds"]
    counts = {**dict.fromkeys(together, partitions), "other": data.draw(st.integers(1, 6))}
    members = {}
    for number in range(data.draw(st.integers(1, 4))):
        chosen = data.draw(st.sets(st.sampled_from(sorted(counts)), min_size=1))
        owned = data.draw(st.sets(st.sampled_from([(t, n) for t in sorted(counts) for n in range(counts[t])])))
        members[f"m{number}"] = {"topics": chosen, "owned": owned, "generation": data.draw(st.integers(0, 1))}
    members["all"] = {"topics": list(counts), "owned": set(), "generation": 1}
    group = GroupView.of(counts, members)
    assignor = CopartitionAssignor([together])
    target, first = assignor.target(group), assignor.assign(group)
    check(first, assignor.rebalance)
    for plan in (target, first):
        for number in range(partitions):
            indexes = [group.index(topic, number) for topic in together]
            owners = {plan.owners[index] for index in indexes if index is not None} - {-1}
            assert len(owners) <= 1, (number, plan)
    complete = [m for m, member in enumerate(group.members) if set(together) <= set(member.topics)]
    orders = group.number_of_topic["orders"]
    assert set(target.owners[group.topic_offsets[orders] : group.topic_offsets[orders + 1]]) <= set(complete)
    if all(set(member.topics) == set(counts) for member in group.members):
        bundles = [len([p for p in target.row(m) if p.topic in ("orders", "other")]) for m in range(len(group.members))]
        assert max(bundles) - min(bundles) <= 1


def test_topics_of_one_size_and_one_audience_belong_together_by_themselves() -> None:
    members = {"a": {"topics": ["t", "u", "v"]}, "b": {"topics": ["t", "u", "v"]}, "c": {"topics": ["v"]}}
    plan = CopartitionAssignor().target(GroupView.of({"t": 4, "u": 4, "v": 4}, members))
    for name in members:
        numbers = {topic: [n for t, n in plan[name] if t == topic] for topic in "tu"}
        assert numbers["t"] == numbers["u"]


def test_what_cannot_be_kept_together_is_said() -> None:
    with pytest.raises(BadGroup, match="t has 2, u has 3"):
        CopartitionAssignor(["tu"]).assign(GroupView.of({"t": 2, "u": 3}, {"a": {"topics": ["t", "u"]}}))
    with pytest.raises(BadGroup, match="no member subscribes to all"):
        CopartitionAssignor(["tu"]).assign(
            GroupView.of({"t": 2, "u": 2}, {"a": {"topics": ["t"]}, "b": {"topics": ["u"]}})
        )
    with pytest.raises(AssignorError, match="two sets"):
        CopartitionAssignor(["tu", "uv"])


def test_bundles_stay_where_they_are() -> None:
    owned = {"a": [(t, n) for t in "tu" for n in (0, 3)], "b": [(t, n) for t in "tu" for n in (1, 2)]}
    members = {name: {"topics": ["t", "u"], "owned": rows, "generation": 1} for name, rows in owned.items()}
    plan = CopartitionAssignor(["tu"]).assign(GroupView.of({"t": 4, "u": 4}, members))
    assert plan == owned


# ------------------------------------------------------------------------------------------------------------ rack


def far(plan: Plan) -> int:
    group = plan.group
    assert group.racks is not None
    racks = [member.rack for member in group.members]
    return sum(
        owner >= 0 and racks[owner] is not None and racks[owner] not in group.racks[index]
        for index, owner in enumerate(plan.owners)
    )


@QUICK
@given(st.data(), st.sampled_from(["range", "roundrobin", "cooperative-sticky", "weighted", "lag"]))
def test_no_plan_with_the_same_numbers_reads_nearer(data: st.DataObject, inner: str) -> None:
    counts = {"t": data.draw(st.integers(1, 4)), "u": data.draw(st.integers(1, 2))}
    racks = {topic: [data.draw(st.sets(st.sampled_from("ab"))) for _ in range(n)] for topic, n in counts.items()}
    members = {
        f"m{number}": {
            "topics": data.draw(st.sets(st.sampled_from("tu"), min_size=1)),
            "rack": data.draw(st.sampled_from([None, "a", "b"])),
        }
        for number in range(data.draw(st.integers(1, 3)))
    }
    group = GroupView.of(counts, members, racks, lag={("t", 0): 9})
    base = get(inner)
    planned = getattr(base, "target", base.assign)(group)
    nearer = RackAssignor(base).target(group)
    check(nearer, Rebalance.EAGER)
    assert nearer.counts == planned.counts
    takers = [group.subscribers[group.number_of_topic[group.partition(index).topic]] for index in range(group.size)]
    alike = [plan for owners in product(*takers) if (plan := Plan(group, array("i", owners))).counts == planned.counts]
    best = min(map(far, alike))
    assert far(nearer) == best

    def changes(plan: Plan) -> int:
        return sum(a != b for a, b in zip(plan.owners, planned.owners, strict=True))

    assert changes(nearer) == min(changes(plan) for plan in alike if far(plan) == best)


def test_around_a_cooperative_one_nothing_is_given_away_while_held(core: ModuleType) -> None:
    members = {
        "a": {"topics": ["t"], "owned": [("t", 0), ("t", 1)], "generation": 3, "rack": "2"},
        "b": {"topics": ["t"], "owned": [("t", 2), ("t", 3)], "generation": 3, "rack": "1"},
    }
    group = GroupView.of({"t": 4}, members, {"t": [["1"], ["1"], ["2"], ["2"]]})
    assignor = get("rack-cooperative-sticky")
    assert make_plan(assignor, group) == {"a": [], "b": []}
    assert assignor.target(group) == {"a": [("t", 2), ("t", 3)], "b": [("t", 0), ("t", 1)]}  # type: ignore[attr-defined]


def test_bundles_and_cooperative_assignors_without_a_target_are_refused() -> None:
    class Hasty:
        name = "hasty"
        rebalance = Rebalance.COOPERATIVE

        def subscription(self, topics: object, owned: object, generation: int) -> MemberSubscription:
            return MemberSubscription(())

        def assign(self, group: GroupView) -> Plan:
            raise PlanError("never called")

    with pytest.raises(AssignorError, match="keeps together"):
        get("rack-copartition")
    with pytest.raises(AssignorError, match="without a target"):
        RackAssignor(Hasty())
