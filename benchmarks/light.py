"""Trickles: CPU, latency and wake-ups of each client at 10 to 20,000 records/s, by TLS, and without records.

Each client is a group member in a process of its own with its defaults, one at a time, in turns. librdkafka sends the
records from another process with linger 0. A record has 100 bytes, among them the time of its send. Latency is from
there to the return of poll. CPU is that of the whole process, the read of the values included. Wake-ups are voluntary
context switches of all threads. A delivered batch is a return of poll with records: one record for confluent-kafka.
`strace` counts system calls in phases of their own. Waits for sockets are its calls of epoll, poll and select. Lock
hand-overs are its calls of futex. In one process, a client also sends the records, with linger 0. Idle consumers of an
empty topic of 50 partitions run at the same time.

The broker has a heap of 1 GB and the collector G1, as by Kafka's own scripts. The serial collector's full collections
took 70 to 85 ms, which was p99 at 500 partitions.

    python -m benchmarks light --rates 200 --partitions 1 --seconds 5 --runs 1 --only trickle
"""

import argparse
import shutil
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, NamedTuple

from benchmarks.light_clients import ASYNCIO, BLOCKING, Task
from benchmarks.light_process import FRANZ_GO, ClientProcess, Figures, franz_go
from benchmarks.report import OURS, Report
from kohort.common.counted import counted
from kohort.testing import RealBroker
from kohort.testing.real_broker import OPTIMIZING
from kohort.testing.topics import create_topic

