"""Writing of a topic by each client: codecs, sizes, columns, partitions, TLS, asyncio, and latency at a rate.

All clients run in one run on one broker, in turns, each with its best settings (`produce_clients.py`). A run begins
with the client's constructor, and ends when all records are acknowledged by all replicas and the client is closed.
Figures are medians. CPU is that of the whole process. confluent-kafka is called with a delivery callback, as it reports
failures in no other way. Slow clients get a part of the records. Values are words, so that they can be compressed.
kafka-producer-perf-test reports its own rate, without the start of the JVM, and its CPU is left out. The raw socket
sends batches that were encoded beforehand, without idempotence. The compression ratio is the size of the values over
that of the topic's log on the disk. The log has the headers of records and batches, too. franz-go measures itself in a
process of its own, where Go is installed. gzip is slow in all clients, and gets a part of the records. Latency is from
`send` to the callback, with linger 0. A tick is a timer of the loop, and its figure is its delay. Each task beside it
awaits each of its records.

    python -m benchmarks produce                              # all parts: some 20 minutes on 2 quiet cores
    python -m benchmarks produce --only rows columns --codecs lz4 zstd
    python -m benchmarks produce --runs 1 --scale 0.1 --only rows --codecs none
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import produce_clients as clients
from benchmarks.consume import texts
from benchmarks.light_process import FRANZ_GO, franz_go
from benchmarks.produce_clients import Load
from benchmarks.report import OURS, Report
from kohort import Admin, Consumer, TopicPartition
from kohort.common.counted import counted
from kohort.producer.producer_settings import CompressionType
from kohort.testing import jars
from kohort.testing.jdk import java
from kohort.testing.topics import create_topic

CODECS: tuple[CompressionType, ...] = ("none", "lz4", "zstd", "snappy", "gzip")
RECORDS: Mapping[int, int] = {100: 1_000_000, 1_000: 200_000}  # value bytes -> records
SHARES: Mapping[CompressionType, float] = {"gzip": 0.2}
PERF_TEST_CODECS: tuple[CompressionType, ...] = ("none", "lz4", "zstd")  # a JVM is started for each run
PARTITIONS = 6
RATE, LATENCY_RECORDS = 2_000.0, 10_000
PERF_TEST = "kafka-producer-perf-test"
RAW = "raw socket, encoded beforehand"


class Client(NamedTuple):
    """A client. `share`: the part of the records that it gets, for its rate does not depend on their number."""

    name: str
    produce: Callable[[Load], None]
    share: float = 1.0


ROWS = (
    Client(OURS, clients.ours),
    Client("confluent-kafka", clients.confluent),
    Client("aiokafka", clients.aiokafka, 0.1),
    Client("kafka-python", clients.kafka_python, 0.05),
)
COLUMNS = (Client(OURS, clients.columns, 4.0), Client("confluent-kafka, rows", clients.confluent))
ASYNCIO = (
    Client(OURS, clients.ours_in_asyncio),
    Client("confluent-kafka, AIOProducer", clients.confluent_in_asyncio, 0.1),
    Client("aiokafka", clients.aiokafka, 0.1),
)
PACED = (
    (OURS, clients.ours_paced),
    ("confluent-kafka", clients.confluent_paced),
    ("aiokafka", clients.aiokafka_paced),
)


class Bench:
    """A broker with the folder of its logs, and the report. `tls`: its address with TLS, and the authority's file."""

    def __init__(self, report: Report, bootstrap: str, tls: tuple[str, str] | None, data: Path | None) -> None:
        self.options, self._report = report.options, report
        self.bootstrap, self.tls, self._data = bootstrap, tls, data
        self._words = {size: texts(size) for size in RECORDS}

    def load(self, size: int, codec: CompressionType = "none", partitions: int = PARTITIONS) -> Load:
        """The records of a run, but for its topic."""
        count = int(RECORDS[size] * SHARES.get(codec, 1.0) * self.options.scale)
        return Load(self.bootstrap, "", self._words[size], count, codec, partitions)

    def compare(self, work: str, load: Load, among: Sequence[Client]) -> None:
        """Run all clients in turns, and add the medians of their rates."""
        walls: dict[str, list[float]] = {one.name: [] for one in among}
        cpus: dict[str, list[float]] = {one.name: [] for one in among}
        ratios: dict[str, list[float]] = {one.name: [] for one in among}
        for _run in range(self.options.runs):
            for client, produce, share in among:
                with self.topic(load, int(load.records * share)) as some:
                    wall, cpu = time.perf_counter(), time.process_time()
                    produce(some)
                    walls[client].append(some.records / (time.perf_counter() - wall))
                    cpus[client].append(some.records / (time.process_time() - cpu))
                    ratios[client] += self._compression_ratio(some)
        for client, rates in walls.items():
            self._report.add(work, client, statistics.median(rates), "records/s")
            self._report.add(f"{work}, per CPU second", client, statistics.median(cpus[client]), "records/s")
            if ratios[client] and load.codec != "none":
                self._report.add(f"{work}, compression ratio", client, statistics.median(ratios[client]), "times")

    def _compression_ratio(self, load: Load) -> list[float]:
        """The bytes of the values over those of the topic's log; empty if the broker's folder is unknown."""
        if self._data is None:
            return []
        log_bytes = sum(one.stat().st_size for one in self._data.glob(f"{load.topic}-*/*.log"))
        return [sum(map(len, load.each())) / log_bytes]

    def raw(self, work: str, load: Load) -> None:
        """Add the rate of batches that are encoded before the clock starts."""
        rates = []
        for _run in range(self.options.runs):
            with self.topic(load, load.records) as some:
                sending = clients.encoded_and_sent(some)
                next(sending)
                wall = time.perf_counter()
                next(sending, None)
                rates.append(some.records / (time.perf_counter() - wall))
        self._report.add(work, RAW, statistics.median(rates), "records/s")

    def franz_go(self, work: str, load: Load) -> None:
        """Add the rates of franz-go, where Go is installed."""
        program = franz_go("./produce")
        if program is None:
            return
        walls, cpus = [], []
        for _run in range(self.options.runs):
            with self.topic(load, load.records) as some:
                found = franz_go_run(program, some)
                walls.append(some.records / found["wall_s"])
                cpus.append(some.records / found["cpu_s"])
        self._report.add(work, FRANZ_GO, statistics.median(walls), "records/s")
        self._report.add(f"{work}, per CPU second", FRANZ_GO, statistics.median(cpus), "records/s")

    def perf_test(self, work: str, load: Load) -> None:
        """Add the rate of Kafka's own tool."""
        rates = []
        for _run in range(self.options.runs):
            with self.topic(load, load.records) as some:
                rates.append(perf_test(some))
        self._report.add(work, PERF_TEST, statistics.median(rates), "records/s")

    def latency(self) -> None:
        """Add percentiles of the time until a record is acknowledged."""
        took: dict[str, list[float]] = {client: [] for client, _ in PACED}
        for _run in range(self.options.runs):
            for client, paced in PACED:
                with self.topic(self.load(100), int(LATENCY_RECORDS * self.options.scale), extra=1) as some:
                    took[client] += paced(some, RATE)
        for client, seconds in took.items():
            self.percentiles(f"latency at {RATE:,.0f} records/s", client, seconds)

    def percentiles(self, work: str, client: str, seconds: Sequence[float]) -> None:
        """Add p50, p99 and p99.9 in ms."""
        cuts = statistics.quantiles(seconds, n=1_000, method="inclusive")
        for name, at in (("p50", 500), ("p99", 990), ("p99.9", 999)):
            self._report.add(f"{work}, {name}", client, cuts[at - 1] * 1_000, "ms")

    @contextmanager
    def topic(self, load: Load, count: int | None, extra: int = 0) -> Iterator[Load]:
        """The load with a topic of its own, and with `count` records. Raises AssertionError if others are in it."""
        name = f"bench-produce-{uuid.uuid4().hex[:8]}"
        create_topic(self.bootstrap, name, partitions=load.partitions)
        yield load._replace(topic=name, records=count or 0)
        with Consumer(self.bootstrap) as consumer:
            places = [TopicPartition(name, number) for number in range(load.partitions)]
            written = sum(consumer.end_offsets(places).values())
        assert count is None or written == count + extra, f"{written} records of {count}"
        with Admin(self.bootstrap) as admin:
            admin.delete_topics(name)


