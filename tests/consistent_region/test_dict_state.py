"""A dict as a state: large ones are written beside the handler, and only where they changed."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.consistent_region import DictState, dict_state
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import ConfigurationError, ResetFailedError
from kohort.consistent_region.incremental import StateCut
from kohort.consistent_region.manifest import Block
from kohort.consistent_region.states import RegionPhase
from kohort.consistent_region.store import Key, MemoryStore
from tests.consistent_region.region_hand import P0, P1, Hand


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"INLINE_KEYS": 4, "CHUNK_KEYS": 3, "BLOCK_BYTES": 60, "MOST_DELTAS": 3}.items():
        monkeypatch.setattr(dict_state, name, value)


def cut_of(state: DictState) -> StateCut:
    cut = state.cut()
    assert cut is not None
    return cut


def written(cut: StateCut) -> list[Block]:
    while not cut.write(lambda: False):
        pass
    return cut.blocks


def read(state: DictState, blocks: Iterable[Block]) -> None:
    for _ in state.restore_blocks(blocks):
        pass


class Store:
    """Blocks by digest, as a store keeps them."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.puts = 0

    def checkpoint(
        self, state: DictState, *, complete: bool = True, meanwhile: Callable[[], object] = int
    ) -> DictState:
        """Take a checkpoint, and return the state that another process restores from it."""
        cut = cut_of(state)
        meanwhile()
        for one in written(cut):
            if one.data is not None:
                self.data[one.reference.digest] = one.data
                self.puts += 1
        if complete:
            cut.completed()
        restored = DictState()
        read(restored, [Block(one.reference, self.data[one.reference.digest]) for one in cut.blocks])
        return restored


def full(count: int = 10) -> DictState:
    return DictState({f"k{number}": number for number in range(count)})


@pytest.mark.proves("CR-91")
def test_a_snapshot_has_the_state_of_its_cut_and_nothing_of_later() -> None:
    state, store = full(), Store()

    def meanwhile() -> None:
        state["k1"], state["new"] = -1, -1
        del state["k2"]

    assert store.checkpoint(state, meanwhile=meanwhile) == full()
    assert store.checkpoint(state) == state


@pytest.mark.proves("CR-91")
def test_what_did_not_change_is_not_written_again() -> None:
    state, store = full(100), Store()
    assert store.checkpoint(state) == state
    whole = store.puts
    assert whole > 5
    for _ in range(9):  # more than a chain may have
        assert store.checkpoint(state) == state
    assert store.puts == whole
    state["k7"] = 70
    del state["k8"]
    before = set(store.data)
    assert store.checkpoint(state) == state
    assert store.puts == whole + 1
    (new,) = set(store.data) - before
    assert [json.loads(line) for line in store.data[new].split(b"\n")] == [
        {"gone": [], "set": {"k7": 70}},
        {"gone": ["k8"], "set": {}},
    ]


@pytest.mark.proves("CR-91")
def test_a_snapshot_that_was_given_up_is_nothing_to_build_upon() -> None:
    state, store = full(), Store()
    store.checkpoint(state)
    state["k1"] = -1
    store.checkpoint(state, complete=False)
    assert store.checkpoint(state) == state


def test_a_chain_of_many_changes_begins_anew() -> None:
    state, store = full(), Store()
    for number in range(20):
        state["k1"] = number
        assert store.checkpoint(state) == state
        assert len(state._chain) <= state._whole_blocks + 3 + 1


def test_a_restored_state_is_written_as_a_whole_first_with_values_that_a_migration_changed_in_place() -> None:
    state, store = DictState({f"k{number}": [number] for number in range(10)}), Store()
    restored = store.checkpoint(state)
    restored["k1"].append(-1)
    assert all(one.data is not None for one in written(cut_of(restored)))
    restored["k2"] = [-1]
    assert store.checkpoint(restored) == restored


def test_a_state_that_shrinks_is_one_snapshot_again() -> None:
    state, store = full(), Store()
    store.checkpoint(state)
    for key in list(state)[3:]:
        del state[key]
    assert state.cut() is None
    assert json.loads(state.snapshot({})) == state
    state.update(full())
    assert all(one.data is not None for one in written(cut_of(state)))  # the chain may be gone from the store


@pytest.mark.proves("CR-92")
@pytest.mark.parametrize("when", ["written", "next"])
def test_a_value_that_is_changed_in_place_is_an_error(when: str) -> None:
    state = DictState({f"k{number}": [number] for number in range(10)})
    cut = cut_of(state)
    if when == "written":
        state["k3"].append(1)
        with pytest.raises(ConfigurationError, match=r"changed in place.*key=k3"):
            written(cut)
        return
    written(cut)
    cut.completed()
    state["k3"].append(1)
    state["k3"] = state["k3"]  # the same object
    with pytest.raises(ConfigurationError, match="changed in place"):
        state.cut()


