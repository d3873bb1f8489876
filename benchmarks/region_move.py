"""A task with 100 MB of state moves to a second member by hand-over, while both members read other tasks.

Two processes on one broker, with 2 tasks each after the move, 200 records/s a partition, and a checkpoint every 2 s.
The gap of a task is the longest time between two of its records in a row, from the start of the second member on. Gaps
of other tasks are those within one owner, and that of the large task includes its move. In the runs without the move,
the large task stays and two small ones move. Runs alternate.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from benchmarks.consume import running_broker
from benchmarks.report import OURS, Report
from kohort import Producer
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import NotRegisteredError
from kohort.consistent_region.open_store import open_store
from kohort.testing.topics import create_topic

PARTITIONS, RATE, RUNS = 4, 200, 5
KEYS = 1_000_000  # of 100 bytes each
SETTLED_S = 40.0
WITHIN_S = 180.0
HERE = Path(__file__).parent


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks region_move")
    made.add_argument("--runs", type=int, default=RUNS)
    made.add_argument("--keys", type=int, default=KEYS)
    return made


def run(report: Report) -> None:
    given = report.options
    gaps: dict[str, list[tuple[float, float]]] = {"with the move": [], "without the move": []}
    with running_broker() as bootstrap:
        moves = moving(bootstrap)
        for _ in range(given.runs):
            for name, big in (("with the move", min(moves)), ("without the move", min(set(range(PARTITIONS)) - moves))):
                gaps[name].append(measured(bootstrap, big, given.keys))
                others_ms, own_ms = gaps[name][-1]
                print(f"{name}: other tasks {others_ms:.0f} ms, the large task {own_ms:.0f} ms", flush=True)
    for name, found in gaps.items():
        others, own = (statistics.median(one) for one in zip(*found, strict=True))
        report.add(f"longest gap of other tasks, {name} of a task of 100 MB", OURS, others, "ms")
        report.add(f"longest gap of the large task, {name}", OURS, own, "ms")


def moving(bootstrap: str) -> set[int]:
    """The partitions that move to a second member."""
    with Life(bootstrap, PARTITIONS, 0) as life:
        life.begin()
        life.wait_for(PARTITIONS, "a")
        life.member("b")
        life.wait_for(PARTITIONS // 2, "b")
    return {partition for partition, times in life.times("b").items() if times}


def measured(bootstrap: str, big: int, keys: int) -> tuple[float, float]:
    """The longest gaps (ms): of the other tasks, and of the large one."""
    with Life(bootstrap, big, keys) as life:
        life.begin()
        life.wait_for(PARTITIONS, "a")
        life.wait_for_checkpoint()
        joined_at = time.monotonic()
        life.member("b")
        life.wait_for(PARTITIONS // 2, "b")
        time.sleep(SETTLED_S)
    owners = {name: life.times(name) for name in "ab"}
    others = [
        longest_ms(late(times, joined_at))
        for found in owners.values()
        for partition, times in found.items()
        if partition != big
    ]
    own = sorted(one for found in owners.values() for one in found.get(big, ()))
    return max(others), longest_ms(late(own, joined_at))


def late(times: list[float], since: float) -> list[float]:
    return [one for one in times if one >= since]


def longest_ms(times: list[float]) -> float:
    return max((after - before for before, after in pairwise(times)), default=0.0) * 1000


class Life:
    """One region on a topic of its own, to which records are written all the while."""

    def __init__(self, bootstrap: str, big: int, keys: int) -> None:
        self._bootstrap, self._big, self._keys = bootstrap, big, keys
        self._folder = tempfile.TemporaryDirectory()
        self._name = f"move-{uuid.uuid4().hex[:8]}"
        self._url = f"sqlite:///{self._folder.name}/region.db"
        self._members: dict[str, subprocess.Popen[bytes]] = {}
        self._times: dict[str, dict[int, list[float]]] = {}
        self._over = threading.Event()
        self._writer = threading.Thread(target=self._write)

    def __enter__(self) -> "Life":
        create_topic(self._bootstrap, self._name, partitions=PARTITIONS)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._members.values():
            process.send_signal(signal.SIGTERM)
        codes = {name: process.wait(120) for name, process in self._members.items()}
        self._over.set()
        if self._writer.ident is not None:
            self._writer.join()
        for name, code in codes.items():
            assert code == 0, f"{name} ended with {code}"
            found = json.loads(self._output(name).read_text())
            self._times[name] = {int(partition): times for partition, times in found.items()}
        self._folder.cleanup()

    def begin(self) -> None:
        self._writer.start()
        self.member("a")

    def member(self, name: str) -> None:
        command = [sys.executable, str(HERE / "region_move_process.py"), self._bootstrap, self._name, self._name]
        command += [self._url, str(self._big), str(self._keys), str(self._output(name))]
        self._members[name] = subprocess.Popen(command, stdout=subprocess.PIPE)
        output = self._members[name].stdout
        assert output is not None
        assert output.readline() == b"running\n"

    def times(self, name: str) -> dict[int, list[float]]:
        return self._times.get(name, {})

    def wait_for(self, partitions: int, name: str) -> None:
        """Wait until the member owns so many partitions, and a checkpoint is complete since."""
        coordinator = RegionCoordinator(open_store(self._url), "move", self._name)
        place = sorted(self._members).index(name)

        def owned() -> list[int]:
            try:
                members = coordinator.record().members.values()
            except NotRegisteredError:
                return []
            return [one.owned for one in sorted(members, key=lambda one: one.incarnation)]

        try:
            _until(lambda: len(owned()) > place and owned()[place] == partitions)
            before = coordinator.checkpoints()[-1:]
            _until(lambda: coordinator.checkpoints()[-1:] != before)
        finally:
            coordinator.store.close()

    def wait_for_checkpoint(self) -> None:
        """Wait until a checkpoint has the large state."""
        coordinator = RegionCoordinator(open_store(self._url), "move", self._name)

        def large() -> bool:
            sizes = [cut.size_bytes for found in coordinator.manifests()[-1:] for cut in found.tasks]
            return max(sizes, default=0) > self._keys * 50

        try:
            _until(large)
        finally:
            coordinator.store.close()

    def _output(self, name: str) -> Path:
        return Path(self._folder.name) / f"{name}.json"

    def _write(self) -> None:
        with Producer(self._bootstrap, linger_ms=0) as producer:
            while not self._over.wait(1 / RATE):
                for partition in range(PARTITIONS):
                    producer.send(self._name, b"x", partition=partition)


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not reached():
        assert time.monotonic() < deadline, "the region does not come so far"
        time.sleep(0.05)