def _rows(bench: Bench) -> None:
    for size in RECORDS:
        for codec in bench.options.codecs:
            load, work = bench.load(size, codec), f"produce {size} B, {codec}"
            bench.compare(work, load, ROWS)
            bench.franz_go(work, load)
            if codec in PERF_TEST_CODECS:
                bench.perf_test(work, load)
            if codec == "none":
                bench.raw(work, load)


def _columns(bench: Bench) -> None:
    for size in RECORDS:
        for codec in bench.options.codecs:
            bench.compare(f"produce {size} B in columns, {codec}", bench.load(size, codec), COLUMNS)


def _partitions(bench: Bench) -> None:
    for partitions in (1, 50):
        to = f"to {counted(partitions, 'partition')}"
        load = bench.load(100, partitions=partitions)
        bench.compare(f"produce 100 B {to}", load, ROWS)
        bench.compare(f"produce 100 B in columns {to}", load, COLUMNS)


def _tls(bench: Bench) -> None:
    if bench.tls is None:
        return
    bootstrap, ca_file = bench.tls
    load = bench.load(100)._replace(bootstrap=bootstrap, ca_file=ca_file)
    bench.compare("produce 100 B by TLS", load, ROWS)
    bench.compare("produce 100 B by TLS in columns", load, COLUMNS)


