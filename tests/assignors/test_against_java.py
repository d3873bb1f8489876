"""Kafka's own assignors as the oracle, in one JVM.

`KOHORT_ORACLE_GROUPS=20000 pytest tests/assignors/test_against_java.py` is the long run: that many random groups, and
every group of up to three members, topics and partitions instead of every so-manieth.

If a member subscribes to nothing, or claims contradict each other, Java's plans can give partitions to strangers or to
two readers. Such plans are counted. No plan of ours may be like that.
"""

from __future__ import annotations

import os
import random
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product
from math import prod

import pytest

from kohort.assignors import GroupView, Plan, get
from kohort.assignors.cooperative_sticky import CooperativeStickyAssignor
from kohort.assignors.integer_group import claims_of, withheld
from kohort.assignors.run_assignor import check
from kohort.assignors.sticky import by_topic
from kohort.cli.assigning.java_plans import JAVA_ASSIGNORS, JavaPlans
from kohort.common import TopicPartition
from kohort.protocol.membership import (
    CooperativeStickyUserData,
    StickyUserData,
    build_cooperative_sticky,
    build_sticky,
)

LONG = "KOHORT_ORACLE_GROUPS" in os.environ
GROUPS = int(os.environ.get("KOHORT_ORACLE_GROUPS", "1000"))
SEEDS = 10
FURTHER = range(SEEDS, 2 * SEEDS)
PLANS_TO_COUNT = 3_000

Reported = tuple[dict[str, int], dict[str, dict[str, object]]]
"""A group as the leader gets it: partitions of each topic, and the members."""


def random_group(chance: random.Random, *, hostile: bool) -> GroupView:
    """Members, topics, partitions, racks, subscriptions, previous ownership and generations, all by chance.

    `hostile`: claims contradict each other and generations are stale; otherwise the past is one that can have been.
    """
    topics = [f"t{number}" for number in range(chance.randint(1, chance.choice([2, 4, 8])))]
    counts = {topic: chance.randint(1, chance.choice([1, 3, 12])) if chance.random() < 0.7 else 4 for topic in topics}
    listed = [*topics, "ghost"] if chance.random() < 0.2 else topics
    alike, racks_known = chance.random() < 0.5, chance.random() < 0.5
    free = [TopicPartition(topic, number) for topic in topics for number in range(counts[topic])]
    chance.shuffle(free)
    members: dict[str, dict[str, object]] = {}
    for number in range(chance.randint(1, chance.choice([3, 6, 12]))):
        # Members that want nothing break Java's assignors, so they have a test of their own.
        mine = listed if alike else chance.sample(listed, chance.randint(1, len(listed)))
        wanted = [each for each in free if each.topic in mine]
        owned = wanted[: min(chance.choice([0, 2, 5, 50]), chance.randint(0, len(wanted)))]
        generation = 5
        if hostile:
            owned = chance.sample(wanted, len(owned))
            generation = chance.choice([5, 5, 5, 4, -1])
        else:
            free = [each for each in free if each not in set(owned)]
        members[f"m{chance.randrange(100)}-{number}"] = {
            "topics": list(mine),
            "owned": owned,
            "generation": generation,
            "rack": chance.choice(["a", "b", "c", "z", None]) if racks_known else None,
            "instance_id": f"i{number}" if chance.random() < 0.2 else None,
        }
    racks = {t: [chance.sample("abcd", chance.randint(0, 3)) for _ in range(n)] for t, n in counts.items()}
    return GroupView.of(counts, members, racks if racks_known else None)


def as_reported_by(group: GroupView, assignor: str) -> GroupView:
    """The same group, its members' user data written by the assignor's own clients."""
    members = {}
    for member in group.members:
        owned = [group.partition(index) for index in member.owned_partitions]
        if assignor == "sticky":
            data = build_sticky(StickyUserData(previous_assignment=by_topic(owned), generation=member.generation))
        else:
            data = build_cooperative_sticky(CooperativeStickyUserData(generation=member.generation))
        members[member.id] = {
            "topics": member.topics,
            "owned": [] if assignor == "sticky" else owned,
            "generation": member.generation,
            "rack": member.rack,
            "instance_id": member.instance_id,
            "user_data": data,
        }
    spans = zip(group.topics, group.topic_offsets, group.topic_offsets[1:], strict=False)
    counts = {topic: (start, stop) for topic, start, stop in spans}
    racks = group.racks
    return GroupView.of(
        {topic: stop - start for topic, (start, stop) in counts.items()},
        members,
        None if racks is None else {topic: racks[start:stop] for topic, (start, stop) in counts.items()},
    )


