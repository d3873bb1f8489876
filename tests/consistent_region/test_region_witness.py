"""A store that was lost or went back is refused, by evidence outside it."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kohort.common.errors import KohortError
from kohort.consistent_region.checkpoint_barrier import MembershipView, StorePast
from kohort.consistent_region.dict_state import DictState
from kohort.consistent_region.errors import ConfigurationError, ResetFailedError, StoreLost, StoreWentBack
from kohort.consistent_region.sql_sink import SqlSink
from kohort.consistent_region.states import READING
from kohort.consistent_region.store import Key, MemoryStore
from kohort.consistent_region.witness import NO_COMMIT, Witness, check_witnesses, continued, witness_of
from kohort.network.errors import OperationTimeout
from tests.consistent_region.region_hand import P0, P1, Hand, Listed

LINEAGE = "5f"


class Paying(Hand):
    """A member that writes each record's place to a database."""

    def __init__(self, store: MemoryStore, database: Path, before: Hand | None = None) -> None:
        self.sink = SqlSink(f"sqlite:///{database}", schema="CREATE TABLE IF NOT EXISTS paid (n INTEGER, at INTEGER)")
        super().__init__(store, sinks={"out": self.sink})
        if before is not None:
            self.now = before.now
            self.consumer.committed_now = before.consumer.committed_now
        self.assigned(P0, P1)
        self.turn(5)

    def handle(self, record: Any, state: DictState) -> None:
        self.sink.execute("INSERT INTO paid VALUES (?, ?)", [record.partition, record.offset])

    def ends(self) -> None:
        self.conductor.stop()
        self.states.close()


def copied(store: MemoryStore) -> dict[Key, bytes]:
    return dict(store._values)


def with_checkpoints(store: MemoryStore, name: str = "a") -> Hand:
    """A member alone, with two checkpoints, each committed to the group."""
    hand = Hand(store, name)
    hand.assigned(P0, P1)
    for offset in (0, 1):
        hand.reads(P0, offset)
        hand.checkpoint()
        hand.turn()
    return hand


def started(store: MemoryStore, before: Hand) -> Hand:
    """The next process, in the same group."""
    hand = Hand(store)
    hand.now = before.now
    hand.consumer.committed_now = before.consumer.committed_now
    hand.assigned(P0, P1)
    return hand


def test_what_is_committed_names_the_store_and_its_newest_checkpoint() -> None:
    hand = with_checkpoints(MemoryStore())
    witness = witness_of(hand.consumer.committed_now[P0].metadata)
    assert witness == Witness(hand.coordinator.record().past.lineage, 2)


@pytest.mark.parametrize("text", [None, "", "mine", "kohort-region/1", "kohort-region/1 x", "kohort-region/1 x y"])
def test_what_other_programs_commit_is_no_evidence(text: str | None) -> None:
    assert witness_of(text) is None


def test_the_evidence_comes_back_as_it_was_written() -> None:
    witness = Witness(LINEAGE, 20)
    assert witness_of(witness.metadata) == witness


@pytest.mark.parametrize(
    ("sequence", "newest", "voided", "error"),
    [
        (20, 20, 0, None),
        (19, 20, 0, None),
        (0, None, 0, None),
        (20, 18, 0, StoreWentBack),
        (1, None, 0, StoreWentBack),
        (20, 10, 20, None),  # an operator went back
        (21, 10, 20, StoreWentBack),
    ],
)
def test_a_checkpoint_that_the_store_lacks_is_an_older_copy_unless_an_operator_went_back(
    sequence: int, newest: int | None, voided: int, error: type[KohortError] | None
) -> None:
    view = MembershipView(3, newest, None, 0.0, past=StorePast(LINEAGE, voided))
    if error is None:
        check_witnesses([Witness(LINEAGE, sequence)], view)
    else:
        with pytest.raises(error, match="older copy"):
            check_witnesses([Witness(LINEAGE, sequence)], view)


def test_a_store_that_was_lost_between_two_lives_is_refused() -> None:
    before = with_checkpoints(MemoryStore())
    before.conductor.stop()
    with pytest.raises(StoreLost, match="another history"):
        started(MemoryStore(), before).turn(3)


def test_a_lost_store_is_refused_when_an_assignment_could_not_look_at_the_groups_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = with_checkpoints(MemoryStore())
    before.conductor.stop()
    with monkeypatch.context() as patch:
        patch.setattr(type(before.consumer), "committed", without_a_response)
        hand = started(MemoryStore(), before)
    with pytest.raises(StoreLost, match="another history"):
        hand.turn(5)


def without_a_response(*_arguments: object, **_named: object) -> NoReturn:
    raise OperationTimeout("no response")


