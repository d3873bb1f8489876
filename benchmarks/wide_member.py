"""A group member of a wide group in a process of its own, for `wide`.

    python -m benchmarks.wide_member CLIENT BOOTSTRAP TOPICS PARTITIONS SECONDS

It prints its CPU times as one JSON line, after a line "feed" with which it waits for records.
"""

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.members import resident_mb
from benchmarks.wide_broker import names

GROUP = "wide"
PATIENCE_S = 120.0
POLLS, COMMITS, REBALANCES = 1_000, 5, 5
FED_PER_S = 100


class Kohort:
    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        from kohort import Consumer

        self.consumer = Consumer(bootstrap, group=GROUP, auto_offset_reset="earliest", enable_auto_commit=False)
        self.consumer.subscribe(topics)

    def poll(self, timeout_s: float) -> int:
        return sum(len(columns) for columns in self.consumer.poll(timeout_s))

    def commit(self) -> None:
        self.consumer.commit()

    def rebalance(self) -> None:
        """Join again, until the next generation has its partitions."""
        generation = self.consumer.group_metadata().generation
        self.consumer.enforce_rebalance()
        while self.consumer.group_metadata().generation == generation or not self.consumer.assignment:
            self.consumer.poll(0.05)


class Confluent:
    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        from confluent_kafka import Consumer

        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.consumer.subscribe(topics)

    def poll(self, timeout_s: float) -> int:
        message = self.consumer.poll(timeout_s)
        return int(message is not None and not message.error())

    def commit(self) -> None:
        self.consumer.commit(offsets=self.consumer.position(self.consumer.assignment()), asynchronous=False)


CLIENTS: dict[str, Callable[[str, list[str]], Any]] = {"kohort": Kohort, "confluent-kafka": Confluent}


def main(client: str, bootstrap: str, topics: int, partitions: int, seconds: float) -> None:
    total = topics * partitions
    began, cpu, before_mb = time.monotonic(), time.process_time(), resident_mb()
    member = CLIENTS[client](bootstrap, names(topics))
    read = 0
    while read < total:
        if time.monotonic() > began + PATIENCE_S:
            raise TimeoutError(f"{client} has read {read} of {total} partitions")
        read += member.poll(0.5)
    figures = {"first_s": time.monotonic() - began, "first_ms": (time.process_time() - cpu) * 1e3}
    figures["memory_mb"] = resident_mb() - before_mb
    poll_for(member, seconds / 2)
    figures["idle_ms"] = spent(lambda: poll_for(member, seconds)) / seconds
    figures["poll_us"] = spent(lambda: [member.poll(0) for _ in range(POLLS)]) * 1e3 / POLLS
    figures["commit_ms"] = median(spent(member.commit) for _ in range(COMMITS))
    if hasattr(member, "rebalance"):
        figures["rebalance_ms"] = median(spent(member.rebalance) for _ in range(REBALANCES))
    poll_for(member, seconds / 2)  # the last rebalance ends with offsets and a new fetch session
    print("feed", flush=True)
    fed, cpu = round(FED_PER_S * seconds), time.process_time()
    while fed > 0:
        fed -= member.poll(0.5)
    figures["record_us"] = (time.process_time() - cpu) * 1e6 / round(FED_PER_S * seconds)
    print(json.dumps(figures), flush=True)


def poll_for(member: Any, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        member.poll(left)


def spent(work: Callable[[], object]) -> float:
    """CPU time of this process (ms)."""
    cpu = time.process_time()
    work()
    return (time.process_time() - cpu) * 1e3


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