def is_valid(plan: Plan) -> bool:
    """Every partition with a member that subscribes to it."""
    group = plan.group
    return all(
        owner >= 0 and topic in group.members[owner].subscribed_topics
        for topic in range(len(group.topics))
        for owner in plan.owners[group.topic_offsets[topic] : group.topic_offsets[topic + 1]]
    )


def imbalance(plan: Plan) -> int:
    return sum(load * load for load in plan.counts)


def moves(plan: Plan, previous: Sequence[int]) -> int:
    return sum(before not in (-1, now) for now, before in zip(plan.owners, previous, strict=True))


def compare(ours: Plan, theirs: Plan, previous: array[int]) -> str:
    """One word on our plan beside Java's; fails where ours is worse."""
    group = ours.group
    assert is_valid(ours), group
    if not is_valid(theirs):
        return "java invalid"
    assert imbalance(ours) <= imbalance(theirs), ("less balanced than Java", group, ours, theirs)
    if imbalance(ours) < imbalance(theirs):
        return "better balanced"  # which can take moves that Java did not make
    assert moves(ours, previous) <= moves(theirs, previous), ("more moves than Java", group, ours, theirs)
    if moves(ours, previous) < moves(theirs, previous):
        return "fewer moves"
    if ours.owners == theirs.owners:
        return "equal"
    assert not is_the_only_one(ours, previous), ("not Java's plan, which is unique", group, ours, theirs)
    return "as good"


def is_the_only_one(plan: Plan, previous: array[int]) -> bool:
    """True if no other plan is as balanced with as few moves; False if there are too many to count."""
    group = plan.group
    takers = [group.subscribers[group.number_of_topic[group.partition(index).topic]] for index in range(group.size)]
    if prod(map(len, takers)) > PLANS_TO_COUNT:
        return False
    best = (imbalance(plan), moves(plan, previous))
    others = (Plan(group, array("i", owners)) for owners in product(*takers))
    return sum((imbalance(other), moves(other, previous)) <= best for other in others) == 1


def check_group(java: JavaPlans, group: GroupView, seen: Counter[str], *, hostile: bool) -> None:
    """All four of Kafka's assignors on one group, ours and Java's."""
    cooperative = as_reported_by(group, "cooperative-sticky")
    theirs = java.plans(cooperative, [name for name in JAVA_ASSIGNORS if name != "sticky"])
    for name in ("range", "roundrobin"):
        ours = get(name).assign(cooperative)
        assert ours.owners == theirs[name].owners, (name, group, ours, theirs[name])
    previous = claims_of(cooperative).settle(cooperative)
    assignor = CooperativeStickyAssignor()
    seen["cooperative-sticky " + compare(assignor.target(cooperative), theirs["target"], previous)] += 1
    plan = assignor.assign(cooperative)
    check(plan, assignor.rebalance)
    if is_valid(theirs["target"]):
        # The same rule of withholding, applied to Java's own target, gives Java's own first round.
        first = withheld(cooperative, theirs["target"].owners)
        agree = first == theirs["cooperative-sticky"].owners
        assert agree or hostile, ("withheld", group)
        seen["first round equal" if agree else "java gives away what is claimed"] += 1

    eager = as_reported_by(group, "sticky")
    seen["sticky " + compare(get("sticky").assign(eager), java.plans(eager, ["sticky"])["sticky"], previous)] += 1


@pytest.mark.timeout(3600 if LONG else 600)
@pytest.mark.proves("G-09")
@pytest.mark.parametrize("seed", [*range(SEEDS), *(pytest.param(seed, marks=pytest.mark.full) for seed in FURTHER)])
def test_random_groups(java: JavaPlans, seed: int) -> None:
    chance = random.Random(f"groups {seed}")
    seen: Counter[str] = Counter()
    checked = 0
    while checked < GROUPS // SEEDS:
        hostile = chance.random() < 0.3
        group = random_group(chance, hostile=hostile)
        if group.size:
            check_group(java, group, seen, hostile=hostile)
            checked += 1
    print(f"seed {seed}: {checked} groups: {dict(seen)}")
    assert seen["sticky equal"] > checked // 10, "the oracle and we hardly ever agree, so it may have another input"
    assert not seen["sticky java invalid"] + seen["cooperative-sticky java invalid"]


