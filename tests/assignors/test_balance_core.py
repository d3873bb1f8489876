"""The integer core: held against every possible plan where they can be counted, and against its twin elsewhere."""

from __future__ import annotations

import importlib.util
import random
import runpy
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.assignors import GroupView, _balance, balance_py
from kohort.assignors.integer_group import Claims, balanced
from kohort.protocol.membership import parse_assignment

Score = tuple[list[Fraction], int, int]


def score(group: GroupView, owners: Sequence[int], previous: Sequence[int], weights: Sequence[int]) -> Score:
    """(loads by weight as the descending row of every unit's level, moves, far reads); less is better."""
    loads = [0] * len(group.members)
    for owner in owners:
        loads[owner] += 1
    levels = [
        Fraction(unit, weight) for load, weight in zip(loads, weights, strict=True) for unit in range(1, load + 1)
    ]
    moves = sum(before not in (-1, now) for now, before in zip(owners, previous, strict=True))
    far = sum(
        bool(group.racks and (rack := group.members[owner].rack) and rack not in group.racks[index])
        for index, owner in enumerate(owners)
    )
    return sorted(levels, reverse=True), moves, far


def every_plan(group: GroupView) -> Iterator[tuple[int, ...]]:
    takers = [group.subscribers[group.number_of_topic[group.partition(index).topic]] for index in range(group.size)]
    return product(*takers)


@st.composite
def small_groups(draw: st.DrawFn) -> tuple[GroupView, array[int], array[int]]:
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3).filter(lambda row: sum(row) <= 6))
    topics = [f"t{number}" for number in range(len(counts))]
    count = draw(st.integers(1, 4))
    partitions = dict(zip(topics, counts, strict=True))
    replicas = st.sets(st.sampled_from("abc"), max_size=2)
    racks = {topic: [draw(replicas) for _ in range(number)] for topic, number in partitions.items()}
    members = {
        f"m{number}": {
            "topics": draw(st.sets(st.sampled_from(topics))),
            "rack": draw(st.sampled_from([None, "a", "b", "z"])),
        }
        for number in range(count)
    }
    group = GroupView.of(partitions, members, racks if draw(st.booleans()) else None)
    previous = array("i", [draw(st.integers(-1, count - 1)) for _ in range(group.size)])
    weights = array("i", [draw(st.sampled_from([1, 1, 2, 3])) for _ in range(count)])
    return group, previous, weights


@pytest.mark.proves("G-07")
@settings(max_examples=150, derandomize=True)
@given(small_groups(), st.booleans())
def test_no_plan_is_better_balanced_or_moves_less_or_reads_nearer(
    case: tuple[GroupView, array[int], array[int]], weighted: bool
) -> None:
    group, previous, weights = case
    if not weighted:
        weights = array("i", [1]) * len(group.members)
    owners = balanced(group, previous, weights)
    if group.size:
        best = min(score(group, plan, previous, weights) for plan in every_plan(group))
        assert score(group, owners, previous, weights) == best
        assert tuple(owners) in set(every_plan(group)), "a partition went to a member that does not subscribe to it"


@pytest.mark.proves("G-07")
def test_every_group_of_up_to_three_members_and_topics_and_every_ownership(core: ModuleType) -> None:
    """Up to renaming of members. The twin sees every tenth."""
    seen = 0
    for counts in ((1,), (2,), (3,), (1, 1), (1, 2), (1, 1, 1)):
        topics = [f"t{number}" for number in range(len(counts))]
        subsets = [[t for bit, t in enumerate(topics) if mask >> bit & 1] for mask in range(2 ** len(topics))]
        for members in (1, 2, 3):
            for chosen in combinations_with_replacement(subsets, members):
                group = GroupView.of(
                    dict(zip(topics, counts, strict=True)),
                    {f"m{number}": {"topics": topics} for number, topics in enumerate(chosen)},
                )
                even = array("i", [1]) * members
                plans = list(every_plan(group))
                for previous in product(range(-1, members), repeat=group.size):
                    seen += 1
                    if core is balance_py and seen % 10:
                        continue
                    owners = balanced(group, array("i", previous))
                    best = min(score(group, plan, previous, even) for plan in plans)
                    assert score(group, owners, previous, even) == best, (counts, chosen, previous)
    assert seen > 7_000


