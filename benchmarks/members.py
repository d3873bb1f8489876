"""A thousand members of one group in one process: time until all are stable, threads and memory.

Medians of five alternating runs, each in a separate interpreter, on one broker that has no initial rebalance delay. A
member is stable if it has its one partition. Memory is the growth of the process by the members (resident set).
"""

import os
import resource
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.consume import running_broker
from benchmarks.report import OURS, Report

RUNS = 5
SIZES = ((OURS, 300), ("confluent-kafka", 300), (OURS, 1000))
PATIENCE_S = 180.0


def run(report: Report) -> None:
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    with running_broker() as bootstrap:
        for client, size in SIZES * (1 + RUNS):  # the first run of each warms the broker up
            found.setdefault((client, size), []).append(measured(client, size, bootstrap))
    for (client, size), runs in found.items():
        seconds, threads, megabytes = map(median, zip(*runs[1:], strict=True))
        note = f"median of {RUNS}"
        report.add(f"{size} members until stable", client, seconds, "s", note=note)
        report.add(f"{size} members until stable", client, threads, "threads", note=note)
        report.add(f"{size} members", client, megabytes, "MB", note=note)


def topic_of(size: int) -> str:
    return f"bench-members-{size}"


def measured(client: str, size: int, bootstrap: str) -> tuple[float, float, float]:
    """(seconds until all are stable, threads, MB) of so many members in a process of their own."""
    command = [sys.executable, "-m", "benchmarks.members", client, str(size), bootstrap]
    out = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S * 2, check=True).stdout
    seconds, threads, megabytes = map(float, out.split()[-3:])
    return seconds, threads, megabytes


def _main(client: str, size: int, bootstrap: str) -> None:
    from kohort.testing.topics import create_topic, serves

    if not serves(bootstrap, topic_of(size), size):
        create_topic(bootstrap, topic_of(size), partitions=size, timeout_s=PATIENCE_S)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before_mb = resident_mb()
    began = time.perf_counter()
    members = {OURS: _kohort, "confluent-kafka": _confluent}[client](size, bootstrap, uuid.uuid4().hex)
    seconds = time.perf_counter() - began
    print(seconds, _threads(), resident_mb() - before_mb, flush=True)
    assert len(members) == size  # they live until here
    os._exit(0)  # leaving is not measured


def _kohort(size: int, bootstrap: str, group: str) -> list[Any]:
    from kohort import Consumer

    members = [Consumer(bootstrap, group=group, client_id=f"m{number}") for number in range(size)]
    for member in members:
        member.subscribe([topic_of(size)])

    def stable() -> bool:
        for member in members:
            member.poll(0)
        generations = {member.group_metadata().generation for member in members}
        return len(generations) == 1 and all(len(member.assignment) == 1 for member in members)

    _until(stable)
    return members


def _confluent(size: int, bootstrap: str, group: str) -> list[Any]:
    from confluent_kafka import Consumer

    members = [Consumer({"bootstrap.servers": bootstrap, "group.id": group}) for _ in range(size)]
    for member in members:
        member.subscribe([topic_of(size)])

    def stable() -> bool:
        for member in members:
            member.poll(0)
        return all(len(member.assignment()) == 1 for member in members)

    _until(stable)
    return members


def _until(stable: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not stable():
        if time.monotonic() > limit:
            raise TimeoutError("the group did not become stable")


def resident_mb() -> float:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _threads() -> int:
    # threading counts Python's own; librdkafka's are known to the kernel only.
    return max(len(os.listdir("/proc/self/task")), threading.active_count())


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