def small_fresh_groups() -> Iterator[Reported]:
    """Every group of up to 3 members, 3 topics and 3 partitions a topic, without a past."""
    for counts in (row for topics in (1, 2, 3) for row in product((1, 2, 3), repeat=topics)):
        topics = [f"t{number}" for number in range(len(counts))]
        partitions = dict(zip(topics, counts, strict=True))
        subsets = [[t for bit, t in enumerate(topics) if mask >> bit & 1] for mask in range(1, 2 ** len(topics))]
        for members in (1, 2, 3):
            for chosen in product(subsets, repeat=members):
                yield partitions, {f"m{i}": {"topics": wanted} for i, wanted in enumerate(chosen)}


def small_groups_with_a_past() -> Iterator[Reported]:
    """Every group of up to 3 members, 3 topics and 3 partitions in all, with every ownership; members alike once."""
    for counts in ((1,), (2,), (3,), (1, 1), (1, 2), (2, 1), (1, 1, 1)):
        topics = [f"t{number}" for number in range(len(counts))]
        partitions = dict(zip(topics, counts, strict=True))
        every = [(topic, number) for topic in topics for number in range(partitions[topic])]
        subsets = [[t for bit, t in enumerate(topics) if mask >> bit & 1] for mask in range(1, 2 ** len(topics))]
        for members in (1, 2, 3):
            for chosen in combinations_with_replacement(subsets, members):
                for owners in product(range(-1, members), repeat=len(every)):
                    members_reported: dict[str, dict[str, object]] = {}
                    for number, wanted in enumerate(chosen):
                        owned = [each for each, owner in zip(every, owners, strict=True) if owner == number]
                        members_reported[f"m{number}"] = {
                            "topics": wanted,
                            "owned": [each for each in owned if each[0] in wanted],
                            "generation": 1,
                        }
                    yield partitions, members_reported


@pytest.mark.timeout(3600 if LONG else 600)
@pytest.mark.proves("G-09")
@pytest.mark.parametrize(("groups", "every"), [(small_fresh_groups, 7), (small_groups_with_a_past, 5)])
def test_all_small_groups(java: JavaPlans, groups: object, every: int) -> None:
    assert callable(groups)
    seen: Counter[str] = Counter()
    for number, (partitions, members) in enumerate(groups()):
        if LONG or number % every == 0:
            check_group(java, GroupView.of(partitions, members), seen, hostile=False)
            seen["groups"] += 1
    print(dict(seen))
    assert seen["groups"] > 1_000
    assert not seen["sticky java invalid"] + seen["cooperative-sticky java invalid"]


@pytest.mark.proves("G-09")
def test_names_beyond_the_basic_plane_sort_as_in_java(java: JavaPlans) -> None:
    names = ["\N{FULLWIDTH LATIN SMALL LETTER A}", "\N{GRINNING FACE}", "z", "é"]
    group = GroupView.of({"t": 9}, {name: {"topics": ["t"]} for name in names})
    theirs = java.plans(group, ["range", "roundrobin"])
    for name, plan in theirs.items():
        assert get(name).assign(group).owners == plan.owners


@pytest.mark.proves("G-07")
def test_a_member_that_wants_nothing_gets_nothing(java: JavaPlans) -> None:
    """Java's sticky assignors give it partitions where it comes first: its own topics are not looked at."""
    members: dict[str, dict[str, list[str]]] = {"a": {"topics": []}, "b": {"topics": ["t"]}}
    group = GroupView.of({"t": 4}, members)
    assert not is_valid(java.plans(group, ["target"])["target"])
    for name in ("range", "roundrobin", "sticky", "cooperative-sticky", "lag", "weighted", "copartition"):
        lagging = GroupView.of({"t": 4}, members, lag={})
        assert get(name).assign(lagging).counts == [0, 4]
