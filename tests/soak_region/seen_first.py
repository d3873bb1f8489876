"""Users that are seen first once: members with PostgreSQL and Kafka sinks that are killed, leave and are interrupted.

    python -m tests.soak_region.seen_first --runs 50 --seed 1
    python -m tests.soak_region.seen_first --runs 10 --interrupts 20     Ctrl-C at random moments of `run()`, 20 a run

Each process has a name of its own. Afterwards there is one row for each user, one output record for each record, and
each is in the state of one task. Results are lines of out/seen-first.jsonl, and runs that are there are not repeated.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

import confluent_kafka
import psycopg

from kohort.common import KohortError
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.effects import unpacked
from kohort.consistent_region.open_store import open_store
from kohort.testing import RealBroker, RealPostgres
from kohort.testing.topics import create_topic

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "out" / "seen-first.jsonl"
PARTITIONS, USERS, MEMBERS, WAVE = 3, 60, 2, 60
ENDS = {"killed": signal.SIGKILL, "left": signal.SIGTERM, "interrupted": signal.SIGINT}
SETTLED_WITHIN_S = 300.0


class Members:
    """Processes of one region, each in a place."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._arguments = arguments
        self._log = log
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, place: int) -> None:
        """Start a process, and return when it is about to run."""
        command = [sys.executable, "-m", "tests.soak_region.user_process", uuid.uuid4().hex[:8], *self._arguments]
        with self._log.open("ab") as output:
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=output)
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n", self._log.read_text()[-3000:]
        self.processes[place] = process

    def end(self, place: int, how: str) -> None:
        process = self.processes.pop(place)
        process.send_signal(ENDS[how])
        try:
            code = process.wait(180)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR2)  # it writes where its threads are
            time.sleep(1.0)
            raise AssertionError(f"{how}, the process does not end: {self._log.read_text()[-5000:]}") from None
        wanted = -signal.SIGKILL if how == "killed" else 0
        assert code == wanted, f"{how}, the process ended with {code}: {self._log.read_text()[-3000:]}"

    def tend(self) -> None:
        for place, process in self.processes.items():
            assert process.poll() is None, f"place {place} ended by itself: {self._log.read_text()[-3000:]}"

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


class Region:
    """One run: its topics, its database, and all that was written."""

    def __init__(self, broker: RealBroker, url: str, seed: int) -> None:
        self.bootstrap, self.url = broker.bootstrap, url
        name = f"users-{seed}-{uuid.uuid4().hex[:6]}"
        self.source, self.target = f"{name}-in", f"{name}-out"
        create_topic(self.bootstrap, self.source, partitions=PARTITIONS)
        create_topic(self.bootstrap, self.target, partitions=1)
        self.group = f"{name}-group"
        self.written: dict[str, str] = {}  # value -> user
        self._producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})

    def write(self, users: list[str]) -> None:
        for user in users:
            value = str(len(self.written))
            self.written[value] = user
            self._producer.produce(self.source, key=user, value=value)
        assert self._producer.flush(60) == 0

    def state(self) -> Counter[str]:
        """The number of records of each user in the newest checkpoint."""
        store = open_store(self.url)
        try:
            region = RegionCoordinator(store, "users", self.group)
            found: Counter[str] = Counter()
            for cut in region.manifest(region.look().newest or 0).tasks:
                found.update(json.loads(unpacked(region.state(cut.state))[0]))
        except KohortError:
            return Counter()
        finally:
            store.close()
        return found

    def rows(self) -> Counter[str]:
        with psycopg.connect(self.url) as database:
            try:
                return Counter(row[0] for row in database.execute("SELECT name FROM first").fetchall())
            except psycopg.errors.UndefinedTable:
                return Counter()

    def output(self) -> Counter[str]:
        reader = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "checker",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        found: Counter[str] = Counter()
        reader.assign([confluent_kafka.TopicPartition(self.target, 0, 0)])
        while (message := reader.poll(30)) is not None and not message.error():
            found[message.value().decode()] += 1
        reader.close()
        return found

    def differences(self) -> list[str]:
        """A line for each kind of result in which something is missing or repeated."""
        pairs = {
            "rows": (self.rows(), Counter(set(self.written.values()))),
            "output": (self.output(), Counter(list(self.written))),
            "state": (self.state(), Counter(self.written.values())),
        }
        return [
            f"{name}: {sum((wanted - found).values())} missing, {sum((found - wanted).values())} too many"
            for name, (found, wanted) in pairs.items()
            if found != wanted
        ]


def run(broker: RealBroker, postgres: RealPostgres, seed: int, *, interrupts: int) -> dict[str, object]:
    """One run. Raises AssertionError where a process ends as it may not."""
    chance, began = random.Random(seed), time.monotonic()
    region = Region(broker, postgres.fresh(), seed)
    harms: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        moving = "hand-over" if seed % 2 else "reset"
        arguments = [region.bootstrap, region.source, region.target, region.url, region.group, moving]
        members = Members(arguments, Path(folder) / "members.log")
        try:
            for place in range(MEMBERS):
                members.start(place)
            for _ in range(interrupts or 6):
                region.write([f"user-{chance.randrange(USERS)}" for _ in range(WAVE)])
                time.sleep(chance.uniform(0.0, 3.0))
                members.tend()
                place = chance.randrange(MEMBERS)
                how = "interrupted" if interrupts else chance.choice(sorted(ENDS))
                members.end(place, how)
                harms[how] += 1
                members.start(place)
            deadline = time.monotonic() + SETTLED_WITHIN_S
            while (wrong := region.differences()) and time.monotonic() < deadline:
                if any("too many" in one and "0 too many" not in one for one in wrong):
                    break
                members.tend()
                time.sleep(0.5)
            for place in list(members.processes):
                members.end(place, "left")
            wrong = wrong or region.differences()
        finally:
            members.close()
    return {
        "seed": seed,
        "interrupts": interrupts,
        "moving": moving,
        "harms": dict(harms),
        "records": len(region.written),
        "wrong": wrong,
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--interrupts", type=int, default=0, help="interrupts a run, in place of the other ends")
    given = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    known = [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    wanted = range(given.seed, given.seed + given.runs)
    found = [one for one in known if one["interrupts"] == given.interrupts and one["seed"] in wanted]
    left = [seed for seed in wanted if seed not in {one["seed"] for one in found}]
    if left:
        with RealBroker() as broker, RealPostgres() as postgres:
            for seed in left:
                found.append(run(broker, postgres, seed, interrupts=given.interrupts))
                print(json.dumps(found[-1]), flush=True)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(found[-1]) + "\n")
    harms: Counter[str] = sum((Counter(one["harms"]) for one in found), Counter())
    wrong = sum(bool(one["wrong"]) for one in found)
    print(f"{len(found)} runs, {sum(one['records'] for one in found):,} records, {dict(harms)}, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