OURS_IN_ASYNCIO, THEIRS_IN_ASYNCIO = ASYNCIO
SIDE_RATE, SIDE_PARTITIONS = 200, 1  # by TLS, and in one process
CALLS = ((200, 1), (2_000, 50))
IDLE_PARTITIONS, SETTLE_S, IDLE_TIMES = 50, 10.0, 6
WAITS = ("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6")
WARM_UP_RECORDS = 20_000
HEAP_MB = 1024
COLLECTOR = ("-XX:-UseSerialGC", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
COLUMNS = (("CPU per record", "cpu_us", "us"), ("p50", "p50_ms", "ms"), ("p99", "p99_ms", "ms"))
WAKE_UPS = ("wake-ups per delivered batch", "wake_ups", "wake-ups")


class Place(NamedTuple):
    """Addresses of a broker: plain, and by TLS with its authority."""

    plain: str
    tls: str
    ca_file: str


class Bench:
    """A broker, its topics by number of partitions, and the producer of the records."""

    def __init__(self, place: Place, report: Report) -> None:
        from confluent_kafka import Producer

        self.options = report.options
        self.report = report
        self.producer = Producer({"bootstrap.servers": place.plain, "linger.ms": 0})
        self._place = place
        self._topics: dict[int, str] = {}
        self._groups = count()
        self._warm_up()

    def _warm_up(self) -> None:
        """Let the broker compile its code. The first client would otherwise wait for it."""
        topic = f"bench-light-{uuid.uuid4().hex[:8]}"
        create_topic(self._place.plain, topic)
        for _ in range(WARM_UP_RECORDS):
            self.producer.produce(topic, b"")
            self.producer.flush()

    @property
    def clients(self) -> list[str]:
        """The chosen clients that this machine has."""
        known = [*BLOCKING, *ASYNCIO, *([FRANZ_GO] if franz_go() else [])]
        return [one for one in known if one in (self.options.clients or known)]

    def task(self, client: str, partitions: int, *, tls: bool = False, **own: Any) -> Task:
        if partitions not in self._topics:
            self._topics[partitions] = f"bench-light-{partitions}-{uuid.uuid4().hex[:8]}"
            create_topic(self._place.plain, self._topics[partitions], partitions=partitions)
        return Task(
            client=client,
            bootstrap=self._place.tls if tls else self._place.plain,
            topic=self._topics[partitions],
            partitions=partitions,
            group=f"{self._topics[partitions]}-{next(self._groups)}",
            ca_file=self._place.ca_file if tls else "",
            **own,
        )

    @contextmanager
    def reading(self, client: str, partitions: int, *, tls: bool = False) -> Iterator[ClientProcess]:
        """A client that reads all partitions."""
        with ClientProcess(self.task(client, partitions, tls=tls)) as process:
            process.become_ready(self.producer)
            yield process

    def add(self, cell: str, found: Mapping[str, Sequence[Figures]], columns: Sequence[tuple[str, str, str]]) -> None:
        """Rows of the medians. Ours in asyncio is compared with aiokafka only."""
        for column, key, unit in columns:
            for client, runs in found.items():
                value = statistics.median(one[key] for one in runs)
                note = f"median of {len(runs)}"
                if client != OURS_IN_ASYNCIO:
                    self.report.add(f"{cell}: {column}", client, value, unit, note)
                if client in (OURS_IN_ASYNCIO, THEIRS_IN_ASYNCIO):
                    named = OURS if client == OURS_IN_ASYNCIO else client
                    self.report.add(f"{cell}, asyncio: {column}", named, value, unit, note)


def run(report: Report) -> None:
    with RealBroker(tls=True, heap_mb=HEAP_MB, jvm_options=(*OPTIMIZING, *COLLECTOR)) as broker:
        bench = Bench(Place(broker.bootstrap, broker.bootstrap_tls, str(broker.ca_file)), report)
        for part in report.options.only:
            PARTS[part](bench)


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m benchmarks light")
    options.add_argument("--rates", type=int, nargs="+", default=[10, 200, 2_000, 20_000], help="records a second")
    options.add_argument("--partitions", type=int, nargs="+", default=[1, 50, 500])
    options.add_argument("--seconds", type=float, default=5.0, help="of a phase")
    options.add_argument("--runs", type=int, default=5, help="of each client, in turns")
    options.add_argument("--clients", nargs="+", choices=[*BLOCKING, *ASYNCIO, FRANZ_GO])
    options.add_argument("--only", nargs="+", choices=[*PARTS], default=[*PARTS], help="parts of the benchmark")
    return options


def _trickle(bench: Bench) -> None:
    for partitions in bench.options.partitions:
        found: dict[int, dict[str, list[Figures]]] = {rate: {} for rate in bench.options.rates}
        for _run in range(bench.options.runs):
            for client in bench.clients:
                with bench.reading(client, partitions) as process:
                    for rate, of_rate in found.items():
                        figures = process.measured(bench.producer, rate, bench.options.seconds)
                        of_rate.setdefault(client, []).append(figures)
        for rate, of_rate in found.items():
            bench.add(_cell(rate, partitions), of_rate, (*COLUMNS, WAKE_UPS))


def _tls(bench: Bench) -> None:
    found: dict[str, list[Figures]] = {}
    for _run in range(bench.options.runs):
        for client in bench.clients:
            with bench.reading(client, SIDE_PARTITIONS, tls=True) as process:
                figures = process.measured(bench.producer, SIDE_RATE, bench.options.seconds)
                found.setdefault(client, []).append(figures)
    bench.add(f"{_cell(SIDE_RATE, SIDE_PARTITIONS)}, TLS", found, COLUMNS)


def _both(bench: Bench) -> None:
    found: dict[str, list[Figures]] = {}
    records = round(SIDE_RATE * bench.options.seconds)
    for _run in range(bench.options.runs):
        for client in bench.clients:
            if client == FRANZ_GO:
                continue
            task = bench.task(client, SIDE_PARTITIONS, rate=SIDE_RATE, records=records)
            with ClientProcess(task) as process:
                found.setdefault(client, []).append(process.phase_facts())
    bench.add(f"producer and consumer in one process, {_cell(SIDE_RATE, SIDE_PARTITIONS)}", found, COLUMNS)


def _idle(bench: Bench) -> None:
    seconds = IDLE_TIMES * bench.options.seconds
    with ExitStack() as stack:
        idle = {client: stack.enter_context(bench.reading(client, IDLE_PARTITIONS)) for client in bench.clients}
        time.sleep(SETTLE_S)
        before = {client: process.usage() for client, process in idle.items()}
        time.sleep(seconds)
        after = {client: process.usage() for client, process in idle.items()}
    found: dict[str, list[Figures]] = {}
    for client, begun in before.items():
        cpu_s, wake_ups = after[client].cpu_s - begun.cpu_s, after[client].wake_ups - begun.wake_ups
        found[client] = [{"cpu_ms": cpu_s * 1e3 * 60 / seconds, "wake_ups": wake_ups / seconds}]
    columns = (("CPU a minute", "cpu_ms", "ms"), ("wake-ups a second", "wake_ups", "wake-ups"))
    bench.add(f"an idle consumer of {IDLE_PARTITIONS} partitions", found, columns)


def _calls(bench: Bench) -> None:
    if shutil.which("strace") is None:
        print("  no strace: system calls are not counted", flush=True)
        return
    for rate, partitions in CALLS:
        found: dict[str, list[Figures]] = {}
        for client in bench.clients:
            with bench.reading(client, partitions) as process:
                calls = process.calls(bench.producer, rate, bench.options.seconds)
                waits = sum(calls.get(name, 0.0) for name in WAITS)
                figures = {"waits": waits, "locks": calls.get("futex", 0.0), "all": sum(calls.values())}
                found[client] = [figures]
        columns = (("waits for sockets", "waits"), ("lock hand-overs", "locks"), ("system calls", "all"))
        cell = _cell(rate, partitions)
        bench.add(cell, found, [(f"{column} per delivered batch", key, "calls") for column, key in columns])


PARTS: Mapping[str, Callable[[Bench], None]] = {
    "trickle": _trickle,
    "tls": _tls,
    "both": _both,
    "idle": _idle,
    "calls": _calls,
}


def _cell(rate: int, partitions: int) -> str:
    return f"{rate:,}/s, {counted(partitions, 'partition')}"
