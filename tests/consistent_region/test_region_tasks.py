"""State that follows its partitions, through joins, leaves, kills, renames and hand-over."""

import random
from pathlib import Path
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.consistent_region import DictState, SqlSink, TaskId, Witness
from kohort.consistent_region.coordinator import TaskStart
from kohort.consistent_region.errors import ConfigurationError
from kohort.consistent_region.manifest import StateReference, TaskState
from kohort.consistent_region.store import MemoryStore
from kohort.consistent_region.task_states import TaskStates
from kohort.coordinator_client.hooks import Revoked
from tests.consistent_region.region_hand import CAUSE, P0, P1, Hand

USERS = 60
HISTORIES = 30


class Users(Hand):
    """A member whose handler inserts a row for each user that its state does not have. Partition n has user 2 m + n at
    offset m, again and again."""

    def __init__(self, store: MemoryStore, name: str, url: str, **settings: Any) -> None:
        self.rows = SqlSink(url, schema="CREATE TABLE IF NOT EXISTS first (user INTEGER)")
        super().__init__(store, name, {"rows": self.rows}, **settings)

    def handle(self, record: Any, state: DictState) -> None:
        user = 2 * (record.offset % (USERS // 2)) + record.partition
        if str(user) not in state:
            state[str(user)] = 1
            self.rows.execute("INSERT INTO first VALUES (?)", (user,))

    def reads_on(self, partition: TopicPartition, count: int) -> None:
        if partition in self.consumer.assignment and self.member.queued == 0:
            at = self.consumer.positions[partition]
            self.reads(partition, *range(at, at + count))

    def settled(self) -> bool:
        return self.member.state.name in ("RECORDS_FETCHED", "RESET_COMPLETE", "SUBSCRIBED")


class Group:
    """Members that come and go, each under a new name."""

    def __init__(self, url: str, seed: int, *, hand_over: bool) -> None:
        self.chance = random.Random(seed)
        self.url, self.hand_over = url, hand_over
        self.store = MemoryStore()
        self.generation = 1
        self.names = 0
        self.now = 100.0
        self.members: list[Users] = []
        self.come()

    def come(self) -> None:
        self.names += 1
        one = Users(self.store, f"m{self.names}", self.url, hand_over=self.hand_over)
        one.now = self.now
        self.members.append(one)
        self.assign()

    def go(self, *, killed: bool) -> None:
        one = self.members.pop(self.chance.randrange(len(self.members)))
        if not killed:
            mine = one.consumer.assignment
            one.conductor.on_revoked(Revoked(mine, mine, self.generation, CAUSE))
            one.conductor.stop()
        one.states.close()
        self.assign()

    def assign(self) -> None:
        """A rebalance, in which owners let go before others get."""
        self.generation += 1
        self.chance.shuffle(self.members)
        plan = {id(one): set[TopicPartition]() for one in self.members}
        for number, partition in enumerate((P0, P1)):
            plan[id(self.members[number % len(self.members)])].add(partition)
        for one in self.members:
            before = one.consumer.assignment
            gone = before - plan[id(one)] if self.hand_over else before
            if gone:
                one.conductor.on_revoked(Revoked(frozenset(gone), before, self.generation, CAUSE))
                one.consumer.assignment = before - gone
        for one in self.members:
            kept = {place: at for place, at in one.consumer.positions.items() if place in one.consumer.assignment}
            mine = frozenset(plan[id(one)])
            one.assigned(*mine, generation=self.generation)
            one.consumer.positions |= kept
        self.turn()

    def turn(self, count: int = 3) -> None:
        for _ in range(count):
            for one in self.members:
                one.now = self.now
                one.turn()
                self.now = one.now

    def until_settled(self) -> None:
        for _ in range(300):
            if all(one.settled() for one in self.members):
                return
            self.turn(1)
        raise AssertionError([one.member.state for one in self.members])

    def checkpoint(self) -> None:
        self.until_settled()
        before = self.store_newest()
        self.members[0].member.make_consistent(self.now)
        for _ in range(300):
            if self.store_newest() != before and all(one.member.base == self.store_newest() for one in self.members):
                return
            self.turn(1)
        raise AssertionError([one.member.state for one in self.members])

    def store_newest(self) -> int | None:
        return self.members[0].coordinator.look().newest

    def live(self, steps: int) -> None:
        for _ in range(steps):
            match self.chance.randrange(6):
                case 0 if len(self.members) < 4:
                    self.come()
                case 1 if len(self.members) > 1:
                    self.go(killed=self.chance.random() < 0.5)
                case 2:
                    self.checkpoint()
                case _:
                    for one in self.members:
                        for partition in (P0, P1):
                            one.reads_on(partition, self.chance.randrange(1, 12))
                    self.turn()

    def rows(self) -> list[int]:
        return [row[0] for row in self.members[0].rows._connection.execute("SELECT user FROM first ORDER BY user")]


@pytest.mark.proves("I15", "I16")
@pytest.mark.parametrize("hand_over", [False, True])
def test_each_user_is_seen_first_once_through_joins_leaves_kills_and_renames(tmp_path: Path, hand_over: bool) -> None:
    for seed in range(HISTORIES):
        group = Group(f"sqlite:///{tmp_path}/{seed}.db", seed, hand_over=hand_over)
        group.live(25)
        group.checkpoint()
        for _ in range(2):  # each user once more, with nothing due any more
            for one in group.members:
                for partition in (P0, P1):
                    one.reads_on(partition, USERS // 2)
            group.turn(4)
        group.checkpoint()
        assert group.rows() == list(range(USERS)), seed
        for one in group.members:
            one.states.close()


def test_a_process_with_another_name_continues_the_state_of_the_one_before() -> None:
    store = MemoryStore()
    before = Hand(store, "pod-1")
    before.assigned(P0, P1)
    before.reads(P0, 0, 1)
    before.checkpoint()
    before.conductor.stop()
    after = Hand(store, "pod-2")
    after.now = before.now
    after.assigned(P0, P1, generation=6)
    after.until(lambda: after.member.state.name == "RESET_COMPLETE")
    after.reads(P0, 2)
    assert after.state == {"0": [0, 1, 2]}
    after.checkpoint()
    assert after.coordinator.manifest(2).members == ("pod-2",)


def test_effects_that_a_process_owed_are_carried_out_by_the_next_under_another_name(tmp_path: Path) -> None:
    store, url = MemoryStore(), f"sqlite:///{tmp_path}/out.db"
    before = Users(store, "pod-1", url)
    before.assigned(P0, P1)
    before.reads(P0, 0, 1)
    before.rows.commit = lambda due, at: (_ for _ in ()).throw(OSError("unreachable"))  # type: ignore[method-assign]
    with pytest.raises(OSError, match="unreachable"):
        before.checkpoint()
    assert before.coordinator.checkpoints() == (1,)
    before.states.close()
    after = Users(store, "pod-2", url)
    after.now = before.now + 31.0
    after.assigned(P0, P1, generation=6)
    after.until(after.settled)
    assert [row[0] for row in after.rows._connection.execute("SELECT user FROM first")] == [0, 2]
    after.states.close()


def no_blocks(reference: StateReference) -> bytes:
    raise AssertionError(f"no state here has blocks: {reference}")


def test_a_task_without_records_has_the_contents_that_its_state_was_made_with() -> None:
    states = TaskStates(lambda _task: DictState(total=0, names=["anna"]))
    task = TaskId("", 0)
    for _ in range(2):  # also where a reset goes back to no checkpoint
        states.start({task: TaskStart({})}, "5f", no_blocks)
        state = states.states[task]
        assert isinstance(state, DictState)
        assert dict(state) == {"total": 0, "names": ["anna"]}
        state["total"] += 1
        state["names"].append("bert")
    cut = TaskState({}, b'{"total":5}')
    states.start({task: TaskStart({}, cut, 1)}, "5f", no_blocks)
    assert isinstance(state, DictState)
    assert dict(state) == {"total": 5}


@pytest.mark.parametrize("alone", [0, 1])
def test_two_tasks_with_one_state_are_refused(alone: int) -> None:
    """Each of their snapshots would have the records of both."""
    one = DictState()
    states = TaskStates(lambda task: one if task.number >= alone else DictState())
    with pytest.raises(ConfigurationError, match="state of another task"):
        states.start({TaskId("", number): TaskStart({}) for number in range(alone + 2)}, "5f", no_blocks)


def test_a_field_with_the_name_of_the_callback_is_no_callback() -> None:
    class Counting(DictState):
        completed = 0

    task, states = TaskId("", 0), TaskStates(lambda _task: Counting())
    states.start({task: TaskStart({})}, "5f", no_blocks)
    states.take_cut({task: {}})
    states.completed(Witness("5f", 1))
    assert states.metrics()["state_bytes"] == len("{}")