def _random_rows(seed: int) -> tuple[GroupView, array[int], list[array[int]], list[int]]:
    chance = random.Random(seed)
    members, topics = chance.randint(1, 15), [f"t{number}" for number in range(chance.randint(1, 10))]
    counts = {topic: chance.randint(1, 25) for topic in topics}
    alike = chance.random() < 0.3
    group = GroupView.of(
        counts,
        {
            f"m{number}": {
                "topics": topics if alike else chance.sample(topics, chance.randint(0, len(topics))),
                "rack": chance.choice([None, "a", "b", "c"]),
            }
            for number in range(members)
        },
        {t: [chance.sample("abc", chance.randint(0, 2)) for _ in range(n)] for t, n in counts.items()},
    )
    weights = array("i", [chance.choice([1, 1, 2, 7]) for _ in range(members)])
    claims = [
        array("i", [chance.randrange(group.size) for _ in range(chance.randint(0, group.size) if group.size else 0)])
        for _ in range(members)
    ]
    return group, weights, claims, [chance.randint(-1, 3) for _ in range(members)]


@pytest.mark.parametrize("seed", range(150))
def test_the_compiled_core_returns_the_same_arrays_as_its_twin(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    group, weights, claimed, generations = _random_rows(seed)
    results = []
    for core in (_balance, balance_py):
        monkeypatch.setattr("kohort.assignors.integer_group.core", core)
        claims = Claims.of(zip(claimed, generations, strict=True))
        previous = claims.settle(group)
        owners = balanced(group, previous, weights)
        given = claims.withhold(owners, previous)
        results.append((previous, owners, given, core.group_by_owner(given, len(group.members))))
    assert results[0] == results[1]


@pytest.mark.proves("G-07")
def test_general_subscriptions_need_no_search(core: ModuleType) -> None:
    """Chains of members that each share a topic with the next: what makes single moves get stuck."""
    members = 40
    topics = [f"t{number:02}" for number in range(members)]
    group = GroupView.of(
        {topic: 7 if number else 160 for number, topic in enumerate(topics)},
        {f"m{number:02}": {"topics": topics[number : number + 2]} for number in range(members)},
    )
    owners = balanced(group, array("i", [-1]) * group.size)
    loads = [list(owners).count(member) for member in range(members)]
    # Only m00 reads t00; what is left is a chain that evens out completely.
    assert loads[0] == 160
    assert set(loads[1:]) == {7}


@pytest.mark.parametrize("seed", range(30))
def test_the_search_stays_within_its_bound(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads as uneven as can be: the more a member must take alone, the more pieces the group falls into."""
    chance = random.Random(f"bound {seed}")
    members, topics = chance.randint(2, 12), [f"t{number}" for number in range(chance.randint(2, 12))]
    group = GroupView.of(
        {topic: chance.choice([1, 3, 9, 27, 81]) for topic in topics},
        {f"m{number}": {"topics": chance.sample(topics, chance.randint(0, 2))} for number in range(members)},
    )
    looked_at = 0
    is_cut = balance_py._Network.is_cut

    def counted(network: balance_py._Network) -> bool:
        nonlocal looked_at
        looked_at += 1
        return is_cut(network)

    monkeypatch.setattr(balance_py._Network, "is_cut", counted)
    monkeypatch.setattr("kohort.assignors.integer_group.core", balance_py)
    balanced(group, array("i", [-1]) * group.size)
    classes = len({tuple(takers) for takers in group.subscribers})
    assert looked_at < 4 * max(1, min(classes, members))
    assert looked_at >= bool(group.size)


@pytest.mark.proves("G-07")
def test_a_member_that_gives_up_partitions_gives_up_some_of_every_topic(core: ModuleType) -> None:
    group = GroupView.of({"a": 10, "b": 10}, {"m0": {"topics": ["a", "b"]}, "m1": {"topics": ["a", "b"]}})
    owners = balanced(group, array("i", [0]) * 20)
    assert list(owners[:10]).count(0) == 5
    assert list(owners[10:]).count(0) == 5


@pytest.mark.parametrize(
    ("claims", "generations", "owner"),
    [
        ([[0], []], [5, 5], 0),
        ([[0], [0]], [5, 6], 1),
        ([[0], [0]], [6, 5], 0),
        ([[0], [0]], [5, 5], -1),
        ([[0], [0], [0]], [5, 5, 6], 2),
        ([[0], [0], [0]], [6, 5, 6], -1),
        ([[0, 0], []], [5, 5], 0),
        ([[], []], [5, 5], -1),
        ([[0], [0]], [-1, 0], 1),
    ],
)
def test_the_highest_generation_owns_and_two_of_it_own_nothing(
    core: ModuleType, claims: list[list[int]], generations: list[int], owner: int
) -> None:
    group = GroupView.of({"t": 1}, {f"m{number}": {"topics": ["t"]} for number in range(len(claims))})
    rows = zip([array("i", row) for row in claims], generations, strict=True)
    assert list(Claims.of(rows).settle(group)) == [owner]


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_without_the_extension_the_twin_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("kohort.assignors._balance")
    monkeypatch.setitem(sys.modules, "kohort.assignors._balance", None)
    spec = importlib.util.find_spec("kohort.assignors.core")
    assert spec is not None
    assert spec.origin is not None
    assert runpy.run_path(spec.origin)["core"] is balance_py


def test_an_unread_class_is_an_error_not_a_hang(core: ModuleType) -> None:
    one = array("i", [1])
    with pytest.raises(ValueError, match="no member may read"):
        core.balance(array("i", [3]), array("i", [0]), array("i"), array("i"), array("i"), one)


def test_loads_that_cannot_be_had_are_an_error_not_a_hang(core: ModuleType) -> None:
    zero, one, two = array("i", [0]), array("i", [1]), array("i", [2])
    with pytest.raises(ValueError, match="loads"):
        core.place(two, one, zero, zero, zero, one)
    with pytest.raises(ValueError, match="loads"):
        core.place(one, one, zero, zero, zero, two)


def ints(*numbers: int) -> array[int]:
    return array("i", numbers)


REFUSED: dict[str, Callable[[], object]] = {
    "a claim outside": lambda: _balance.settle_claims(3, ints(1), ints(3), array("q", [0])),
    "claims too short": lambda: _balance.settle_claims(3, ints(2), ints(1), array("q", [0])),
    "no generation": lambda: _balance.settle_claims(3, ints(1), ints(1), array("q")),
    "a negative class": lambda: _balance.count_classes(ints(-1), 1),
    "an unknown class": lambda: _balance.count_owned(ints(0), ints(1), ints(1), ints(0)),
    "an unknown owner": lambda: _balance.group_by_owner(ints(2), 2),
    "an unknown member": lambda: _balance.balance(ints(1), ints(1), ints(5), ints(0), ints(0), ints(1)),
    "no weight": lambda: _balance.balance(ints(1), ints(1), ints(0), ints(0), ints(0), ints(0)),
    "edges without owned": lambda: _balance.balance(ints(1), ints(1), ints(0), ints(), ints(0), ints(1)),
    "a flow too small": lambda: _balance.deal(ints(-1), ints(0), ints(1), ints(0), ints(0), ints(0)),
    "a row outside its topics": lambda: _balance.encode_rows([b"t"], ints(0, 2), ints(2)),
    "claims to withhold outside": lambda: _balance.withhold(ints(0), ints(0), ints(1), ints(1)),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_rows_that_would_read_outside_memory_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()


@settings(max_examples=60, derandomize=True)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.data())
def test_rows_on_the_wire_are_what_the_protocol_reads(counts: list[int], data: st.DataObject) -> None:
    names = [f"topic-{number}-é".encode() for number in range(len(counts))]
    starts = array("i", [sum(counts[:number]) for number in range(len(counts) + 1)])
    row = array("i", sorted(data.draw(st.sets(st.integers(0, starts[-1] - 1)))))
    wire = _balance.encode_rows(names, starts, row)
    assert wire == balance_py.encode_rows(names, starts, row)
    read = parse_assignment(b"\0\0" + wire + b"\xff\xff\xff\xff").assigned_partitions
    again = [starts[names.index(each.topic.encode())] + number for each in read for number in each.partitions]
    assert again == list(row)
    numbers = {name: number for number, name in enumerate(names)}
    for core in (_balance, balance_py):
        assert core.decode_rows(b"xx" + wire + b"xx", 2, numbers, starts) == (row, len(wire) + 2)


@settings(max_examples=300, derandomize=True)
@given(st.binary(max_size=40) | st.tuples(st.just(b"\0\0\0\1\0\1t"), st.binary(max_size=30)).map(b"".join))
def test_rows_of_any_bytes_are_read_alike_or_refused_alike(data: bytes) -> None:
    results: list[object] = []
    for core in (_balance, balance_py):
        try:
            results.append(core.decode_rows(data, 0, {b"t": 0, b"u": 1}, ints(0, 3, 5)))
        except ValueError as error:
            results.append(str(error))
    assert results[0] == results[1]
