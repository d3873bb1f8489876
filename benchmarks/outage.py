"""A broker of three is killed or hangs: the time without records and without commits, of every client at once.

Each client is the only member of a group of its own, in a process of its own, with its default settings. All of them
read one topic of six partitions with three replicas, and commit every 100 ms without waiting for the response. The
broker that coordinates all these groups is killed, or stopped by SIGSTOP for 45 seconds. librdkafka writes 120 records
a second with acks=all, and gives a request up after 3 s. The time without records is the longest one from a record's
acknowledgement to its return from poll. The time without commits is the longest one between two accepted commits. Both
begin at the harm. The cluster fences a broker that hangs after 3 s here; Kafka's default is 9 s. The figures are
medians of the runs.
"""

import argparse
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count, pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.failover import await_whole, coordinator
from benchmarks.outage_clients import CLIENTS
from benchmarks.report import Report
from kohort.network.find_coordinator import coordinator_partition
from kohort.testing import RealCluster
from kohort.testing.real_broker import OPTIMIZING
from kohort.testing.topics import create_topic

PARTITIONS, RATE, RUNS = 6, 120, 3
OFFSETS_PARTITIONS = 50  # of __consumer_offsets, which select a group's coordinator
KILLED_S, HUNG_S, AFTER_S = 25.0, 45.0, 10.0
START_S = 60.0  # a client that has not committed by then is an error
END_S = 60.0  # a client that has not ended by then is killed
HARMS = ("killed", "hangs")


class Outage(NamedTuple):
    """The result of one client. Times are seconds; `lost` is the number of lost memberships."""

    without_records_s: float
    without_commits_s: float
    lost: int


class Feeder:
    """Writes records until it is closed. `written`: when each (partition, offset) was acknowledged (monotonic s)."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.written: dict[tuple[int, int], float] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(bootstrap, topic))
        self._thread.start()

    def _run(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 0,
                "acks": "all",
                "request.timeout.ms": 3_000,
                "socket.timeout.ms": 3_000,
                "log_level": 0,
            }
        )
        number = 0
        while not self._ends.wait(1 / RATE):
            producer.produce(topic, b"x" * 100, partition=number % PARTITIONS, on_delivery=self._delivered)
            producer.poll(0)
            number += 1
        producer.flush(10)

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            self.written[message.partition(), message.offset()] = time.monotonic()

    def close(self) -> None:
        self._ends.set()
        self._thread.join()


def run(report: Report) -> None:
    found: dict[tuple[str, str], list[Outage]] = {}
    with RealCluster(3, jvm_options=OPTIMIZING) as cluster:
        for _ in range(report.options.runs):
            for harm in report.options.harms:
                for client, outage in through(cluster, harm).items():
                    found.setdefault((harm, client), []).append(outage)
                    print(f"{harm}: {client}: {outage}", flush=True)
    for (harm, client), outages in found.items():
        note = f"median of {len(outages)}"
        records, commits, lost = (median(column) for column in zip(*outages, strict=True))
        report.add(f"a broker {harm}: without records", client, records, "s", note)
        report.add(f"a broker {harm}: without commits", client, commits, "s", note)
        report.add(f"a broker {harm}: lost memberships", client, lost, "memberships", note)


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m benchmarks outage")
    options.add_argument("--runs", type=int, default=RUNS)
    options.add_argument("--harms", nargs="+", choices=HARMS, default=HARMS)
    return options


def through(cluster: RealCluster, harm: str) -> dict[str, Outage]:
    """Harm the coordinator of all groups. Returns the result of each client; all brokers run again."""
    await_whole(cluster)
    topic = f"outage-{uuid.uuid4().hex[:8]}"
    create_topic(cluster.bootstrap, topic, partitions=PARTITIONS, replicas=3)
    groups = dict(zip(CLIENTS, _alike(topic), strict=False))
    with TemporaryDirectory() as folder, ExitStack() as stack:
        feeder = Feeder(cluster.bootstrap, topic)
        stack.callback(feeder.close)
        logs = {client: Path(folder, client) for client in CLIENTS}
        for client, group in groups.items():
            stack.enter_context(_reading(logs[client], client, cluster.bootstrap, topic, group))
        _await_commits(logs)
        address = coordinator(cluster.nodes[0].bootstrap, groups["kohort"])
        victim = next(node for node in cluster.nodes if node.bootstrap == address)
        harmed_at = time.monotonic()
        if harm == "killed":
            victim.kill()
            time.sleep(KILLED_S)  # the time that is observed; so are the others
        else:
            victim.pause()
            time.sleep(HUNG_S)
            victim.resume()
            time.sleep(AFTER_S)
        until = time.monotonic()
        stack.close()
        cluster.start()
        return {client: _outage(logs[client], feeder.written, harmed_at, until) for client in CLIENTS}


def _alike(topic: str) -> Iterator[str]:
    """Names of groups with one coordinator."""
    names = (f"{topic}-{number}" for number in count())
    return (name for name in names if coordinator_partition(name, OFFSETS_PARTITIONS) == 0)


def _await_commits(logs: Mapping[str, Path]) -> None:
    limit = time.monotonic() + START_S
    while waiting := [client for client, log in logs.items() if "\ncommit" not in log.read_text()]:
        if time.monotonic() > limit:
            raise TimeoutError(f"no commit of {', '.join(waiting)}")
        time.sleep(0.1)  # between two looks at the clients' files


@contextmanager
def _reading(log: Path, *arguments: str) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen([sys.executable, "-m", "benchmarks.outage_clients", *arguments], stdout=output)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _outage(log: Path, written: dict[tuple[int, int], float], harmed_at: float, until: float) -> Outage:
    """A record that was not read counts until the end, and so does a commit that never came."""
    read: dict[tuple[int, int], float] = {}
    commits: list[float] = []
    lost = 0
    for line in log.read_text().splitlines():
        kind, at, *details = line.split()
        if kind == "read":
            read.setdefault((int(details[0]), int(details[1])), float(at))
        elif kind == "commit":
            commits.append(float(at))
        elif kind == "lost":
            lost += harmed_at < float(at) < until
    waits = (
        min(read.get(place, until), until) - max(at, harmed_at)
        for place, at in written.items()
        if at < until and read.get(place, until) > harmed_at
    )
    return Outage(max(waits, default=0.0), _longest([harmed_at, *commits, until], harmed_at, until), lost)


def _longest(times: Sequence[float], begin: float, end: float) -> float:
    inside = sorted(one for one in times if begin <= one <= end)
    return max(later - earlier for earlier, later in pairwise(inside))
