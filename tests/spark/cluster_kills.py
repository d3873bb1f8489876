"""Kills of executors and workers under each kind of job, on a standalone cluster: resumable by a file of rounds.

    python -m tests.spark.cluster_kills --kills 60 --seed 1 --resume out/cluster-kills.jsonl

A round is one job. It is hit once while it runs, and its result is compared with the log. Rounds with a kill count.
"""

import argparse
import json
import random
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from subprocess import Popen
from typing import Any

from kohort import Consumer, TopicPartition
from kohort.producer import Producer
from kohort.testing import RealBroker, SparkCluster
from kohort.testing.topics import create_topic
from tests.spark.cluster_app import PARTITIONS, RECORDS
from tests.spark.packed_environment import ended, pack, submit, unpacked

KINDS = ("rdd", "batch", "stream", "group", "sink", "exactly_once")
EXACTLY_ONCE = frozenset(KINDS) - {"sink"}
WORKERS = 2
WORKER_SHARE = 0.25  # of the kills
ROUND_TIMEOUT_S = 600.0
NUMBERS = list(range(RECORDS))


class App:
    """The driver, which does one order after another."""

    def __init__(self, folder: Path, cluster: SparkCluster, packed: Path, bootstrap: str) -> None:
        folder.mkdir()
        self._folder = folder
        self._next = 0
        self._process: Popen[bytes] = submit(
            "cluster_app.py",
            folder,
            cluster,
            unpacked(folder, packed),
            bootstrap,
            str(folder),
            settings={"spark.task.maxFailures": "20", "spark.cores.max": str(WORKERS)},
        )

    def order(self, **order: str) -> int:
        number, self._next = self._next, self._next + 1
        written = self._folder / f"order-{number}.part"
        written.write_text(json.dumps({**order, "folder": str(self._folder / f"round-{number}")}))
        written.rename(self._folder / f"order-{number}.json")
        self.wait_for(f"started-{number}")
        return number

    def finished(self, number: int) -> bool:
        return (self._folder / f"result-{number}.json").exists()

    def result(self, number: int) -> dict[str, Any]:
        self.wait_for(f"result-{number}.json")
        return dict(json.loads((self._folder / f"result-{number}.json").read_text()))

    def wait_for(self, name: str) -> None:
        until = time.monotonic() + ROUND_TIMEOUT_S
        while not (self._folder / name).exists():
            if self._process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{name} did not appear: {(self._folder / 'log').read_text()[-6000:]}")
            time.sleep(0.05)

    def end(self) -> None:
        (self._folder / "end").touch()
        try:
            self._process.wait(60)
        finally:
            ended(self._process)


def filled(bootstrap: str) -> str:
    """A topic with the numbers below RECORDS."""
    topic = f"kills-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    with Producer(bootstrap) as producer:
        for number in NUMBERS:
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    return topic


def read(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> list[int]:
    """The committed numbers of a topic, sorted."""
    found: list[int] = []
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        ends = consumer.end_offsets(places)
        consumer.assign(dict.fromkeys(places, 0))
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [int(record.value or b"") for columns in consumer.poll(0.2) for record in columns]
    return sorted(found)


def committed(bootstrap: str, group: str, topic: str) -> int:
    """The sum of a group's offsets."""
    with Consumer(bootstrap, group=group) as consumer:
        found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)])
    return sum(one.offset for one in found.values() if one is not None)


def hit(cluster: SparkCluster, app: App, order: int, dice: random.Random) -> str:
    """Kill an executor, or a worker with its executors, if the job still runs. Returns the kind of the victim."""
    time.sleep(dice.uniform(0.3, 3.0))
    by_worker = dice.random() < WORKER_SHARE
    while not (executors := cluster.executors()):
        if app.finished(order):
            return ""
        time.sleep(0.1)
    if app.finished(order):
        return ""
    victim = dice.choice(executors)
    if not by_worker:
        cluster.kill_executor(victim)
        return "executor"
    cluster.kill_worker(victim.worker)
    cluster.start_worker(victim.worker)
    return "worker"


def one_round(kind: str, cluster: SparkCluster, app: App, bootstrap: str, topic: str, dice: random.Random) -> Any:
    """The facts about a round. Raises AssertionError if the result is not the log."""
    made = f"{kind.replace('_', '-')}-{uuid.uuid4().hex[:8]}"
    writes = kind in ("sink", "exactly_once")
    if writes:
        create_topic(bootstrap, made, partitions=PARTITIONS)
    order = app.order(kind=kind, topic=topic, to=made, group=made)
    victim = hit(cluster, app, order, dice)
    result = app.result(order)
    found = read(bootstrap, made) if writes else result["found"]
    surplus = len(found) - RECORDS
    right = found == NUMBERS if kind in EXACTLY_ONCE else sorted(set(found)) == NUMBERS
    if kind == "group":
        right = right and committed(bootstrap, made, topic) == RECORDS
    if not right:
        lost, doubled = set(NUMBERS) - set(found), [n for n, times in Counter(found).items() if times > 1]
        raise AssertionError(f"{kind}: {len(lost)} of {RECORDS} lost, {len(doubled)} doubled, after: {victim}")
    return {"kind": kind, "killed": victim, "surplus": surplus, "seconds": result["seconds"]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", type=Path, default=Path("out/cluster-kills.jsonl"))
    given = parser.parse_args()
    given.resume.parent.mkdir(exist_ok=True)
    lines = given.resume.read_text().splitlines() if given.resume.exists() else []
    rounds = [one for one in map(json.loads, lines) if one["seed"] == given.seed]
    kills = Counter(one["kind"] for one in rounds if one["killed"])
    each = -(-given.kills // len(KINDS))
    with (
        tempfile.TemporaryDirectory(prefix="kohort-kills-") as scratch,
        RealBroker() as broker,
        SparkCluster(workers=WORKERS) as cluster,
    ):
        topic = filled(broker.bootstrap)
        app = App(Path(scratch, "app"), cluster, pack(Path(scratch)), broker.bootstrap)
        try:
            while kind := next((one for one in sorted(KINDS, key=kills.__getitem__) if kills[one] < each), None):
                number = len(rounds)
                dice = random.Random(f"{given.seed} {number}")
                about = {"seed": given.seed, "round": number}
                rounds.append(about | one_round(kind, cluster, app, broker.bootstrap, topic, dice))
                kills[kind] += bool(rounds[-1]["killed"])
                with given.resume.open("a") as file:
                    print(json.dumps(rounds[-1]), file=file)
                print(json.dumps(rounds[-1]), flush=True)
        finally:
            app.end()
    print(f"{kills.total()} kills: {dict(kills)}; every result equals the log")


if __name__ == "__main__":
    main()