def test_an_older_copy_between_two_lives_is_refused() -> None:
    store = MemoryStore()
    before = with_checkpoints(store)
    copy = copied(store)
    before.reads(P0, 2)
    before.checkpoint()
    before.turn()
    before.conductor.stop()
    store._values = copy
    with pytest.raises(StoreWentBack, match="older copy"):
        started(store, before).turn(3)


def test_an_older_copy_ends_the_members_that_run() -> None:
    store = MemoryStore()
    hand = with_checkpoints(store)
    copy = copied(store)
    hand.reads(P0, 2)
    hand.checkpoint()
    store._values = copy
    with pytest.raises(StoreWentBack, match="older copy"):
        hand.turn(5)


def test_another_store_ends_the_members_that_run() -> None:
    store, other = MemoryStore(), MemoryStore()
    hand = with_checkpoints(store)
    with_checkpoints(other, "b")
    store._values = copied(other)
    with pytest.raises(ResetFailedError, match="lost the checkpoint"):
        hand.turn(5)


def test_a_member_that_stood_still_while_an_operator_accepted_the_store_ends() -> None:
    hand = with_checkpoints(MemoryStore())
    hand.now += 100.0  # its lease is over
    hand.coordinator.accept_store()
    with pytest.raises(ResetFailedError, match="another history"):
        hand.turn(5)


class Stopping(Listed):
    """A sink whose process stands still, until later owners have gone on."""

    def __init__(self, meanwhile: Callable[[], Witness]) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Witness] | None = meanwhile

    def take(self, tasks: Any, term: Any) -> dict[Any, Any]:
        meanwhile, self.meanwhile = self.meanwhile, None
        return {} if meanwhile is None else {one: meanwhile() for one in sorted(tasks)[:1]}


def test_a_member_that_stood_still_before_it_took_its_tasks_is_not_ended_by_the_notes_of_the_next_owner() -> None:
    store = MemoryStore()
    with_checkpoints(store, "first").lost()

    def goes_on() -> Witness:
        later = Hand(store, "later")
        later.assigned(P0, P1, generation=7)
        later.until(lambda: later.member.state in READING)
        later.reads(P0, 2)
        return Witness(later.coordinator.record().past.lineage, later.checkpoint())

    hand = Hand(store, "frozen", {"out": Stopping(goes_on)})
    hand.assigned(P0, P1, generation=6)
    hand.turn(2)
    assert hand.coordinator.record().newest == 3
    hand.lost(generation=6)
    hand.assigned(P0, P1, generation=8)
    hand.until(lambda: hand.member.state in READING)
    assert hand.state == {"0": [0, 1, 2]}


def test_a_store_that_lost_the_starts_of_tasks_is_refused_by_the_terms_of_a_sink(tmp_path: Path) -> None:
    """Its next owners would have earlier terms, so that the sink would leave out their effects without an error."""
    store, database = MemoryStore(), tmp_path / "out.db"
    last = Paying(store, database)
    last.reads(P0, 0)
    last.checkpoint()
    last.ends()
    copy = copied(store)
    for _ in range(2):
        last = Paying(store, database, last)
        assert last.member.state in READING
        last.ends()
    store._values = copy
    with pytest.raises(StoreWentBack, match=r"lacks the start of a task.*older copy"):
        Paying(store, database, last)


class LateNotice(MemoryStore):
    """A store of which no notification comes while it is `late`."""

    late = False

    def changed(self, group: str, known: bytes) -> bool:
        return not self.late


def test_a_notification_that_is_later_than_the_evidence_ends_no_member() -> None:
    store = LateNotice()
    hand = Hand(store, "next")
    hand.turn()
    first = with_checkpoints(store, "first")
    first.lost()
    hand.now = first.now
    hand.consumer.committed_now = first.consumer.committed_now
    store.late = True
    hand.assigned(P0, P1, generation=6)
    store.late = False
    hand.until(lambda: hand.member.state in READING and hand.member.base == 2)
    assert hand.state == {"0": [0, 1]}


def test_an_operators_reset_is_followed_by_members_that_run_and_that_start() -> None:
    store = MemoryStore()
    hand = with_checkpoints(store)
    assert hand.coordinator.rewind(1) == (2,)
    hand.turn(5)
    assert hand.member.base == 1
    hand.conductor.stop()
    again = started(store, hand)
    again.turn(5)
    assert again.member.base == 1


@pytest.mark.parametrize("lost", [True, False])
def test_an_operator_accepts_a_store_that_was_lost_or_went_back(lost: bool) -> None:
    store = MemoryStore()
    before = with_checkpoints(store)
    copy = copied(store)
    before.reads(P0, 2)
    before.checkpoint()
    before.turn()
    with pytest.raises(ConfigurationError, match="members of the region run"):
        before.coordinator.accept_store()
    before.conductor.stop()
    store._values = {} if lost else copy
    refused = started(store, before)
    with pytest.raises(ResetFailedError):
        refused.turn(3)
    refused.conductor.stop()
    refused.now += 100.0
    before.now = refused.now
    refused.coordinator.accept_store()
    again = started(store, before)
    again.turn(5)
    assert again.member.base == (None if lost else 2)
    again.reads(P0, 2 if not lost else 0)
    again.checkpoint()
    again.turn()
    assert started(store, again).member.state.name != "FAILED"


