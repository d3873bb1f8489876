"""A region on a real broker: processes that are killed and stopped, and totals that are exact all the same."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest

from kohort import Consumer, TopicPartition
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.errors import NotRegisteredError
from kohort.consistent_region.store import SqliteStore
from tests.support.broker_selection import SelectedBroker

PARTITIONS, KEYS = 6, 10
ROOT = Path(__file__).parents[2]


class Crew:
    """The members' processes, and the region as its coordinator has it."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.bootstrap, self.topic, self.folder = bootstrap, topic, folder
        self.path = folder / "region.db"
        self.region = RegionCoordinator(SqliteStore(self.path), "totals", f"totals-{topic}")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.sent: Counter[str] = Counter()

    def start(self, member: str) -> None:
        command = [sys.executable, "-m", "tests.consistent_region.region_process"]
        command += [self.bootstrap, self.topic, f"sqlite:///{self.path}"]
        with (self.folder / f"{member}.log").open("ab") as output:
            self.processes[member] = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)

    def signal(self, member: str, number: int) -> None:
        os.kill(self.processes[member].pid, number)

    def produce(self, count: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})
        for number in range(count):
            key = f"k{number % KEYS}"
            producer.produce(self.topic, key=key, value=b"x", partition=number % PARTITIONS)
            self.sent[key] += 1
            producer.poll(0)
        assert producer.flush(120) == 0

    def newest(self) -> int:
        try:
            return self.region.look().newest or 0
        except NotRegisteredError:
            return 0

    def totals(self) -> tuple[dict[TopicPartition, int], Counter[str]]:
        """Offsets and totals of the newest checkpoint."""
        newest = self.newest()
        if not newest:
            return {}, Counter()
        manifest = self.region.manifest(newest)
        totals: Counter[str] = Counter()
        for cut in manifest.tasks:
            totals.update(json.loads(self.region.state(cut.state)))
        return {one: to.offset for one, to in manifest.offsets.items()}, totals

    def wait(self, reached: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not reached():
            ended = {name: one.poll() for name, one in self.processes.items() if one.poll() not in (None, -9)}
            assert not ended, f"{ended}: {self.logs()}"
            assert time.monotonic() < deadline, f"{what}: {self.logs()}"
            time.sleep(0.1)

    def logs(self) -> str:
        return "\n".join(f"{one.name}\n{one.read_text()[-3000:]}" for one in sorted(self.folder.glob("*.log")))


@contextmanager
def crew(bootstrap: str, topic: str, folder: Path) -> Iterator[Crew]:
    made = Crew(bootstrap, topic, folder)
    try:
        yield made
    finally:
        for process in made.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        made.region.store.close()


@pytest.mark.broker
@pytest.mark.proves("I1", "I2", "CR-85", "CR-01", "CR-27", "B-33")
def test_three_processes_killed_and_stopped_count_every_record_once(
    broker: SelectedBroker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic(PARTITIONS)
    with crew(broker.bootstrap, topic, tmp_path) as region, Consumer(broker.bootstrap) as reader:
        region.produce(20_000)
        for member in ("one", "two", "three"):
            region.start(member)
        region.wait(lambda: region.newest() >= 2 and len(region.region.members()) == 3, "no checkpoints")
        region.produce(20_000)
        region.signal("two", signal.SIGKILL)
        region.processes.pop("two").wait()
        region.produce(20_000)
        before = region.newest()
        region.start("two")
        region.wait(lambda: region.newest() > before, "no checkpoint after the restart")
        region.signal("three", signal.SIGSTOP)
        region.produce(20_000)
        time.sleep(8.0)  # longer than its session: others take over, and it wakes up a zombie
        region.signal("three", signal.SIGCONT)
        region.produce(20_000)
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        ends = reader.end_offsets(partitions)
        region.wait(lambda: region.totals()[0] == ends, "not all of it is in a checkpoint")
        assert region.totals()[1] == region.sent
        assert sum(region.sent.values()) == 100_000
        assert len(region.region.members()) == 4  # each process has a name of its own
        committed = reader_committed(broker.bootstrap, f"totals-{topic}", partitions)
        assert all(committed[one] <= ends[one] for one in partitions)
        for name in ("one", "two", "three"):
            region.signal(name, signal.SIGTERM)
        assert [region.processes[name].wait(120) for name in ("one", "two", "three")] == [0, 0, 0]


def reader_committed(bootstrap: str, group: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    with Consumer(bootstrap, group=group) as reader:
        found = reader.committed(partitions)
    return {one: to.offset if to is not None else 0 for one, to in found.items()}
