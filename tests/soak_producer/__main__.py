"""Producers on three brokers with min.insync.replicas=2, which are killed one after another, and a judge.

    python -m tests.soak_producer --kills 300 --seed 1

One producer is idempotent, one transactional, and one has acks=1. Each turn of 10 kills has topics of its own, which a
read_committed consumer of confluent-kafka reads. Its result is a line of out/soak-producer/turns.jsonl. A run continues
behind the turns that are there. Exits with 1 if a record is missing, doubled, out of order, or not to be seen.
"""

import argparse
import hashlib
import json
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from kohort import Admin
from kohort.testing import RealCluster
from kohort.testing.topics import create_topic
from tests.soak_producer import judge
from tests.soak_producer.writers import PARTITIONS, Acknowledged, Transactional

ROOT = Path(__file__).parents[2]
KILLS_A_TURN = 10
START_S, REPLICAS_S = 240.0, 240.0
DOWN_S, UP_S = 2.0, 1.0
BAD = ("missing", "doubled", "disordered", "unwanted")


def main() -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak_producer", description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="of the first turn")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "soak-producer")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that brokers end with us
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / "turns.jsonl"
    known = {one["seed"]: one for one in map(json.loads, kept.read_text().splitlines())} if kept.exists() else {}
    seeds = range(given.seed, given.seed - (-given.kills // KILLS_A_TURN))
    waiting = [seed for seed in seeds if seed not in known]
    if waiting:
        with RealCluster(3, start_timeout_s=START_S) as cluster:
            for seed in waiting:
                known[seed] = turn(cluster, seed)
                with kept.open("a") as file:
                    file.write(json.dumps(known[seed]) + "\n")
                print(line(known[seed]), flush=True)
    results = [known[seed] for seed in seeds]
    print(summary(results))
    return int(any(one["bad"] for one in results))


def turn(cluster: RealCluster, seed: int) -> dict[str, Any]:
    """Write during ten kills, and judge."""
    began, chance, run = time.monotonic(), random.Random(seed), f"{seed}-{time.time_ns():x}"
    topics = [f"{name}-{run}" for name in ("idempotent", "transactions", "leaders")]
    for topic in topics:
        create_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replicas=3, config={"min.insync.replicas": "2"})
    plain = Acknowledged(cluster.bootstrap, topics[0], seed)
    transactions = Transactional(cluster.bootstrap, topics[1], seed)
    leaders = Acknowledged(cluster.bootstrap, topics[2], seed, acks=1, max_in_flight=1)
    writers = (plain, transactions, leaders)
    for writer in writers:
        writer.start()
    try:
        for _ in range(KILLS_A_TURN):
            node = chance.choice(cluster.nodes)
            node.kill()
            time.sleep(chance.random() * DOWN_S)
            cluster.start()
            _await_replicas(cluster.bootstrap, topics)
            time.sleep(chance.random() * UP_S)
    finally:
        cluster.start()  # so that the writers come to an end
        for writer in writers:
            writer.stop()
    strict = Counter(judge.of_acknowledged(judge.read(cluster.bootstrap, topics[0]), plain.offsets)._asdict())
    strict += Counter(judge.of_committed(judge.read(cluster.bootstrap, topics[1]), transactions.committed)._asdict())
    strict["disordered"] += sum(called != sorted(called) for called in plain.called.values())
    lost = judge.of_leaders(judge.read(cluster.bootstrap, topics[2]), leaders.offsets)
    strict["disordered"] += lost.disordered
    with Admin(cluster.bootstrap) as admin:
        admin.delete_topics(*topics)
    return {
        "seed": seed,
        "code": code(),
        "seconds": round(time.monotonic() - began, 1),
        "kills": KILLS_A_TURN,
        "records": len(plain.offsets) + len(transactions.committed),
        "commits": transactions.commits,
        "aborts": transactions.aborts,
        "failed transactions": transactions.failures,
        "failed records": len(plain.failed) + len(leaders.failed),
        "errors": sorted({*plain.failed.values(), *leaders.failed.values()})[:5],
        **{name: strict[name] for name in BAD},
        "bad": sum(strict[name] for name in BAD),
        "acks=1": {"records": len(leaders.offsets), "lost": lost.missing, "doubled": lost.doubled},
    }


def line(one: dict[str, Any]) -> str:
    """A turn in a line."""
    bad = ", ".join(f"{one[name]} {name}" for name in BAD)
    return (
        f"seed {one['seed']}: {one['kills']} kills in {one['seconds']} s, {one['records']:,} records, {one['commits']} "
        f"commits, {one['aborts']} aborts, {one['failed transactions']} failed; {bad}; with acks=1 "
        f"{one['acks=1']['lost']} of {one['acks=1']['records']:,} lost, {one['acks=1']['doubled']} doubled"
    )


def summary(results: list[dict[str, Any]]) -> str:
    """The sums of all turns."""
    total: Counter[str] = Counter()
    for one in results:
        total.update({name: one[name] for name in ("kills", "records", "commits", "aborts", *BAD)})
        total.update({f"acks=1 {name}": count for name, count in one["acks=1"].items()})
    bad = ", ".join(f"{total[name]} {name}" for name in BAD)
    return (
        f"{total['kills']} kills, {total['records']:,} records, {total['commits']:,} commits, {total['aborts']:,} "
        f"aborts: {bad}; with acks=1 {total['acks=1 lost']} of {total['acks=1 records']:,} lost"
    )


def code() -> str:
    """A digest of the code under test."""
    digest = hashlib.sha256()
    for folder in ("producer", "network", "protocol", "fastpath", "common"):
        for path in sorted((ROOT / folder).rglob("*.py*")):
            if path.suffix in (".py", ".pyx"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _await_replicas(bootstrap: str, topics: list[str]) -> None:
    """Wait until all partitions have all replicas again: the next broker may then be killed."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    limit = time.monotonic() + REPLICAS_S
    while time.monotonic() < limit:
        with suppress(Exception):  # a broker that is coming up may not respond
            found = admin.list_topics(timeout=5).topics
            replicas = [len(one.isrs) for topic in topics for one in found[topic].partitions.values()]
            if replicas and min(replicas) == 3:
                return
        time.sleep(0.1)
    raise TimeoutError("the brokers' replicas did not come together again")


if __name__ == "__main__":
    sys.exit(main())
