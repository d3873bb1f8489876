"""The soak's checker: a sound history passes, and each thing that must not happen is found by its own rule."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.soak.checker import judge
from tests.soak.history import Entry, Writer, read
from tests.soak.plan import (
    BROKER_ACTS,
    CLASSIC,
    CONSUMER,
    EPOCH_PEERS,
    OURS,
    REMOTE_ASSIGNORS,
    STRATEGIES,
    Act,
    epoch_plan,
    long_plan,
    plan,
)

ONE, TWO, PEER = "kohort-1", "kohort-async-2", "java-3"


def entry(at: int, who: str, what: str, **facts: Any) -> Entry:
    return Entry(at, who, what, facts)


def sound() -> list[Entry]:
    """Partition 0 passes from ONE to TWO in good order, and everything is read and committed."""
    return [
        entry(1, "producer", "produced", acks=[[0, number] for number in range(6)]),
        entry(10, ONE, "assigned", partitions=[0], assignment=[0], generation=1),
        entry(12, ONE, "delivered", began=11, slices=[[0, 0, 2]]),
        entry(13, ONE, "committing", number=1, offsets={"0": 2}),
        entry(14, ONE, "commit", number=1, outcome="ok"),
        entry(16, ONE, "delivered", began=15, slices=[[0, 2, 4]]),
        entry(17, ONE, "committing", number=2, offsets={"0": 4}),
        entry(18, ONE, "commit", number=2, outcome="ok"),
        entry(20, ONE, "revoked", partitions=[0]),
        entry(21, ONE, "assigned", partitions=[], assignment=[], generation=2),
        entry(22, TWO, "assigned", partitions=[0], assignment=[0], generation=2),
        entry(24, TWO, "delivered", began=23, slices=[[0, 4, 6]]),
        entry(25, TWO, "committing", number=1, offsets={"0": 6}),
        entry(26, TWO, "commit", number=1, outcome="ok"),
        entry(30, "conductor", "drained", done=True, behind=""),
        entry(40, TWO, "revoked", partitions=[0]),
        entry(41, ONE, "left", healthy=True, reason=""),
        entry(42, TWO, "left", healthy=True, reason=""),
        entry(43, "conductor", "ended", member=ONE, code=0),
    ]


Change = Callable[[list[Entry]], list[Entry]]


def without(*times: int) -> Change:
    return lambda history: [one for one in history if one.at not in times]


def put(*entries: Entry) -> Change:
    return lambda history: sorted([*history, *entries], key=lambda one: one.at)


def changed(at: int, **facts: Any) -> Change:
    return lambda history: [one._replace(facts=one.facts | facts) if one.at == at else one for one in history]


def test_a_sound_history_passes() -> None:
    assert judge(sound()) == []


FAULTS: list[tuple[str, str, list[Change]]] = [
    ("the same generation twice", "one owner", [changed(22, generation=1)]),
    ("two owners at a time", "one owner", [without(20, 21), put(entry(23, ONE, "revoked", partitions=[0]))]),
    ("given what it has", "one owner", [changed(21, partitions=[0], assignment=[0]), without(20)]),
    ("taken away without a callback", "one owner", [without(20)]),
    ("left with partitions", "one owner", [without(40)]),
    ("read without owning", "owners only", [put(entry(21, ONE, "delivered", began=20, slices=[[0, 4, 5]]))]),
    (
        "read after another took it",
        "owners only",
        [
            without(20, 21),
            put(entry(19, "conductor", "stopped", member=ONE), entry(27, "conductor", "continued", member=ONE)),
            put(entry(29, ONE, "delivered", began=28, slices=[[0, 4, 5]]), entry(31, ONE, "lost", partitions=[0])),
        ],
    ),
    ("a gap", "in order", [changed(16, slices=[[0, 3, 4]])]),
    ("going back", "in order", [changed(16, slices=[[0, 1, 4]])]),
    ("a lost commit", "where it stood", [changed(24, slices=[[0, 2, 6]])]),
    ("a skipped start", "where it stood", [changed(24, slices=[[0, 5, 6]])]),
    ("a commit of what no member read", "commits", [changed(25, offsets={"0": 7})]),
    (
        "a commit by a member that is no owner",
        "commits",
        [
            put(
                entry(27, ONE, "committing", number=3, offsets={"0": 6}),
                entry(28, ONE, "commit", number=3, outcome="ok"),
            )
        ],
    ),
    (
        "a commit after another took it",
        "commits",
        [
            without(20, 21),
            put(entry(19, "conductor", "stopped", member=ONE), entry(27, "conductor", "continued", member=ONE)),
            put(entry(28, ONE, "committing", number=3, offsets={"0": 4})),
            put(entry(29, ONE, "commit", number=3, outcome="ok"), entry(31, ONE, "lost", partitions=[0])),
        ],
    ),
    ("a commit that goes back", "commits", [changed(17, offsets={"0": 1})]),
    ("a commit refused for no good reason", "commits", [changed(18, outcome="CommitRewind: ...")]),
    (
        "a commit that outlives its timeout",
        "in time",
        [changed(25, timeout_s=8.0), changed(26, took_s=9.5, starved_s=0.2)],
    ),
    ("a record that no member read", "no loss", [changed(1, acks=[[0, 6]])]),
    ("a member of ours that fails", "alive", [put(entry(29, TWO, "failed", error="IllegalTransition"))]),
    ("a member of ours that is unwell", "alive", [changed(42, healthy=False, reason="stalled")]),
    ("a member of ours that ends badly", "alive", [changed(43, code=-11)]),
    (
        "a group of the wrong protocol",
        "alive",
        [put(entry(31, "conductor", "became", kind="classic", due="consumer"))],
    ),
    ("a group that is not done", "alive", [changed(30, done=False)]),
    ("a run without an end", "alive", [without(30)]),
]


@pytest.mark.parametrize(("rule", "changes"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_what_must_not_happen_is_found(rule: str, changes: list[Change]) -> None:
    history = sound()
    for change in changes:
        history = change(history)
    found = judge(history)
    assert rule in {one.rule for one in found if one.ours}, found


def test_a_frozen_member_may_believe_and_a_killed_one_owns_nothing() -> None:
    believes = without(20, 21)(sound())
    frozen = [entry(19, "conductor", "stopped", member=ONE), entry(27, "conductor", "continued", member=ONE)]
    lost = entry(29, ONE, "lost", partitions=[0])
    assert judge(put(*frozen, lost)(believes)) == []
    killed = [entry(19, "conductor", "killed", member=ONE)]
    assert judge(put(*killed)(without(20, 21, 41)(sound()))) == []


def test_generations_begin_again_only_in_a_group_that_everybody_had_left_and_that_moves() -> None:
    again = changed(22, generation=1)(sound())
    assert [one.rule for one in judge(again)] == ["one owner"]
    moves = put(entry(9, "conductor", "converting", to="classic"))(again)
    assert judge(moves) == []
    assert "one owner" in {one.rule for one in judge(without(20)(moves))}


def test_who_was_asked_to_leave_before_it_reached_anybody_need_not_be_well_while_a_broker_is_away() -> None:
    unwell = entry(37, "kohort-9", "left", healthy=False, reason="no broker responds")
    assert [one.rule for one in judge(put(unwell)(sound()))] == ["alive"]
    away = put(entry(35, "conductor", "broker", act="kill broker", node=1))
    assert judge(away(put(unwell)(sound()))) == []
    back = put(entry(36, "conductor", "broker", act="is back", node=1))
    assert [one.rule for one in judge(back(away(put(unwell)(sound()))))] == ["alive"]
    assert judge(away(changed(42, healthy=False, reason="no broker responds")(sound()))) != []


def test_a_commit_of_unknown_outcome_is_stored_or_not_but_only_until_the_next_owner() -> None:
    unknown = without(18)(sound())
    assert judge(unknown) == []
    assert judge(changed(24, slices=[[0, 2, 6]])(unknown)) == []
    later = [
        entry(32, TWO, "revoked", partitions=[0]),
        entry(33, ONE, "assigned", partitions=[0], assignment=[0], generation=3),
        entry(35, ONE, "delivered", began=34, slices=[[0, 4, 6]]),
        entry(36, ONE, "revoked", partitions=[0]),
    ]
    found = judge(put(*later)(without(40)(unknown)))
    assert [one.rule for one in found] == ["where it stood"]


def test_a_refused_commit_is_stored_only_where_a_broker_died_with_it_or_its_member_was_frozen() -> None:
    refused = changed(18, outcome="CommitFailed: ...")(sound())
    assert [one.rule for one in judge(refused)] == ["where it stood"]
    assert judge(put(entry(16, "conductor", "broker", act="kill broker", node=1))(refused)) == []
    for member, found in ((ONE, 0), (TWO, 1)):
        frozen = [entry(16, "conductor", "stopped", member=member), entry(18, "conductor", "continued", member=member)]
        assert len(judge(put(*frozen)(refused))) == found


def test_a_commit_that_the_machine_held_up_or_that_was_frozen_is_in_time() -> None:
    def late(starved_s: float) -> list[Entry]:
        ended = entry(30, TWO, "commit", number=1, outcome="ok", took_s=10.0, starved_s=starved_s)
        return put(ended)(without(26)(changed(25, timeout_s=8.0)(sound())))

    assert [one.rule for one in judge(late(0.5))] == ["in time"]
    assert judge(late(1.5)) == []
    frozen = [entry(27, "conductor", "stopped", member=TWO), entry(29, "conductor", "continued", member=TWO)]
    assert judge(put(*frozen)(late(0.0))) == []


def test_a_refused_commit_after_the_broker_is_back_is_not_stored() -> None:
    refused = changed(18, outcome="CommitFailed: ...")(sound())
    fell = [entry(11, "conductor", "broker", act="kill broker", node=1)]
    back = [*fell, entry(16, "conductor", "broker", act="is back", node=1)]
    assert judge(put(*fell)(refused)) == []
    assert [one.rule for one in judge(put(*back)(refused))] == ["where it stood"]


def test_what_others_do_is_told_apart() -> None:
    theirs = [one._replace(who=PEER) if one.who == ONE else one for one in sound()]
    found = judge(changed(16, slices=[[0, 3, 4]])(theirs))
    assert [(one.rule, one.ours) for one in found if one.rule == "in order"] == [("in order", False)]


def test_a_history_is_read_back_in_order_and_a_torn_line_is_left_out(tmp_path: Path) -> None:
    first, second = Writer(tmp_path / "a.jsonl", ONE), Writer(tmp_path / "b.jsonl", TWO)
    settle = first.committing({3: 7})
    second.write("closing")
    settle(None)
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write('{"at": 1, "who"')
    history = read(tmp_path.glob("*.jsonl"))
    assert [(one.who, one.what) for one in history] == [(ONE, "committing"), (TWO, "closing"), (ONE, "commit")]
    assert history[2].facts.keys() == {"number", "outcome", "took_s", "starved_s"}
    assert history[2].facts["outcome"] == "ok"
    assert history[0].facts["offsets"] == {"3": 7}


def test_a_hundred_seeds_of_kip_848_tell_of_everything_too() -> None:
    assert epoch_plan(7) == epoch_plan(7)
    plans = [epoch_plan(seed) for seed in range(1, 101)]
    assert {action.act for one in plans for action in one.actions} == set(Act)
    assert {one.remote for one in plans} == set(REMOTE_ASSIGNORS)
    moves = Counter((one.protocol, sum(action.act is Act.CONVERT for action in one.actions)) for one in plans)
    assert moves.keys() == {("consumer", 0), ("consumer", 1), ("consumer", 2), ("classic", 1), ("classic", 2)}
    kinds = {kind for one in plans for kind in (*one.first, *(action.kind for action in one.actions))}
    assert kinds - {""} == {*OURS, *EPOCH_PEERS}


def test_a_long_run_has_both_of_ours_from_beginning_to_end_and_brokers_that_fall_all_the_while() -> None:
    assert long_plan(7, 3600.0) == long_plan(7, 3600.0)
    plans = [long_plan(seed, 3600.0) for seed in range(1, 41)]
    assert {one.protocol for one in plans} == {CLASSIC, CONSUMER}
    assert all(set(OURS) < set(one.first[: one.residents]) and len(one.first) == one.residents for one in plans)
    assert all(bool(one.remote) == (one.protocol == CONSUMER) for one in plans)
    for one in plans:
        at_s = [action.at_s for action in one.actions if action.act in BROKER_ACTS]
        assert len(at_s) > 25
        assert min(at_s) < 60
        assert max(at_s) > 3000
    assert {action.act for one in plans for action in one.actions} == set(Act) - {Act.CONVERT, Act.RESTART}


def test_a_seed_tells_one_story_and_a_hundred_seeds_tell_of_everything() -> None:
    assert plan(7) == plan(7)
    plans = [plan(seed) for seed in range(1, 101)]
    acts = {action.act for one in plans for action in one.actions}
    assert acts == set(Act) - {Act.CONVERT, Act.RESTART}
    assert {one.strategy for one in plans} == set(STRATEGIES)
    kinds = {kind for one in plans for kind in (*one.first, *(action.kind for action in one.actions))}
    assert kinds - {""} == {*OURS, "java", "confluent-kafka", "kafka-python", "aiokafka"}
    assert all(sum(action.act in BROKER_ACTS for action in one.actions) <= 1 for one in plans)
