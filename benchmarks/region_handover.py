"""The move of one partition of 64 between two of a region's 8 members: with a reset of the region, and by hand-over.

The time is from the first hook until the new owner is ready to read, without broker time (members as in
`region_reset`). With a reset, every member releases everything, restores its 10,000 keys, and reads the records since
the last checkpoint again. With a hand-over, 63 partitions are read throughout, and no record is read again.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

from benchmarks.region_reset import KEYS, MEMBERS, PARTITIONS, InstantConsumer, Worker, _until
from benchmarks.report import OURS, Report
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region import Manual
from kohort.consistent_region.settings import RegionSettings
from kohort.consistent_region.states import RegionState
from kohort.coordinator_client.hooks import Assigned, RebalanceCause, RebalanceReason, Revoked
from kohort.testing import RealPostgres
from kohort.testing.simulation.kafka import SimColumns

MOVES = 100
CAUSE = RebalanceCause(RebalanceReason.REBALANCE_IN_PROGRESS)
MOVING = TopicPartition("t", 0)


class HookedConsumer(InstantConsumer):
    """Runs hooks inside poll, as a consumer does."""

    def __init__(self, partitions: Any) -> None:
        super().__init__(partitions)
        self.due: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def poll(self, timeout_s: float) -> list[SimColumns]:
        while not self.due.empty():
            self.due.get()()
        return super().poll(timeout_s)


class Mover(Worker):
    """A member whose group moves partitions."""

    def __init__(self, number: int, url: str, *, hand_over: bool) -> None:
        super().__init__(number, url, RegionSettings(trigger=Manual(), hand_over=hand_over))
        self.consumer: HookedConsumer = HookedConsumer(self.consumer.assignment)
        self.conductor.consumer = self.consumer

    def lets_go(self, generation: int) -> threading.Event:
        """Have everything revoked, as before an EAGER join; the event is set when it is."""
        done = threading.Event()

        def hooks() -> None:
            before = self.consumer.assignment
            self.conductor.on_revoked(Revoked(before, before, generation, CAUSE))
            self.consumer.assignment = frozenset()
            done.set()

        self.consumer.due.put(hooks)
        self.consumer.wake.set()
        return done

    def gets(self, mine: frozenset[TopicPartition], generation: int) -> threading.Event:
        """Have the hooks run for an assignment; the event is set when they have."""
        done = threading.Event()

        def hooks() -> None:
            consumer = self.consumer
            before = consumer.assignment
            if gone := before - mine:
                self.conductor.on_revoked(Revoked(gone, before, generation - 1, CAUSE))
            consumer.assignment = before - gone
            new = mine - consumer.assignment
            places = self.conductor.on_assigned(Assigned(new, mine, generation, CAUSE)) or {}
            starts = {one: at if isinstance(at, int) else at.offset for one, at in places.items()}
            kept = {one: at for one, at in consumer.positions.items() if one in consumer.assignment}
            consumer.positions = {one: starts.get(one, 0) for one in new} | kept
            consumer.assignment = mine
            done.set()

        self.consumer.due.put(hooks)
        self.consumer.wake.set()
        return done


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for how in ("reset", "hand-over"):
            _measured(report, how, "SQLite", f"sqlite:///{folder}/{how}.db")
    with RealPostgres(durable=True) as server:
        for how in ("reset", "hand-over"):
            _measured(report, how, "PostgreSQL", server.fresh())


def _measured(report: Report, how: str, name: str, url: str) -> None:
    with ExitStack() as ending:
        workers = [Mover(number, url, hand_over=how == "hand-over") for number in range(MEMBERS)]
        for one in workers:
            one.start()
            ending.callback(one.stop)
        move = _hand_over if how == "hand-over" else _reset
        took_ms = sorted(move(workers, number) for number in range(1, MOVES + 1))
    work = f"one of {PARTITIONS} partitions moves, {MEMBERS} members, by {how}, {name}"
    note = f"{MOVES} moves, {KEYS} keys a member"
    report.add(f"{work}: median", OURS, statistics.median(took_ms), "ms", note)
    report.add(f"{work}: 99th percentile", OURS, took_ms[round(0.99 * (len(took_ms) - 1))], "ms", note)


def _read(workers: list[Mover]) -> None:
    """So that there is something to undo."""
    for one in workers:
        one.consumer.wanted.set()
        one.consumer.wake.set()
    _until(lambda: all(one.member.state is RegionState.RECORDS_FETCHED and not one.member.queued for one in workers))


def _plan(workers: list[Mover], number: int) -> tuple[list[frozenset[TopicPartition]], Mover]:
    """The assignments after the `number`-th move, and the new owner of the moved partition."""
    owner = number % 2
    plan = [frozenset(one.consumer.assignment - {MOVING}) for one in workers]
    plan[owner] |= {MOVING}
    return plan, workers[owner]


def _get(workers: list[Mover], plan: list[frozenset[TopicPartition]], generation: int) -> list[threading.Event]:
    return [one.gets(mine, generation) for one, mine in zip(workers, plan, strict=True)]


def _wait(events: list[threading.Event]) -> None:
    """A group waits for all of its members before it goes on."""
    _until(lambda: all(one.is_set() for one in events))


def _hand_over(workers: list[Mover], number: int) -> float:
    _read(workers)
    plan, owner = _plan(workers, number)
    generation = 2 * number
    began = time.perf_counter()
    _wait(_get(workers, [mine - {MOVING} for mine in plan], generation))
    taking = _get(workers, plan, generation + 1)
    _until(lambda: MOVING in owner.member.offsets)
    took_ms = (time.perf_counter() - began) * 1000
    _wait(taking)
    if owner.member.epoch:
        raise RuntimeError("the region went back")
    return took_ms


def _reset(workers: list[Mover], number: int) -> float:
    _read(workers)
    plan, owner = _plan(workers, number)
    began = time.perf_counter()
    _wait([one.lets_go(number) for one in workers])
    _get(workers, plan, number + 1)
    _until(lambda: number in owner.back_at and MOVING in owner.member.offsets)
    took_ms = (time.perf_counter() - began) * 1000
    _until(lambda: all(number in one.back_at for one in workers))
    return took_ms
