"""Four processes of a region on three brokers, killed and stopped at random; then every record must count exactly once.

    make soak-region SEED=1 KILLS=100 STORE=sqlite RECORDS=1000000
    make soak-region SEED=1 MOVING=hand-over      partitions move without a reset of the region

Records are written all the while by another library's producer. Members write each to another topic, and a row for some
of them. Afterwards both topics are read by another library's consumer. The newest checkpoint, the output and the rows
are compared with the log: per-key totals, and one bit for each offset.
"""

import argparse
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import psycopg

from kohort.common import KohortError
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.effects import unpacked
from kohort.consistent_region.open_store import open_store
from kohort.testing import RealCluster
from kohort.testing.topics import create_topic
from tests.soak_region.harm import Crew, Harm
from tests.soak_region.seen import Seen, differences, marked, total, whole
from tests.soak_region.store_host import PostgresHost, SqliteHost, StoreHost

PARTITIONS, KEYS, PORTION = 12, 1_000, 500
MEMBERS = ("ada", "ben", "cleo", "dora")
STATIC = ("cleo", "dora")
RESET, HAND_OVER = "reset", "hand-over"
FIRST_S, SETTLE_S = 240.0, 600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a soak. `differences` is empty if each record took effect exactly once."""

    seed: int
    store: str
    records: int
    harms: dict[str, int]
    restarts: dict[str, int]
    checkpoints: int
    epochs: int
    seconds: float
    differences: tuple[str, ...]
    exit_codes: tuple[int, ...]

    @property
    def good(self) -> bool:
        return not self.differences and set(self.exit_codes) == {0}


class Writer(threading.Thread):
    """Writes `records`: a portion, and the others after `go_on` within about `seconds`. `failed`: why it could not."""

    def __init__(self, bootstrap: str, topic: str, records: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self.failed: object = None
        self.written = 0
        self.go_on = threading.Event()
        self._topic, self._records, self._seconds = topic, records, seconds
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "message.timeout.ms": 120_000,
            }
        )

    def run(self) -> None:
        started = time.monotonic()
        for number in range(self._records):
            if number == PORTION:
                self._producer.flush(120)
                self.go_on.wait()
                started = time.monotonic()
            elif number % PORTION == 0:
                due_s = self._seconds * number / self._records - (time.monotonic() - started)
                self._producer.poll(max(due_s, 0.0))
            while True:
                try:
                    self._producer.produce(
                        self._topic,
                        key=f"k{number * 7919 % KEYS}",
                        value=str(number),
                        partition=number % PARTITIONS,
                        on_delivery=self._delivered,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        if left := self._producer.flush(120):
            self.failed = f"{left} records were not acknowledged"

    def _delivered(self, error: object, _message: object) -> None:
        self.failed = self.failed or error
        self.written += error is None


class Effect(NamedTuple):
    """A record of the log, or what stands for it in a sink."""

    partition: int
    offset: int
    key: bytes


def read_log(bootstrap: str, topic: str) -> tuple[Seen, Seen, dict[int, int]]:
    """The log as another library reads it, the part of it that has rows, and where each partition ends."""
    log, rows = Seen(), Seen()
    ends: dict[int, int] = {}
    for one in _read(bootstrap, topic, ends):
        effect = Effect(one.partition(), one.offset(), one.key())
        log.add(effect)
        if marked(effect.offset):
            rows.add(effect)
    return log, rows, ends


def read_output(bootstrap: str, topic: str) -> Seen:
    """The records of a sink, by the places that are in their values."""
    output = Seen()
    for one in _read(bootstrap, topic, {}):
        partition, offset = map(int, one.value().split(b":"))
        output.add(Effect(partition, offset, one.key()))
    return output


def read_rows(url: str) -> Seen:
    """The rows of a sink."""
    rows = Seen()
    path = url.removeprefix("sqlite:///")
    database: Any = psycopg.connect(url) if path == url else sqlite3.connect(path)
    with closing(database):
        for name, partition, offset in database.execute("SELECT name, number, place FROM seen"):
            rows.add(Effect(partition, offset, name.encode()))
    return rows


def _read(bootstrap: str, topic: str, ends: dict[int, int]) -> Iterator[Any]:
    """The committed messages of a topic up to its ends, which are put into `ends`."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    try:
        places = [confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        ends |= {one.partition: reader.get_watermark_offsets(one, timeout=30)[1] for one in places}
        reader.assign(places)
        deadline = time.monotonic() + 180
        while {one.partition: max(one.offset, 0) for one in reader.position(places)} != ends:
            assert time.monotonic() < deadline, f"{topic} could not be read"
            for message in reader.consume(10_000, 1.0):
                assert message.error() is None, message.error()
                yield message
    finally:
        reader.close()


class Region:
    """The region as its coordinator has it, while that may be out of reach."""

    def __init__(self, url: str, topic: str) -> None:
        self._coordinator = RegionCoordinator(open_store(url), "soak", f"soak-{topic}")

    def newest(self) -> int:
        try:
            return self._coordinator.look().newest or 0
        except KohortError:
            return 0

    def epoch(self) -> int:
        return self._coordinator.look().epoch

    def checkpoint(self) -> tuple[dict[int, int], Seen]:
        """The newest: where each partition is, and all states as one."""
        manifest = self._coordinator.manifest(self.newest())
        states = []
        for cut in manifest.tasks:
            states.append(Seen())
            states[-1].restore(unpacked(self._coordinator.state(cut.state))[0], cut.offsets)
        return {place.partition: at.offset for place, at in manifest.offsets.items()}, whole(states)

    def offsets(self) -> dict[int, int]:
        try:
            manifest = self._coordinator.manifest(self.newest())
        except KohortError:
            return {}
        return {place.partition: at.offset for place, at in manifest.offsets.items()}

    def close(self) -> None:
        self._coordinator.store.close()


def soak(
    cluster: RealCluster,
    host: StoreHost,
    folder: Path,
    *,
    seed: int,
    kills: int,
    records: int,
    every_s: float,
    moving: str = RESET,
    say: Any = print,
) -> Outcome:
    """One soak on brokers and a store that are there. Raises AssertionError where it cannot come to an outcome."""
    started = time.monotonic()
    topic = f"soak-{seed}-{int(time.time())}"
    target = f"{topic}-out"
    bootstrap = cluster.bootstrap
    for name in (topic, target):
        create_topic(bootstrap, name, partitions=PARTITIONS, replicas=3, config={"min.insync.replicas": "2"})

    def arguments(name: str) -> list[str]:
        kind = "static" if name in STATIC else "dynamic"
        return [bootstrap, topic, name, host.url, kind, moving, target, host.rows_url]

    crew = Crew(MEMBERS, STATIC, arguments, folder)
    with ExitStack() as stack:
        stack.callback(crew.close)
        for name in MEMBERS:
            crew.start(name)
        writer = Writer(bootstrap, topic, records, kills * every_s)
        writer.start()
        region = Region(host.url, topic)
        stack.callback(region.close)
        until(lambda: region.newest() > 0, crew, "no first checkpoint", FIRST_S)
        writer.go_on.set()
        harm = Harm(seed, crew, cluster, host, every_s=every_s, say=say)
        harm.run(kills)
        say("no more harm: what is written must soon be in a checkpoint")
        while writer.is_alive():
            crew.tend()
            writer.join(0.2)
        assert writer.failed is None, writer.failed
        until(lambda: not crew.twins, crew, "two processes go on under one name", SETTLE_S)
        log, rows, ends = read_log(bootstrap, topic)
        until(lambda: region.offsets() == ends, crew, "not all of it came into a checkpoint", SETTLE_S)
        _, found = region.checkpoint()
        epochs, newest = region.epoch(), region.newest()
        # The effects of a checkpoint are carried out behind it.
        comes(lambda: total(read_rows(host.rows_url)) >= total(rows), crew, SETTLE_S)
        comes(lambda: total(read_output(bootstrap, target)) >= total(log), crew, SETTLE_S)
        codes = crew.stop()
        wrong = (
            *(f"state: {one}" for one in differences(found, log)),
            *(f"rows: {one}" for one in differences(read_rows(host.rows_url), rows)),
            *(f"output: {one}" for one in differences(read_output(bootstrap, target), log)),
        )
    return Outcome(
        seed,
        type(host).__name__,
        total(log),
        dict(harm.done),
        dict(crew.ended),
        newest,
        epochs,
        time.monotonic() - started,
        wrong,
        tuple(codes),
    )


def until(reached: Callable[[], bool], crew: Crew, problem: str, timeout_s: float) -> None:
    """Tend the crew until that is so. Raises AssertionError with the problem where it takes longer."""
    assert comes(reached, crew, timeout_s), problem


def comes(reached: Callable[[], bool], crew: Crew, timeout_s: float) -> bool:
    """Tend the crew until that is so. False if it takes longer."""
    deadline = time.monotonic() + timeout_s
    while not reached():
        crew.tend()
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.2)
    return True


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--kills", type=int, default=100)
    arguments.add_argument("--records", type=int, default=1_000_000)
    arguments.add_argument("--every-s", type=float, default=4.0)
    arguments.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    arguments.add_argument("--moving", choices=(RESET, HAND_OVER), default=RESET, help="what a rebalance does")
    task = arguments.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kohort-soak-region-"))
    print(f"soak of a region: {task}, logs in {folder}", flush=True)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s {text}", flush=True)

    with RealCluster(3) as cluster, ExitStack() as stack:
        host: StoreHost = SqliteHost(folder) if task.store == "sqlite" else PostgresHost()
        stack.callback(host.close)
        outcome = soak(
            cluster,
            host,
            folder,
            seed=task.seed,
            kills=task.kills,
            records=task.records,
            every_s=task.every_s,
            moving=task.moving,
            say=say,
        )
    for name in (field.name for field in fields(outcome)):
        print(f"{name:12} {getattr(outcome, name)}")
    if outcome.good:
        shutil.rmtree(folder)
    harms, wrong = sum(outcome.harms.values()), len(outcome.differences)
    print(f"{outcome.records:,} records, {harms} harms, {outcome.checkpoints:,} checkpoints, {wrong} differences")
    print("every record took effect exactly once" if outcome.good else "NOT exactly once, or not ended in order")
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
