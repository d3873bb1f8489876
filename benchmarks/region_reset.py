"""Reset of a region of 8 members and 64 partitions, from the request until all members are back, without broker time.

The members are threads that work as `ConsistentRegion.run`, on a consumer that responds at once. So the time is the
region's own. It has the detection, the store's transactions, the read of the checkpoint, the restore of 10,000 keys a
member, and the seek. Before every reset records were read, and a checkpoint was complete.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple
from uuid import UUID

from benchmarks.report import OURS, Report
from kohort.common.topic_partition import TopicPartition
from kohort.consistent_region import DictState, Manual
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.open_store import open_store
from kohort.consistent_region.region import TURN_WAIT_S
from kohort.consistent_region.region_driver import RegionDriver
from kohort.consistent_region.region_member import RegionMember
from kohort.consistent_region.settings import RegionSettings
from kohort.consistent_region.states import RegionState
from kohort.consistent_region.task_states import TaskStates
from kohort.coordinator_client.hooks import Assigned, RebalanceCause, RebalanceReason
from kohort.testing import RealPostgres
from kohort.testing.simulation import SimRecord
from kohort.testing.simulation.kafka import SimColumns

MEMBERS, PARTITIONS, KEYS, RESETS = 8, 64, 10_000, 150
PATIENCE_S = 30.0
SETTINGS = RegionSettings(trigger=Manual())


class Where(NamedTuple):
    offset: int
    leader_epoch: int


class InstantConsumer:
    """A consumer whose brokers take no time: a record a partition and poll, for as long as `wanted` says."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.assignment = frozenset(partitions)
        self.positions = dict.fromkeys(self.assignment, 0)
        self.wanted = threading.Event()
        self.wake = threading.Event()

    def poll(self, timeout_s: float) -> list[SimColumns]:
        if not self.wanted.is_set():
            self.wake.wait(timeout_s)
            self.wake.clear()
            return []
        self.wanted.clear()
        slices = [SimColumns(one, [SimRecord(*one, at)], at + 1) for one, at in self.positions.items()]
        self.positions = {one: offset + 1 for one, offset in self.positions.items()}
        return slices

    def seek(self, partition: TopicPartition, offset: int, *, leader_epoch: int = -1) -> None:
        self.positions[partition] = offset

    def pause(self) -> None:
        """Do nothing. There are no notifications."""

    def resume(self) -> None:
        """As `pause`."""

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """As `pause`: states are small, so no task arrives in parts."""

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """As `pause`."""

    def commit_async(self, offsets: Any, on_done: Any, *, allow_rewind: bool = False) -> None:
        on_done(offsets, None)

    def topic_id(self, topic: str) -> UUID:
        return UUID(int=1)

    def position_of(self, partition: TopicPartition, timeout_s: float | None = None) -> Where:
        return Where(self.positions[partition], 0)

    def group_members(self, timeout_s: float) -> list[Any]:
        return []

    def committed(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> Mapping[TopicPartition, Any]:
        return dict.fromkeys(partitions)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Iterable[TopicPartition], *, stable: bool = True) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 1 << 40)

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Any]:
        return dict.fromkeys(times_ms)

    def partitions_for(self, topic: str, *, fresh: bool = False) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for number in range(PARTITIONS)]


class Filled(DictState):
    """A task's state, which has `keys` from the beginning."""

    def __init__(self, keys: dict[str, int]) -> None:
        super().__init__(keys)
        self._keys = keys

    def reset_initial(self) -> None:
        super().reset_initial()
        self.update(self._keys)


class Worker:
    """One member on a thread of its own."""

    def __init__(self, number: int, url: str, settings: RegionSettings = SETTINGS) -> None:
        mine = [TopicPartition("t", one) for one in range(number, PARTITIONS, MEMBERS)]
        self.consumer = InstantConsumer(mine)
        keys = {f"{number}-{key}": key for key in range(KEYS // len(mine))}
        self.states = TaskStates(lambda _task: Filled(keys))
        self.member = RegionMember(f"m{number}", settings)
        self.store = open_store(url)
        self.coordinator = RegionCoordinator(self.store, "bench", "bench")
        self.conductor = RegionDriver(
            self.member, self.coordinator, self.consumer, self.states, self._handle, time.monotonic
        )
        self.ending = threading.Event()
        self.back_at: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self.conductor.register()
        self.conductor.subscribed()
        mine = self.consumer.assignment
        self.conductor.on_assigned(Assigned(mine, mine, 1, RebalanceCause(RebalanceReason.REBALANCE_IN_PROGRESS)))
        self._thread.start()

    def stop(self) -> None:
        self.ending.set()
        self._thread.join(PATIENCE_S)
        self.store.close()

    def _run(self) -> None:
        while not self.ending.is_set():
            idle_s = self.conductor.turn(TURN_WAIT_S)
            if self.member.state is RegionState.RESET_COMPLETE:
                self.back_at.setdefault(self.member.epoch, time.perf_counter())
            if idle_s > 0:
                self.ending.wait(idle_s)

    def _handle(self, record: SimRecord, state: DictState) -> None:
        state["seen"] = state.get("seen", 0) + 1


def run(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _measured(report, "SQLite", f"sqlite:///{folder}/region.db")
    with RealPostgres(durable=True) as server:
        _measured(report, "PostgreSQL", server.fresh())


def _measured(report: Report, name: str, url: str) -> None:
    with ExitStack() as ending:
        workers = [Worker(number, url) for number in range(MEMBERS)]
        for one in workers:
            one.start()
            ending.callback(one.stop)
        took_ms = sorted(_reset(workers, number) for number in range(1, RESETS + 1))
    work = f"reset of {MEMBERS} members, {PARTITIONS} partitions, {name}"
    note = f"{RESETS} resets, {KEYS} keys a member"
    report.add(f"{work}: median", OURS, statistics.median(took_ms), "ms", note)
    report.add(f"{work}: 99th percentile", OURS, took_ms[round(0.99 * (len(took_ms) - 1))], "ms", note)


def _reset(workers: list[Worker], epoch: int) -> float:
    """From a member's request until all are back, in milliseconds."""
    first = workers[0]
    for one in workers:
        one.consumer.wanted.set()
        one.consumer.wake.set()
    _until(lambda: all(one.member.state is RegionState.RECORDS_FETCHED and not one.member.queued for one in workers))
    base = first.member.base
    first.member.make_consistent(time.monotonic())
    _until(lambda: all(one.member.base != base for one in workers))
    for one in workers:
        one.consumer.wanted.set()  # so that there is something to undo
        one.consumer.wake.set()
    _until(lambda: all(not one.consumer.wanted.is_set() for one in workers))
    ticket = first.conductor.ticket
    assert ticket is not None
    began = time.perf_counter()
    first.coordinator.request_reset(ticket, epoch - 1, "measured", forced=True, generation=None)
    _until(lambda: all(epoch in one.back_at for one in workers))
    return (max(one.back_at[epoch] for one in workers) - began) * 1000


def _until(reached: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError("the region does not get on")
        time.sleep(0.002)
