"""Two Spark applications and a plain consumer share one group through joins and a kill (`make test-spark-group`).

Longer than the rest, and so not among the tests that every change must pass: `test_group_stream.py` plays the same in
one process. What an application has read under which generation is in its checkpoint, what has arrived in its Parquet.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kohort import Consumer
from tests.spark.sent import varied
from tests.support.broker_selection import SelectedBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(2000)]
PARTITIONS = 6
Seen = tuple[int, int, int]
"""(generation, partition, offset)."""


class SparkApp:
    """A process of its own, and what it has left on disk."""

    def __init__(self, bootstrap: str, topic: str, group: str, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        command = [sys.executable, str(Path(__file__).with_name("group_app.py")), bootstrap, topic, group, str(folder)]
        with (folder / "log").open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """All of it at once: driver, JVM, workers, and the process that is the member."""
        for pid in [self.process.pid, *_descendants(self.process.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()

    def planned(self) -> list[Seen]:
        """Every record of every micro-batch that Spark has logged, whether or not it was finished."""
        found = []
        for path in (self.folder / "checkpoint" / "offsets").glob("[0-9]*"):
            batch = json.loads(path.read_text().splitlines()[-1])
            for numbers in batch["ranges"].values():
                for number, (start, stop) in numbers.items():
                    found += [(batch["generation"], int(number), offset) for offset in range(start, stop)]
        return found

    def arrived(self) -> list[tuple[int, int]]:
        """(partition, offset) of every row that the sink has taken over."""
        files: set[str] = set()
        for path in (self.folder / "rows" / "_spark_metadata").glob("[0-9]*"):
            files |= {json.loads(line)["path"].removeprefix("file://") for line in path.read_text().splitlines()[1:]}
        return [tuple(row.values()) for name in sorted(files) for row in pq.read_table(name).to_pylist()]


def _descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


@pytest.fixture
def start(broker: SelectedBroker, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[..., SparkApp]]:
    apps: list[SparkApp] = []

    def make(topic: str, group: str) -> SparkApp:
        apps.append(SparkApp(broker.bootstrap, topic, group, tmp_path / f"app-{len(apps)}"))
        return apps[-1]

    yield make
    for app in apps:
        app.kill()


def eventually(what: Callable[[], bool], *living: SparkApp, timeout_s: float = 500) -> None:
    until = time.monotonic() + timeout_s
    while not what():
        for app in living:
            assert app.process.poll() is None, (app.folder / "log").read_text()
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.3)


def test_every_record_is_read_by_exactly_one_per_generation(
    broker: SelectedBroker,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    unique: Callable[[str], str],
    start: Callable[..., SparkApp],
) -> None:
    topic, group = make_topic(PARTITIONS, config={"retention.ms": "-1"}), unique("group")
    plain: list[Seen] = []
    over = threading.Event()
    sent = 0

    def consume() -> None:
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 500}
        with Consumer(broker.bootstrap, group=group, **settings) as consumer:
            consumer.subscribe([topic])
            while not over.is_set():
                for columns in consumer.poll(0.2):
                    generation = consumer.group_metadata().generation
                    plain.extend((generation, columns.partition, offset) for offset in columns.offsets)
                    consumer.commit(columns.next_offsets)

    def write(count: int) -> None:
        nonlocal sent
        send(topic, varied(count, PARTITIONS))
        sent += count

    write(3000)
    one = start(topic, group)
    eventually(lambda: len(one.arrived()) > 0, one)
    consumer = threading.Thread(target=consume)
    consumer.start()
    try:
        eventually(lambda: len(plain) > 0, one)
        two = start(topic, group)

        def has_its_share() -> bool:
            write(60)
            return len(two.arrived()) > 0

        eventually(has_its_share, one, two)
        write(1200)
        two.kill()
        write(1200)
        everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(sent // PARTITIONS)}
        eventually(lambda: everything == {*one.arrived(), *two.arrived(), *(place[1:] for place in plain)}, one)
    finally:
        over.set()
        consumer.join()
    one.kill()
    seen = Counter([*one.planned(), *two.planned(), *plain])
    assert set(seen.values()) == {1}  # no record twice in one generation, by any reader
    for app in (one, two):
        assert set(Counter(app.arrived()).values()) == {1}
        assert {place[1:] for place in app.planned()} >= set(app.arrived())
    generations = {generation for generation, *_ in seen}
    assert len(generations) >= 4  # three joins and a death
    assert all(reader for reader in (one.arrived(), two.arrived(), plain))
