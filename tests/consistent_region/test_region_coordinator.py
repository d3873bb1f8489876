"""The coordinator's rules on each store, and what only a file can suffer."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.consistent_region.checkpoint_barrier import Barrier, CheckpointTicket
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import (
    AlienManifest,
    BarrierOver,
    ConfigurationError,
    CoordinatorUnavailable,
    CorruptManifest,
    FencedError,
    InconsistentCheckpointError,
    NotRegisteredError,
    RegionError,
    RegionStopped,
    ResetFailedError,
    StateVersionError,
    StoreLost,
    TaskTaken,
)
from kohort.consistent_region.manifest import Block, StateReference, TaskState, encode
from kohort.consistent_region.offsets import RegionPosition
from kohort.consistent_region.open_store import open_store
from kohort.consistent_region.region_record import decode_record, encode_record
from kohort.consistent_region.store import Key, MemoryStore, SqliteStore, Store
from kohort.consistent_region.tasks import TaskId
from tests.consistent_region.task_calls import cuts, gone_back, offsets, states, task, tasks

P0, P1, P2 = (TopicPartition("t", n) for n in range(3))


class World:
    """A store, a clock, and coordinators on them."""

    def __init__(self, store: Store, again: Callable[[], Store]) -> None:
        self.store = store
        self.again = again
        self.now = 1000.0

    def coordinator(self, region: str = "r", group: str = "g", store: Store | None = None) -> RegionCoordinator:
        return RegionCoordinator(store or self.store, region, group, lambda: self.now)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    opened: list[Store] = []
    memory = MemoryStore()
    url = f"sqlite:///{tmp_path}/region.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").fresh()

    def another() -> Store:
        opened.append(memory if request.param == "memory" else open_store(url))
        return opened[-1]

    yield World(another(), another)
    for store in opened:
        store.close()


def at(**offsets: int) -> dict[TopicPartition, RegionPosition]:
    return {TopicPartition("t", int(name[1:])): RegionPosition(to) for name, to in offsets.items()}


class Two:
    """Members a and b in one region, both in generation 5, partitions 0 and 1 known."""

    def __init__(self, world: World) -> None:
        self.c = world.coordinator()
        self.a = self.c.register("a").ticket
        self.b = self.c.register("b").ticket
        self.c.put_initial(self.a, at(p0=0, p1=0))
        self.generation(5)

    def generation(self, number: int) -> None:
        for ticket, partition in ((self.a, P0), (self.b, P1)):
            self.c.take(ticket, self.c.look().epoch, number, 1, tasks(partition))

    def back(self, generation: int = 5) -> None:
        gone_back(self.c, self.a, generation, P0)
        gone_back(self.c, self.b, generation, P1)

    def checkpoint(self, p0: int, p1: int) -> int:
        barrier = self.c.begin_checkpoint(self.a, self.c.look().epoch).barrier
        assert barrier is not None
        self.c.contribute(self.a, barrier, cuts(at(p0=p0), b"a%d" % p0))
        newest = self.c.contribute(self.b, barrier, cuts(at(p1=p1), b"b%d" % p1)).newest
        assert newest == barrier.sequence
        return barrier.sequence


@pytest.mark.proves("CR-01")
def test_many_start_at_once_and_one_creates_the_region(world: World) -> None:
    go = threading.Barrier(8)

    def start(name: str) -> None:
        coordinator = world.coordinator(store=world.again())
        go.wait()
        coordinator.register(name)

    threads = [threading.Thread(target=start, args=(f"m{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.coordinator().members() == tuple(f"m{n}" for n in range(8))


@pytest.mark.proves("CR-02", "CR-88")
def test_a_group_is_in_one_region_and_names_are_compared_whole(world: World) -> None:
    world.coordinator("r", "Aa").register("a")
    with pytest.raises(ConfigurationError, match="another consistent region"):
        world.coordinator("other", "Aa").register("a")
    assert world.coordinator("other", "BB").register("b").ticket.group == "BB"
    assert (world.coordinator("r", "Aa").members(), world.coordinator("other", "BB").members()) == (("a",), ("b",))


def writes(region: RegionCoordinator, ticket: CheckpointTicket) -> tuple[Callable[[], object], ...]:
    """Each call of a coordinator that writes for a member."""
    barrier = Barrier(1, 0, 5, (ticket.member,))
    block = Block.of(b"block")
    return (
        lambda: region.report(ticket, 6, 1),
        lambda: region.put_initial(ticket, at(p2=1)),
        lambda: region.request_reset(ticket, 0, "", forced=True, generation=None),
        lambda: region.go_back(ticket, tasks(P0)),
        lambda: region.begin_checkpoint(ticket, 0),
        lambda: region.contribute(ticket, barrier, cuts(at(p0=1), b"s")),
        lambda: region.take(ticket, 0, 5, 1, tasks(P0)),
        lambda: region.hand_over(ticket, 0, None, cuts(at(p0=1), b"s")),
        lambda: region.hand_over(ticket, 0, None, {}, leaving=tasks(P0), left=1),
        lambda: region.put_block(ticket, block),
        lambda: region.deregister(ticket),
    )


def test_a_member_that_is_not_registered_gets_that_error(world: World) -> None:
    two = Two(world)
    with pytest.raises(NotRegisteredError):
        world.coordinator("r", "unknown").look()
    stranger = two.a.__class__("r", "g", "stranger", 1)
    for write in writes(two.c, stranger):
        with pytest.raises(NotRegisteredError, match="stranger"):
            write()


@pytest.mark.proves("I8", "CR-85")
def test_a_relaunch_fences_the_process_before_it_and_keeps_the_names(world: World) -> None:
    two = Two(world)
    again = two.c.register("a")
    assert again.past
    assert two.c.members() == ("a", "b")
    barrier = two.c.begin_checkpoint(two.b, 0).barrier
    assert barrier is None  # the new one has not gone back yet
    for write in writes(two.c, two.a):
        before = encode_record(two.c.record())
        with pytest.raises(FencedError):
            write()
        assert encode_record(two.c.record()) == before


@pytest.mark.proves("I8", "CR-03")
def test_two_processes_of_one_name_differ_though_the_store_was_set_back_between_them(world: World) -> None:
    before = world.coordinator().register("other")
    stored = encode_record(world.coordinator().record())
    first = world.coordinator().register("a").ticket
    with world.store.transaction() as books:
        books.put(Key("region", "g"), stored)
    second = world.coordinator().register("a").ticket
    assert len({before.ticket.incarnation, first.incarnation, second.incarnation}) == 3
    with pytest.raises(FencedError, match="another process"):
        world.coordinator().report(first, 5, 1)
    assert world.coordinator().report(second, 5, 1).epoch == 0


@pytest.mark.proves("CR-17", "CR-16", "CR-15", "I7", "CR-12")
def test_initial_offsets_are_written_once_and_absence_is_never_remembered(world: World) -> None:
    two = Two(world)
    assert P2 not in two.c.initial()
    assert two.c.put_initial(two.b, at(p2=0))[P2].offset == 0
    assert two.c.initial()[P2].offset == 0
    assert two.c.put_initial(two.a, at(p2=70))[P2].offset == 0  # the loser reads what the winner wrote
    with pytest.raises(ValueError, match="negative"):
        two.c.put_initial(two.a, {TopicPartition("t", 9): RegionPosition(-1)})


@pytest.mark.proves("CR-55", "CR-57", "CR-65", "I2", "A5")
def test_the_last_distinct_contribution_completes_and_all_go_back_to_the_same_map(world: World) -> None:
    two = Two(world)
    barrier = two.c.begin_checkpoint(two.a, 0).barrier
    assert barrier is not None
    assert (barrier.members, barrier.generation) == (("a", "b"), 5)
    for _ in range(2):  # the response was lost
        assert two.c.contribute(two.a, barrier, cuts(at(p0=10), b"A")).newest is None
    assert two.c.contribute(two.b, barrier, cuts(at(p1=7), b"B")).newest == 1
    for ticket in (two.a, two.b):
        back = gone_back(two.c, ticket, 5, P0, P1)
        assert states(back) == {0: b"A", 1: b"B"}
        assert offsets(back) == {P0: 10, P1: 7}


def test_no_barrier_while_a_member_is_missing_or_moves(world: World) -> None:
    two = Two(world)
    two.c.report(two.b, 6, 1)
    assert two.c.begin_checkpoint(two.a, 0).barrier is None
    two.c.report(two.a, 6, 1)
    assert two.c.begin_checkpoint(two.a, 3).barrier is None  # another epoch
    barrier = two.c.begin_checkpoint(two.a, 0).barrier
    assert barrier is not None
    assert two.c.begin_checkpoint(two.b, 0).barrier == barrier  # there is one


def test_a_static_member_that_was_killed_is_not_waited_for_once_another_process_has_its_tasks(world: World) -> None:
    two = Two(world)
    again = two.c.register("another process of a").ticket
    gone_back(two.c, again, 5, P0)  # brokers give a static member its partitions without another generation
    idle = two.c.register("idle").ticket
    two.c.report(idle, 5, 0)
    barrier = two.c.begin_checkpoint(two.b, 0).barrier
    assert barrier is not None
    assert barrier.members == ("another process of a", "b", "idle")
    two.c.contribute(again, barrier, cuts(at(p0=3), b"A"))
    two.c.contribute(idle, barrier, {})
    assert two.c.contribute(two.b, barrier, cuts(at(p1=4), b"B")).newest == barrier.sequence


def test_a_member_whose_task_was_taken_late_is_waited_for_until_all_partitions_have_other_owners(world: World) -> None:
    two = Two(world)
    two.c.take(two.b, 0, 5, 1, tasks(P0))  # and the group has given it to a
    barrier = two.c.begin_checkpoint(two.b, 0).barrier
    assert barrier is not None
    assert barrier.members == ("a", "b")


@pytest.mark.parametrize("how", ["generation", "relaunch", "reset", "deregister", "added"])
@pytest.mark.proves("I8")
def test_a_barrier_ends_with_what_it_named(world: World, how: str) -> None:
    two = Two(world)
    barrier = two.c.begin_checkpoint(two.a, 0).barrier
    assert barrier is not None
    two.c.contribute(two.a, barrier, cuts(at(p0=3), b"A"))
    if how == "generation":
        two.c.report(two.a, -1, 1)
    elif how == "relaunch":
        two.c.register("a")
    elif how == "reset":
        two.c.request_reset(two.a, 0, "x", forced=True, generation=5)
    elif how == "added":  # by a member that the group has given it to already
        two.c.put_initial(two.a, at(p2=0))
    else:
        two.c.deregister(two.a)
    with pytest.raises(BarrierOver):
        two.c.contribute(two.b, barrier, cuts(at(p1=4), b"B"))
    assert two.c.checkpoints() == ()


@pytest.mark.proves("CR-52", "I6")
def test_an_uncovered_partition_fails_the_checkpoint_and_after_some_the_region(world: World) -> None:
    two = Two(world)
    two.c.put_initial(two.a, at(p2=0))  # the owner is no member
    assert two.c.begin_checkpoint(two.a, 0).barrier is None
    for _ in range(two.c.max_consecutive_resets):
        epoch = two.c.look().epoch
        two.back()
        two.c.report(two.a, 5, 2)  # which is not true
        barrier = two.c.begin_checkpoint(two.a, epoch).barrier
        assert barrier is not None
        two.c.contribute(two.a, barrier, cuts(at(p0=1), b"A"))
        with pytest.raises(InconsistentCheckpointError, match="no contribution"):
            two.c.contribute(two.b, barrier, cuts(at(p1=1), b"B"))
        assert two.c.checkpoints() == ()
        assert two.c.look().epoch == epoch + 1
    assert "no contribution" in (two.c.look().stopped or "")
    with pytest.raises(RegionStopped):
        two.c.go_back(two.a, tasks(P0))


@pytest.mark.proves("CR-64")
def test_the_same_partition_from_two_members_resets(world: World) -> None:
    two = Two(world)
    barrier = two.c.begin_checkpoint(two.a, 0).barrier
    assert barrier is not None
    two.c.contribute(two.a, barrier, cuts(at(p0=1), b"A"))
    both = {task(P1): TaskState(at(p0=1, p1=2), b"B")}
    with pytest.raises(InconsistentCheckpointError, match="contributed twice"):
        two.c.contribute(two.b, barrier, both)
    assert (two.c.look().epoch, two.c.checkpoints()) == (1, ())


@pytest.mark.proves("CR-58", "A8")
def test_a_member_that_never_contributes_fails_the_checkpoint_in_time(world: World) -> None:
    two = Two(world)
    barrier = two.c.begin_checkpoint(two.a, 0).barrier
    assert barrier is not None
    two.c.contribute(two.a, barrier, cuts(at(p0=1), b"A"))
    world.now += two.c.checkpoint_timeout_s - 0.01
    assert two.c.look().barrier == barrier
    world.now += 0.01
    assert (two.c.look().barrier, two.c.look().epoch) == (None, 1)
    with pytest.raises(BarrierOver):
        two.c.contribute(two.b, barrier, cuts(at(p1=1), b"B"))


def test_a_member_that_the_barrier_does_not_name_contributes_nothing(world: World) -> None:
    two = Two(world)
    c = two.c.register("c").ticket  # without a partition, and in no generation
    barrier = two.c.begin_checkpoint(two.a, 0).barrier
    assert barrier is not None
    with pytest.raises(BarrierOver):
        two.c.contribute(c, barrier, {})
    two.c.contribute(two.a, barrier, cuts(at(p0=1), b"A"))
    assert two.c.contribute(two.b, barrier, cuts(at(p1=1), b"B")).newest == barrier.sequence


@pytest.mark.proves("CR-23", "A7")
def test_one_rebalance_is_one_reset_however_many_ask(world: World) -> None:
    two = Two(world)

    def send(epoch: int, generation: int) -> int:
        return two.c.request_reset(two.a, epoch, "moved", forced=True, generation=generation).epoch

    assert send(0, 5) == 1
    assert send(0, 5) == 1  # it did not know
    assert send(0, 6) == 1  # of an epoch that is over
    gone_back(two.c, two.b, 5, P1)
    assert two.c.request_reset(two.b, 1, "moved", forced=True, generation=5).epoch == 1
    gone_back(two.c, two.a, 5, P0)
    assert two.c.begin_checkpoint(two.a, 1).barrier is None  # b has yet to go back within the epoch
    gone_back(two.c, two.b, 5, P1)
    assert two.c.begin_checkpoint(two.a, 1).barrier is not None
    assert send(1, 6) == 2


@pytest.mark.proves("CR-28")
def test_forced_resets_do_not_count_and_failures_in_a_row_stop_the_region(world: World) -> None:
    two = Two(world)
    for generation in range(5, 15):
        two.c.request_reset(two.a, two.c.look().epoch, "moved", forced=True, generation=generation)
    for expected in (None, None, None, None):
        two.c.request_reset(two.a, two.c.look().epoch, "late", forced=False, generation=None)
        assert two.c.look().stopped is expected
    two.c.request_reset(two.a, two.c.look().epoch, "moved", forced=True, generation=99)  # zeroes the count
    for _ in range(5):
        assert two.c.look().stopped is None
        two.c.request_reset(two.a, two.c.look().epoch, "late", forced=False, generation=None)
    assert two.c.look().stopped == "5 resets in a row: late"
    with pytest.raises(RegionStopped):
        two.c.register("c")


def test_a_complete_checkpoint_forgives(world: World) -> None:
    two = Two(world)
    for _ in range(2):
        for _ in range(4):
            epoch = two.c.request_reset(two.a, two.c.look().epoch, "late", forced=False, generation=None).epoch
        two.back()
        two.checkpoint(1, 1)
        assert two.c.look().epoch == epoch
    assert two.c.look().stopped is None


@pytest.mark.proves("CR-53", "CR-54", "I9")
def test_retiring_keeps_the_newest_and_the_retired_are_refused(world: World) -> None:
    two = Two(world)
    two.c.kept_checkpoints = 100
    assert [two.checkpoint(n, n) for n in range(1, 6)] == [1, 2, 3, 4, 5]
    assert two.c.retire(2) == (1, 2)
    assert two.c.checkpoints() == (3, 4, 5)
    for ticket in (two.a, two.b):
        two.c.deregister(ticket)
    assert two.c.retire(99) == (3, 4)
    assert two.c.checkpoints() == (5,)
    with pytest.raises(ResetFailedError, match="retired"):
        two.c.manifest(2)
    with pytest.raises(ResetFailedError, match="not known"):
        two.c.manifest(6)
    with world.store.read() as books:
        assert len(books.names("state", "g")) == 2
    assert states(two.c.go_back(two.a, tasks(P0))) == {0: b"a5"}


@pytest.mark.proves("CR-53")
def test_old_checkpoints_go_by_themselves(world: World) -> None:
    two = Two(world)
    for n in range(1, 8):
        two.checkpoint(n, n)
    assert two.c.checkpoints() == (5, 6, 7)


def checkpoint_of_one(coordinator: RegionCoordinator) -> int:
    """The checkpoint of a member that has read P0 up to 7, and has left."""
    ticket = coordinator.register("a").ticket
    coordinator.put_initial(ticket, {P0: RegionPosition(0)})
    gone_back(coordinator, ticket, 5, P0)
    barrier = coordinator.begin_checkpoint(ticket, coordinator.look().epoch).barrier
    assert barrier is not None
    coordinator.contribute(ticket, barrier, cuts({P0: RegionPosition(7)}, b"seven"))
    coordinator.deregister(ticket)
    return barrier.sequence


@pytest.mark.proves("I16")
def test_effects_that_a_forgotten_topic_had_are_due_under_the_number_of_their_checkpoint(world: World) -> None:
    coordinator = world.coordinator()
    sequence = checkpoint_of_one(coordinator)
    for _ in range(2):  # a copy of a copy, too
        coordinator.forget(["t"])
        ticket = coordinator.register("b").ticket
        coordinator.put_initial(ticket, {P0: RegionPosition(0)})
        back = gone_back(coordinator, ticket, 6, P0)
        coordinator.deregister(ticket)
        assert coordinator.checkpoints()[-1] > sequence
        # The target has noted this number with the effects, and carries them out no second time.
        assert back.starts[task(P0)].sequence == sequence
        assert states(back) == {0: b"seven"}


@pytest.mark.proves("I19")
def test_states_of_a_forgotten_topic_are_there_until_its_partitions_are_read_again(world: World) -> None:
    coordinator = world.coordinator()
    checkpoint_of_one(coordinator)
    coordinator.forget(["t"])
    ticket = coordinator.register("b").ticket
    gone_back(coordinator, ticket, 6)  # the group has no partitions of the new topic yet
    assert coordinator.begin_checkpoint(ticket, coordinator.look().epoch).barrier is None
    coordinator.put_initial(ticket, {P0: RegionPosition(0)})
    assert states(gone_back(coordinator, ticket, 7, P0)) == {0: b"seven"}


@pytest.mark.proves("CR-67", "CR-75", "CR-76", "CR-77")
def test_without_a_checkpoint_all_members_go_back_to_the_beginning_and_later_ones_keep_theirs(world: World) -> None:
    two = Two(world)
    for _ in range(2):
        back = two.c.go_back(two.a, tasks(P0, P1))
        assert states(back) == {0: None, 1: None}
        assert dict(back.positions) == at(p0=0, p1=0)
    two.back()
    two.checkpoint(4, 4)
    two.c.put_initial(two.a, at(p2=9))
    for _ in range(2):
        assert offsets(two.c.go_back(two.a, tasks(P0, P1, P2))) == {P0: 4, P1: 4, P2: 9}


@pytest.mark.proves("CR-62")
def test_a_checkpoint_that_lacks_a_task_is_not_gone_back_to(world: World) -> None:
    two = Two(world)
    two.checkpoint(1, 1)
    two.c.put_initial(two.a, at(p2=7))
    assert states(two.c.go_back(two.a, tasks(P0, P2))) == {0: b"a1", 2: None}  # it was added later
    manifest = two.c.manifest(1)
    with world.store.transaction() as books:
        name = books.names("manifest", "g")[0]
        books.put(Key("manifest", "g", name), encode(replace(manifest, tasks=manifest.tasks[:1])))
    with pytest.raises(ResetFailedError, match="lacks tasks"):
        two.c.go_back(two.a, tasks(P0))


@pytest.mark.proves("I8")
def test_what_another_member_has_started_is_not_contributed(world: World) -> None:
    two = Two(world)
    two.c.take(two.b, 0, 5, 2, tasks(P0))  # it learned late of an assignment that is over
    barrier = two.c.begin_checkpoint(two.a, 0).barrier
    assert barrier is not None
    with pytest.raises(TaskTaken, match="holder=b"):
        two.c.contribute(two.a, barrier, cuts(at(p0=3), b"A"))
    assert two.c.record().contributed == ()
    gone_back(two.c, two.a, 5, P0)
    two.checkpoint(3, 4)


def test_the_start_of_a_task_ends_the_barrier_that_may_have_an_earlier_cut_of_it(world: World) -> None:
    two = Two(world)
    barrier = two.c.begin_checkpoint(two.a, 0).barrier
    assert barrier is not None
    two.c.contribute(two.a, barrier, cuts(at(p0=3), b"A"))
    first = two.c.take(two.b, 0, 5, 2, tasks(P0))
    assert two.c.look().barrier is None
    assert two.c.take(two.a, 0, 5, 1, tasks(P0)).term > first.term


def test_an_unchanged_state_is_not_written_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(world)
    two.checkpoint(1, 1)
    written = []
    kind: Any = type(world.store)
    put = kind.put

    def noted(store: Any, key: Key, value: bytes) -> None:
        written.append(key.kind)
        put(store, key, value)

    monkeypatch.setattr(kind, "put", noted)
    two.checkpoint(1, 2)
    assert written.count("state") == 1
    assert states(two.c.go_back(two.a, tasks(P0, P1))) == {0: b"a1", 1: b"b2"}


def test_members_of_two_versions_of_the_state_are_refused(world: World) -> None:
    two = Two(world)
    with pytest.raises(StateVersionError, match="version=1, wanted=2"):
        two.c.register("c", version=2)
    two.c.deregister(two.a)
    two.c.deregister(two.b)
    assert two.c.register("c", version=2).ticket.member == "c"


def test_members_that_are_gone_are_forgotten_after_a_time(world: World) -> None:
    two = Two(world)
    two.c.deregister(two.a)
    two.c.register("c")
    assert two.c.members() == ("a", "b", "c")  # its process may be in the group for some time
    world.now += 700.0
    two.c.register("d")
    assert two.c.members() == ("d",)


def test_a_region_keeps_its_tasks(world: World) -> None:
    two = Two(world)
    two.checkpoint(1, 1)
    with pytest.raises(ConfigurationError, match="another task"):
        two.c.go_back(two.a, {TaskId("t", 0): [P0]})


@pytest.mark.proves("CR-72", "B-45")
@pytest.mark.parametrize("what", ["manifest", "state"])
@pytest.mark.parametrize("damage", ["torn", "gone"])
def test_damage_is_a_reset_that_fails_and_never_the_initial_state(world: World, what: str, damage: str) -> None:
    two = Two(world)
    two.checkpoint(1, 1)
    with world.store.transaction() as books:
        for name in books.names(what, "g"):
            data = books.get(Key(what, "g", name))
            assert data is not None
            if damage == "torn":
                books.put(Key(what, "g", name), data[:-1])
            else:
                books.delete(Key(what, "g", name))
    with pytest.raises(ResetFailedError):
        two.c.go_back(two.a, tasks(P0))
    with pytest.raises(CorruptManifest if damage == "torn" else ResetFailedError):
        two.c.state(StateReference.of(b"a1")) if what == "state" else two.c.manifest(1)


@pytest.mark.proves("CR-37", "I14")
def test_a_checkpoint_is_as_old_as_its_end_so_that_a_short_period_leaves_time_for_records(world: World) -> None:
    two = Two(world)
    barrier = two.c.begin_checkpoint(two.a, 0).barrier
    assert barrier is not None
    world.now += 3.0
    assert two.c.contribute(two.a, barrier, cuts(at(p0=1), b"a")).age_s == 3.0
    assert two.c.contribute(two.b, barrier, cuts(at(p1=1), b"b")).age_s == 0.0
    world.now += 2.0
    assert two.c.look().age_s == 2.0


def test_a_clock_that_begins_again_with_the_host_makes_nothing_older(world: World) -> None:
    two = Two(world)
    world.now = 3.0
    assert two.c.look().age_s == 0.0


@pytest.mark.proves("B-32", "I14")
def test_after_the_host_was_started_again_periods_pass_again(world: World) -> None:
    two = Two(world)
    two.checkpoint(1, 1)
    world.now = 3.0
    again = world.coordinator()
    ticket = again.register("a").ticket
    gone_back(again, ticket, 5, P0)
    world.now += 5.0
    assert again.look(ticket).age_s == 5.0


@pytest.mark.proves("B-32", "I14")
def test_members_stay_here_when_the_clock_of_their_store_is_set_back(world: World) -> None:
    two = Two(world)
    first = two.c.begin_checkpoint(two.a, 0).barrier
    world.now -= 600.0
    for ticket in (two.a, two.b):
        two.c.look(ticket)
    barrier = two.c.begin_checkpoint(two.a, 0).barrier
    assert barrier is not None
    assert barrier != first  # the deadline of that one is far away now
    assert barrier.members == ("a", "b")


def test_the_record_comes_back_from_its_bytes(world: World) -> None:
    two = Two(world)
    barrier = two.c.begin_checkpoint(two.a, 0).barrier
    assert barrier is not None
    two.c.contribute(two.a, barrier, cuts(at(p0=10), b"A"))
    record = two.c.record()
    assert record.tasks
    assert decode_record(encode_record(record)) == record
    for damaged in (b"", b"[]", encode_record(record)[:-1]):
        with pytest.raises(CorruptManifest):
            decode_record(damaged)


def test_a_record_with_a_state_for_each_member_is_refused_with_what_to_do() -> None:
    with pytest.raises(AlienManifest, match="another group"):
        decode_record(b'{"members": {}}')


# --- what only a file can suffer


@pytest.mark.proves("B-45")
def test_a_file_survives_its_processes_and_locks_end_in_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "region.db"
    store = SqliteStore(path, timeout_s=0.05)
    coordinator = RegionCoordinator(store, "r", "g", lambda: 0.0)
    ticket = coordinator.register("a").ticket
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(CoordinatorUnavailable, match="locked"):
        coordinator.report(ticket, 5, 1)
    assert coordinator.look().epoch == 0  # readers go on
    other.execute("ROLLBACK")
    other.close()
    coordinator.report(ticket, 5, 1)
    store.close()
    again = RegionCoordinator(SqliteStore(path), "r", "g", lambda: 0.0)
    assert again.record().members["a"].generation == 5
    again.store.close()


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("name", ["region.db", "region.db-wal"])
def test_a_file_that_is_unlinked_or_replaced_while_it_is_open_is_noticed(
    tmp_path: Path, name: str, replaced: bool
) -> None:
    store = SqliteStore(tmp_path / "region.db")
    coordinator = RegionCoordinator(store, "r", "g", lambda: 0.0)
    ticket = coordinator.register("a").ticket
    path = tmp_path / name
    if replaced:
        shutil.copy(path, tmp_path / "copy.db")
        os.replace(tmp_path / "copy.db", path)
    else:
        path.unlink()
    for _ in range(2):
        with pytest.raises(StoreLost, match="unlinked or replaced"):
            coordinator.look(ticket)
        with pytest.raises(StoreLost, match="unlinked or replaced"):
            coordinator.report(ticket, 1, 1)
    store.close()


def test_a_second_store_of_a_process_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    """Another process that closed the file took itself for the last, and unlinked the log with the next commits."""
    first, second = (SqliteStore(tmp_path / "region.db") for _ in range(2))
    coordinator = RegionCoordinator(first, "r", "g", lambda: 0.0)
    coordinator.register("a")
    RegionCoordinator(second, "r", "g", lambda: 0.0).register("b")
    program = (
        "import sys\n"
        "from kohort.consistent_region.coordinator import RegionCoordinator\n"
        "from kohort.consistent_region.store import SqliteStore\n"
        "store = SqliteStore(sys.argv[1])\n"
        "print(*RegionCoordinator(store, 'r', 'g').members())\n"
        "store.close()\n"
    )
    look = [sys.executable, "-c", program, str(tmp_path / "region.db")]
    assert subprocess.run(look, check=True, capture_output=True, text=True).stdout == "a b\n"
    coordinator.register("c")
    assert subprocess.run(look, check=True, capture_output=True, text=True).stdout == "a b c\n"
    first.close()
    second.close()


def begun_in_child(work: Callable[[], object]) -> int:
    """Fork a child that calls `work`. SIGALRM ends it if it hangs."""
    if pid := os.fork():
        return pid
    signal.alarm(60)
    try:
        work()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
def test_a_forked_child_keeps_its_file_when_its_parent_closes_it(tmp_path: Path) -> None:
    """SQLite took the parent's locks for those of the child. The parent therefore unlinked the child's log."""
    store = SqliteStore(tmp_path / "region.db")
    coordinator = RegionCoordinator(store, "r", "g", lambda: 0.0)
    coordinator.register("parent")
    child_opened, parent_closed = os.pipe(), os.pipe()

    def work() -> None:
        coordinator.register("child")
        os.write(child_opened[1], b"1")
        os.read(parent_closed[0], 1)
        coordinator.register("child again")
        assert coordinator.members() == ("child", "child again", "parent")

    pid = begun_in_child(work)
    os.read(child_opened[0], 1)
    assert coordinator.members() == ("child", "parent")
    store.close()
    os.write(parent_closed[1], b"1")
    assert os.waitpid(pid, 0)[1] == 0
    assert coordinator.members() == ("child", "child again", "parent")
    store.close()
    for end in (*child_opened, *parent_closed):
        os.close(end)


@pytest.mark.skipif(sys.platform == "win32", reason="fork")
def test_a_child_that_is_forked_beside_a_transaction_finds_its_store_free(tmp_path: Path) -> None:
    """The child has no thread that would release the lock."""
    store = SqliteStore(tmp_path / "region.db")
    coordinator = RegionCoordinator(store, "r", "g", lambda: 0.0)
    inside = threading.Event()

    def transaction() -> None:
        with store.transaction():
            inside.set()
            time.sleep(0.2)  # the fork comes meanwhile, and waits

    beside = threading.Thread(target=transaction)
    beside.start()
    inside.wait(60)
    pid = begun_in_child(lambda: coordinator.register("child"))
    assert os.waitpid(pid, 0)[1] == 0
    beside.join()
    assert coordinator.members() == ("child",)
    store.close()


def test_a_file_that_another_is_just_making_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "region.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE other (column_)")
    other.execute("BEGIN IMMEDIATE")  # what SQLite refuses a change to WAL beside, at once
    other.execute("INSERT INTO other VALUES (1)")
    with pytest.raises(CoordinatorUnavailable, match="locked"), SqliteStore(path, timeout_s=0.05).read():
        pass
    soon = threading.Timer(0.2, lambda: other.execute("COMMIT"))
    soon.start()
    store = SqliteStore(path)
    with store.read() as books:
        assert books.groups() == []
    soon.join()
    other.close()
    store.close()


@pytest.mark.proves("B-45")
def test_a_process_killed_inside_a_transaction_leaves_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "region.db"
    coordinator = RegionCoordinator(SqliteStore(path), "r", "g", lambda: 0.0)
    coordinator.register("a")
    program = (
        "import os, sys\n"
        "from kohort.consistent_region.store import Key, SqliteStore\n"
        "with SqliteStore(sys.argv[1]).transaction() as books:\n"
        "    books.put(Key('region', 'g'), b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert ended.returncode == -9
    assert coordinator.members() == ("a",)
    coordinator.register("b")
    assert coordinator.members() == ("a", "b")
    coordinator.store.close()


@pytest.mark.proves("B-45")
def test_a_full_disk_is_a_typed_error_and_the_last_checkpoint_stays(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "region.db")
    world = World(store, lambda: store)
    two = Two(world)
    two.checkpoint(1, 1)
    with store.read():
        pages = store._open().execute("PRAGMA page_count").fetchone()[0]
    store._open().execute(f"PRAGMA max_page_count={pages}")
    barrier = two.c.begin_checkpoint(two.a, 0).barrier
    assert barrier is not None
    with pytest.raises(CoordinatorUnavailable, match="full"):
        two.c.contribute(two.a, barrier, cuts(at(p0=2), os.urandom(200_000)))
    assert two.c.checkpoints() == (1,)
    assert states(two.c.go_back(two.a, tasks(P0))) == {0: b"a1"}
    store.close()


def test_a_value_that_sqlite_cannot_hold_is_no_failure_of_the_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "region.db")
    with store.transaction() as books:
        books.put(Key("state", "g", "small"), b"x")
    assert store._connection is not None
    store._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000)
    with pytest.raises(RegionError, match=r"no value of 2000 bytes.*take checkpoints more often") as raised:  # noqa: SIM117
        with store.transaction() as books:
            books.put(Key("state", "g", "large"), bytes(2_000))
    assert not isinstance(raised.value, CoordinatorUnavailable)
    with store.read() as books:
        assert books.names("state", "g") == ["small"]
    store.close()


@pytest.mark.proves("B-45")
def test_a_disk_that_takes_no_writes_is_a_typed_error_and_is_read_on(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "region.db")
    two = Two(World(store, lambda: store))
    two.checkpoint(1, 1)
    store._open().execute("PRAGMA query_only=ON")
    with pytest.raises(CoordinatorUnavailable, match="readonly"):
        two.c.report(two.a, 6, 1)
    assert two.c.checkpoints() == (1,)
    assert two.c.look().newest == 1
    store._open().execute("PRAGMA query_only=OFF")
    assert two.checkpoint(2, 2) == 2
    store.close()


@pytest.mark.proves("B-45")
def test_a_file_that_is_no_database_is_a_typed_error(tmp_path: Path) -> None:
    path = tmp_path / "region.db"
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(CoordinatorUnavailable, match="not a database"):
        RegionCoordinator(SqliteStore(path), "r", "g").register("a")


def test_a_file_whose_error_is_no_text_is_a_typed_error(tmp_path: Path) -> None:
    """SQLite quotes the damaged name of a table, which Python cannot decode."""
    path = tmp_path / "region.db"
    store = SqliteStore(path)
    RegionCoordinator(store, "r", "g", lambda: 0.0).register("a")
    store.close()
    path.write_bytes(path.read_bytes().replace(b"kohort_region", b"\xc1ohort_region").replace(b"CREATE", b"CREATX"))
    for create in (True, False):
        damaged = SqliteStore(path, create=create)
        with pytest.raises(CoordinatorUnavailable, match="the coordinator's store failed"), damaged.read():
            pass
        damaged.close()


def test_coordinators_by_url(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / "x.db"
    assert isinstance(open_store("memory:"), MemoryStore)
    for wrong in ("sqlite:x.db", "sqlite:///", "postgres://x", ""):
        with pytest.raises(ConfigurationError):
            open_store(wrong)


def test_the_manifests_of_checkpoints_behind_a_rewind_are_deleted(world: World) -> None:
    two = Two(world)
    first, second = two.checkpoint(1, 1), two.checkpoint(2, 2)
    assert two.c.rewind(first) == (second,)
    with world.store.read() as books:
        assert [int(name) for name in books.names("manifest", "g")] == [first]
