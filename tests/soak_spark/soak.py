"""A streaming job whose workers, daemons, planner, JVM and driver are killed at random: is each record there once?

    python -m tests.soak_spark.soak --kills 30 --seed 1

A producer writes throughout, in every codec, and in transactions of which a third is aborted. The victims and times of
kills are drawn from the seed. In the end Parquet and PostgreSQL must hold what the log holds, by partition, offset and
value.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from kohort.testing import RealBroker
from kohort.testing.real_postgres import RealPostgres
from kohort.testing.topics import create_topic
from tests.soak_spark.harm import FATAL, KINDS, kill
from tests.spark.sent import CODECS

ROOT = Path(__file__).parents[2]
PARTITIONS = 3
TOPIC = "soak-spark"
PROGRESS_TIMEOUT_S = 1200.0
SPARKS_OWN = "Python worker failed to connect back"
"""Spark gives a Python ten seconds to start, which is short on a machine that others use; the job is started again."""
Row = tuple[int, int, str]


class Writer(threading.Thread):
    """Writes about `rate` records a second until it is stopped; no value comes twice."""

    def __init__(self, bootstrap: str, rate: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._chance = random.Random(seed)
        self._rate = rate
        self._stop_it = threading.Event()
        self._plain = [
            Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20}) for codec in CODECS
        ]
        self._transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "soak", "linger.ms": 5})
        self.written = 0
        self.error: Exception | None = None

    def stop(self) -> None:
        self._stop_it.set()
        self.join(120)
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        try:
            self._transactional.init_transactions(30)
            while not self._stop_it.wait(0.2):
                self._turn(self._chance.choice(self._plain), self._rate // 8)
                self._transactional.begin_transaction()
                self._turn(self._transactional, self._rate // 24)
                if self._chance.random() < 1 / 3:
                    self._transactional.abort_transaction(30)
                else:
                    self._transactional.commit_transaction(30)
        except Exception as error:  # reported by stop()
            self.error = error

    def _turn(self, producer: Producer, count: int) -> None:
        for _ in range(count):
            self.written += 1
            producer.produce(TOPIC, b"%d" % self.written, partition=self._chance.randrange(PARTITIONS))
        producer.flush(120)


class Job:
    """The job's process, which is started again after a kill that it does not survive."""

    def __init__(self, settings: Path, folder: Path) -> None:
        self._settings = settings
        self._log = folder / "job.log"
        self.starts = 0
        self._process = self._start("run")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def _start(self, mode: str) -> "subprocess.Popen[bytes]":
        self.starts += 1
        command = [sys.executable, "-m", "tests.soak_spark.job", str(self._settings), mode]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def kill(self) -> None:
        """All of it at once, if anything is left."""
        kill("driver, whole", self.pid, random.Random())
        self._process.wait()

    def again(self) -> None:
        """Kill what is left of it, if anything, and start it."""
        self.kill()
        self._process = self._start("run")

    def finish(self) -> None:
        self.kill()
        self._process = self._start("finish")
        if self._process.wait(1200):
            raise AssertionError(f"the last run failed: {self.said()}")

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def main(kills: int, seed: int, rate: int) -> int:
    chance = random.Random(seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kohort-soak-spark-")))
        broker = stack.enter_context(RealBroker())
        url = stack.enter_context(RealPostgres()).fresh()
        create_topic(broker.bootstrap, TOPIC, partitions=PARTITIONS)
        connection = stack.enter_context(psycopg.connect(url, autocommit=True))
        connection.execute("CREATE TABLE batches (number BIGINT PRIMARY KEY)")
        connection.execute("CREATE TABLE rows (partition INT, at BIGINT, value TEXT)")
        settings = folder / "settings.json"
        settings.write_text(
            json.dumps({"bootstrap": broker.bootstrap, "topic": TOPIC, "folder": str(folder), "postgres": url})
        )
        writer = Writer(broker.bootstrap, rate, seed)
        writer.start()
        job = Job(settings, folder)
        try:
            done = _harm(job, connection, kills, chance)
            writer.stop()
            job.finish()
        except BaseException:
            print(job.said(), file=sys.stderr)
            raise
        finally:
            job.kill()
        log = rows_of_the_log(broker.bootstrap, TOPIC, PARTITIONS)
        kept: Counter[Row] = Counter(connection.execute("SELECT partition, at, value FROM rows").fetchall())
        parquet: Counter[Row] = Counter((p, o, v) for p, o, v in json.loads((folder / "rows.json").read_text()))
    killed = ", ".join(f"{count} {kind}" for kind, count in sorted(done.items()))
    print(f"seed {seed}: {kills} kills ({killed}), {job.starts} starts of the job, {writer.written:,} records written")
    right = [_same("Parquet", parquet, log), _same("PostgreSQL", kept, log)]
    return 0 if all(right) else 1


def _harm(job: Job, connection: Any, kills: int, chance: random.Random) -> Counter[str]:
    """Kill, wait until the job moves on, and kill again."""
    done: Counter[str] = Counter()
    seen = _moves_on(job, connection, _batches(connection), chance)
    while done.total() < kills:
        (kind,) = chance.choices(list(KINDS), list(KINDS.values()))
        time.sleep(chance.uniform(0, 2))
        if not kill(kind, job.pid, chance):
            continue  # such a process is not there at the moment
        done[kind] += 1
        print(f"  {done.total():>3} {kind}; {seen} batches in PostgreSQL", flush=True)
        if kind in FATAL:
            job.again()
        seen = _moves_on(job, connection, seen, chance)
    return done


def _moves_on(job: Job, connection: Any, seen: int, chance: random.Random) -> int:
    """Wait for another batch or more. A job that ended by itself, or stands still, is a failure."""
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    wanted = seen + chance.randint(1, 3)
    while (now := _batches(connection)) < wanted:
        if job.ended:
            if SPARKS_OWN not in job.said():
                raise AssertionError("the job ended, though only its workers were killed")
            job.again()
        if time.monotonic() > deadline:
            raise AssertionError(f"the job stands still after {seen} batches")
        time.sleep(0.1)
    return now


def _batches(connection: Any) -> int:
    return int(connection.execute("SELECT count(*) FROM batches").fetchone()[0])


def rows_of_the_log(bootstrap: str, topic: str, partitions: int) -> Counter[Row]:
    """Every committed record, as another client reads it."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "the-log",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([Place(topic, number, 0) for number in range(partitions)])
    rows: Counter[Row] = Counter()
    ended: set[int] = set()
    while len(ended) < partitions:
        message = reader.poll(30)
        if message is None:
            raise AssertionError("the log cannot be read to its end")
        if message.error() is not None:
            ended.add(message.partition())
        else:
            rows[message.partition(), message.offset(), message.value().decode()] += 1
    reader.close()
    return rows


def _same(name: str, found: Counter[Row], log: Counter[Row]) -> bool:
    missing, extra = log - found, found - log
    print(
        f"{name}: {found.total():,} rows, the log has {log.total():,}; {missing.total()} missing, {extra.total()} extra"
    )
    for title, rows in (("missing", missing), ("extra", extra)):
        for row, count in sorted(rows.items())[:5]:
            print(f"  {title} {row} x {count}")
    return not missing and not extra


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=3000, help="records a second")
    chosen = parser.parse_args()
    sys.exit(main(chosen.kills, chosen.seed, chosen.rate))