@pytest.mark.proves("I16")
@pytest.mark.parametrize("acceptances", [1, 2])
@pytest.mark.parametrize("older", [True, False])
def test_effects_of_an_accepted_checkpoint_do_not_come_again_and_later_ones_do(
    older: bool, acceptances: int, tmp_path: Path
) -> None:
    database, store = tmp_path / "paid.db", MemoryStore()

    def paid() -> list[tuple[int, int]]:
        with closing(sqlite3.connect(database)) as connection:
            return connection.execute("SELECT n, at FROM paid ORDER BY n, at").fetchall()

    before = Paying(store, database)
    before.reads(P1, 0)
    for offset in (0, 1, 2)[: 2 + older]:
        before.reads(P0, offset)
        before.checkpoint()
        before.turn()
        if offset < 2:
            copy = copied(store)
    before.ends()
    store._values = dict(copy)
    before.now += 100.0
    for _ in range(acceptances):
        before.coordinator.accept_store()

    after = Paying(store, database, before)
    accepted = [(0, 0), (0, 1), *[(0, 2)] * older, (1, 0)]
    assert paid() == accepted
    after.reads(P0, 2)  # again, because the accepted copy lacks it
    after.checkpoint()
    after.turn()
    assert paid() == sorted([*accepted, (0, 2)])
    after.coordinator.rewind(1)  # the notes of its two tasks are of both lineages
    after.turn(5)
    assert (after.member.base, paid()) == (1, sorted([*accepted, (0, 2)]))
    after.ends()

    store._values = dict(copy)  # the next store is lost, too
    after.now += 100.0
    after.coordinator.accept_store()
    last = Paying(store, database, after)
    assert (last.member.base, paid()) == (2, sorted([*accepted, (0, 2)]))
    last.ends()


ONCE = continued(LINEAGE, 2, "6a")
OTHER = continued(LINEAGE, 2, "8c")
TWICE = continued(ONCE, 4, "7b")


@pytest.mark.proves("I16")
@pytest.mark.parametrize(
    ("note", "at", "covered"),
    [
        (Witness(LINEAGE, 2), Witness(LINEAGE, 2), True),
        (Witness(LINEAGE, 1), Witness(LINEAGE, 2), False),
        (NO_COMMIT, Witness(LINEAGE, 1), False),
        (Witness("9d", 9), Witness(ONCE, 1), False),
        (Witness(LINEAGE, 9), Witness(ONCE, 2), True),
        (Witness(LINEAGE, 9), Witness(ONCE, 3), False),  # another checkpoint of this number
        (Witness(LINEAGE, 1), Witness(ONCE, 2), False),  # the effects are still due
        (Witness(ONCE, 3), Witness(ONCE, 2), True),
        (Witness(ONCE, 3), Witness(OTHER, 2), True),  # one backup was accepted twice
        (Witness(ONCE, 3), Witness(OTHER, 3), False),
        (Witness(ONCE, 1), Witness(OTHER, 2), False),
        (Witness(ONCE, 5), Witness(continued(LINEAGE, 4, "8c"), 3), False),
        (Witness(TWICE, 5), Witness(OTHER, 2), True),
        (Witness("x<y<1:z<", 3), Witness(ONCE, 2), False),  # of another program
        (Witness(LINEAGE, 2), Witness(TWICE, 2), True),
        (Witness(LINEAGE, 9), Witness(TWICE, 3), False),
        (Witness(ONCE, 4), Witness(TWICE, 4), True),
        (Witness(ONCE, 9), Witness(TWICE, 5), False),
    ],
)
def test_a_note_of_an_earlier_lineage_covers_the_checkpoints_that_were_accepted(
    note: Witness, at: Witness, covered: bool
) -> None:
    assert note.covers(at) is covered


def test_after_many_acceptances_a_commits_metadata_is_short_and_names_the_last_ones() -> None:
    lineages = ["0" * 32]
    for number in range(1, 300):
        lineages.append(continued(lineages[-1], 2**62, f"{number:032}"))
    at = Witness(lineages[-1], 2**62)
    assert len(at.metadata) < 4096
    assert [Witness(one, 2**62).covers(at) for one in lineages[-9:]] == [False, *[True] * 8]
    assert witness_of(at.metadata) == at


def test_a_region_whose_first_checkpoint_is_not_complete_leaves_its_lineage_only() -> None:
    hand = Hand(MemoryStore(), commit_point="drain")
    hand.assigned(P0, P1)
    assert hand.member.witness.sequence == 0