def test_a_value_that_is_replaced_by_an_equal_one_of_another_type_is_written() -> None:
    state, store = full(), Store()
    store.checkpoint(state)
    state["k1"] = True
    assert store.checkpoint(state)["k1"] is True


def test_values_that_are_replaced_are_no_error() -> None:
    state, store = DictState({f"k{number}": [number] for number in range(10)}), Store()
    for _ in range(3):
        state["k3"] = [*state["k3"], 1]
        assert store.checkpoint(state) == state


@pytest.mark.parametrize("wrong", [{5: 1}, {"a": {5: 1}}, {"a": [{5: 1}]}, {"a": {1, 2}}, {"a": float("nan")}])
def test_what_json_cannot_hold_is_refused_in_blocks_too(wrong: dict[Any, Any]) -> None:
    with pytest.raises(ConfigurationError):
        written(cut_of(DictState({**full(), **wrong})))


@pytest.mark.parametrize("data", [b"[]", b"{}", b"\xff", b'{"gone":[],"set":[]}'])
def test_a_block_of_something_else_is_refused(data: bytes) -> None:
    with pytest.raises(ResetFailedError):
        read(DictState(), [Block.of(data)])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 12), st.one_of(st.none(), st.integers(0, 3), st.text(max_size=2))))))
def test_any_history_of_changes_is_restored(rounds: list[list[tuple[int, Any]]]) -> None:
    state, store = full(), Store()
    for number, changes in enumerate(rounds):
        for key, value in changes:
            if value is None:
                state.pop(f"k{key}", None)
            else:
                state[f"k{key}"] = value
        if len(state) > dict_state.INLINE_KEYS:
            assert store.checkpoint(state, complete=number % 3 != 0) == state


@pytest.mark.proves("CR-91")
def test_handlers_go_on_while_a_large_state_is_written() -> None:
    hand = Hand(MemoryStore())
    hand.conductor.handler = lambda record, state: state.update({f"{record.partition}-{record.offset}": record.offset})
    hand.assigned(P0, P1)
    hand.reads(P0, *range(50))
    hand.member.make_consistent(hand.now)
    hand.until(lambda: hand.member.phase is RegionPhase.WRITING)
    hand.member.checkpoint_requested = False  # as if another member had requested it
    turns = 0
    while hand.member.phase is RegionPhase.WRITING:
        hand.reads(P0, 50 + turns)
        turns += 1
    assert turns > 5
    assert len(hand.state) == 50 + turns
    hand.until(lambda: hand.member.base == 1)
    (cut, _) = hand.coordinator.manifest(1).tasks
    restored = DictState()
    read(restored, hand.coordinator.load(cut).blocks)
    assert sorted(restored.values()) == list(range(50))
    assert cut.offsets[P0].offset == 50
    assert len(hand.coordinator.whole(1).tasks[0].blocks) > 5


@pytest.mark.proves("CR-91")
def test_blocks_stay_as_long_as_a_checkpoint_names_them_and_a_new_owner_starts_from_them() -> None:
    store = MemoryStore()
    hand = Hand(store)
    hand.conductor.handler = lambda record, state: state.update({f"{record.partition}-{record.offset}": record.offset})
    hand.assigned(P0, P1)
    for number in range(6):
        hand.reads(P0, *range(number * 20, number * 20 + 20))
        hand.until(lambda: hand.member.queued == 0)
        hand.checkpoint()
    for sequence in hand.coordinator.checkpoints():
        hand.coordinator.whole(sequence)
    named = {
        one.digest
        for sequence in hand.coordinator.checkpoints()
        for cut in hand.coordinator.manifest(sequence).tasks
        for one in cut.references
    }
    assert set(store.names("state", "g")) == named
    other = Hand(store, "b")
    other.assigned(P0, P1, generation=6)
    other.until(lambda: len(other.state) == 120)


def test_a_contribution_without_one_of_its_blocks_makes_the_member_go_back() -> None:
    store = MemoryStore()
    hand = Hand(store)
    hand.conductor.handler = lambda record, state: state.update({f"{record.partition}-{record.offset}": record.offset})
    hand.assigned(P0, P1)
    hand.reads(P0, *range(50))
    original = RegionCoordinator.put_block

    def put(block: Block) -> None:
        original(hand.coordinator, hand.conductor._ticket, block)
        store.delete(Key("state", "g", block.reference.digest))  # as `kohort region retire` might

    cuts = hand.states
    hand.member.make_consistent(hand.now)
    hand.until(lambda: hand.member.phase is RegionPhase.WRITING)
    while not cuts.write(lambda: False):
        cuts.store(put)
    cuts.store(put)
    hand.until(lambda: hand.member.metrics["resets_total"] == 1)
    assert hand.coordinator.checkpoints() == ()