def _asyncio(bench: Bench) -> None:
    bench.compare("produce 100 B in asyncio", bench.load(100), ASYNCIO)


def _ticker(bench: Bench) -> None:
    """Lateness of a timer of the loop beside 300 tasks on one AsyncProducer."""
    for client, sending in (("floor: 300 tasks sleep", False), (OURS, True)):
        with bench.topic(bench.load(100), None) as some:
            late = clients.ticks_beside_tasks(some, bench.options.ticker_seconds, sending=sending)
        bench.percentiles("a tick of 5 ms beside 300 tasks", client, late)


PARTS: Mapping[str, Callable[[Bench], None]] = {
    "rows": _rows,
    "columns": _columns,
    "partitions": _partitions,
    "tls": _tls,
    "asyncio": _asyncio,
    "latency": Bench.latency,
    "ticker": _ticker,
}


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m benchmarks produce")
    options.add_argument("--runs", type=int, default=5, help="of each client, in turns")
    options.add_argument("--scale", type=float, default=1.0, help="part of the records")
    options.add_argument("--codecs", nargs="+", choices=CODECS, default=CODECS)
    options.add_argument("--ticker-seconds", type=float, default=60.0)
    options.add_argument("--only", nargs="+", choices=[*PARTS], default=[*PARTS], help="parts of the benchmark")
    return options


def run(report: Report) -> None:
    with _running_broker() as (bootstrap, tls, data):
        bench = Bench(report, bootstrap, tls, data)
        with bench.topic(bench.load(100), 1_000) as warm:
            clients.ours(warm)
        for part in report.options.only:
            began = time.monotonic()
            PARTS[part](bench)
            print(f"-- {part}: {time.monotonic() - began:.0f} s", flush=True)


@contextmanager
def _running_broker() -> Iterator[tuple[str, tuple[str, str] | None, Path | None]]:
    """KOHORT_BOOTSTRAP if set, without TLS and the folder of its logs, else a broker of our own."""
    if given := os.environ.get("KOHORT_BOOTSTRAP"):
        yield given, None, None
        return
    from kohort.testing import RealBroker
    from kohort.testing.real_broker import OPTIMIZING

    soon = {"log.segment.delete.delay.ms": 1_000}  # deleted topics free their disk
    with RealBroker(tls=True, jvm_options=OPTIMIZING, properties=soon) as broker:
        data = broker.nodes[0].layout.folder / "data"
        yield broker.bootstrap, (broker.bootstrap_tls, str(broker.ca_file)), data


def franz_go_run(program: Path, load: Load) -> dict[str, float]:
    """The time and the CPU time that franz-go takes."""
    with tempfile.TemporaryDirectory() as folder:
        values = Path(folder, "values")
        values.write_bytes(b"\n".join(load.values) + b"\n")
        task = {
            "bootstrap": load.bootstrap,
            "topic": load.topic,
            "values": str(values),
            "records": load.records,
            "codec": load.codec,
            "ca_file": load.ca_file or "",
        }
        command = [str(program), json.dumps(task)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def perf_test(load: Load) -> float:
    """The records/s that kafka-producer-perf-test reports."""
    properties = {
        "bootstrap.servers": load.bootstrap,
        "compression.type": load.codec,
        "batch.size": clients.BATCH_BYTES,
        "linger.ms": 20,
        "buffer.memory": 64 << 20,
    }
    with tempfile.TemporaryDirectory() as folder:
        payload = Path(folder, "values")
        payload.write_bytes(b"\n".join(load.values) + b"\n")
        command = [
            *(str(java()), "-Xmx512m", "-cp", os.pathsep.join(map(str, jars.classpath()))),
            *("org.apache.kafka.tools.ProducerPerformance", "--topic", load.topic, "--payload-file", str(payload)),
            *("--num-records", str(load.records), "--throughput", "-1"),
            *("--producer-props", *(f"{name}={value}" for name, value in properties.items())),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    rates: list[str] = re.findall(r"([\d.]+) records/sec", done.stdout)
    return float(rates[-1])  # of the whole run
