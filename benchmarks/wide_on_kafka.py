"""Width on a real broker: up to 10,000 partitions, the first record of each, and records that come to all of them.

A topic has a record of 100 bytes in each of its partitions. A member alone in its group reads ten such topics. Then a
producer in another process sends records at a rate, to all partitions in turns. At 1,000 records/s over 10,000
partitions each has one every 10 s. The member polls with a time-out of 0.5 s. Medians of five alternating runs, each in
a fresh process. The slope is as in `wide`.
"""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from benchmarks.members import resident_mb
from benchmarks.report import OURS, Report
from benchmarks.wide import slope
from benchmarks.wide_broker import paced

TOPICS = 10
SIZES = (10, 100, 1_000, 10_000)  # partitions in all
WIDEST = max(SIZES)
VALUE = b"v" * 100
RUNS, FED_S, LOW_PER_S, HIGH_PER_S, POLL_S = 5, 6.0, 100, 1_000, 0.5
PATIENCE_S = 120.0
START = (
    ("from the start to the assignment", "assigned_s", "s"),
    ("from the assignment to a record of each partition", "read_s", "s"),
    ("the longest poll until then", "longest_poll_s", "s"),
    ("memory then", "memory_mb", "MB"),
)
FED = (
    ("CPU per record", "record_us", "us"),
    ("CPU", "core_percent", "% of a core"),
    ("the longest poll", "longest_poll_s", "s"),
)
Figures = dict[str, float]


def run(report: Report) -> None:
    from kohort import Producer
    from kohort.testing import RealBroker
    from kohort.testing.real_broker import OPTIMIZING
    from kohort.testing.topics import create_topic

    found: dict[tuple[str, int], list[list[Figures]]] = {}
    small_index = {"log.index.size.max.bytes": 12_288}  # of each partition, on the disk
    kafka = RealBroker(heap_mb=1_536, properties=small_index, jvm_options=OPTIMIZING, start_timeout_s=PATIENCE_S)
    with kafka as broker, Producer(broker.bootstrap) as producer:
        for size in SIZES:
            for name in names(size):
                create_topic(broker.bootstrap, name, partitions=size // TOPICS, timeout_s=PATIENCE_S)
            for number in range(size):
                _send(producer, size, number)
        producer.flush(PATIENCE_S)
        for size, client in [(size, client) for size in SIZES for client in CLIENTS] * RUNS:
            rates = (LOW_PER_S, HIGH_PER_S) if size == WIDEST else (LOW_PER_S,)
            found.setdefault((client, size), []).append(_measured(client, broker.bootstrap, producer, size, rates))
    for client in CLIENTS:
        start, low, high = ([one[part] for one in found[client, WIDEST]] for part in range(3))
        _add(report, client, f"{WIDEST:,} partitions", START, start)
        _add(report, client, f"{HIGH_PER_S:,} records/s, {WIDEST:,} partitions", FED, high)
        points = {size: [one[1] for one in found[client, size]] for size in SIZES} | {WIDEST: low}
        for size, figures in points.items():
            _add(report, client, f"{LOW_PER_S} records/s, {size:,} partitions", FED[:1], figures)
        slopes = slope((size, median(one["record_us"] for one in figures)) for size, figures in points.items())
        report.add(f"CPU per record, slope{'' if client == OURS else ' of ' + client}", client, slopes, "slope")


def names(size: int) -> list[str]:
    """Topics that have `size` partitions in all."""
    return [f"wide-{size}-{number}" for number in range(TOPICS)]


def _add(
    report: Report, client: str, work: str, measures: Sequence[tuple[str, str, str]], runs: Sequence[Figures]
) -> None:
    for name, key, unit in measures:
        report.add(f"{work}: {name}", client, median(one[key] for one in runs), unit)


def _send(producer: Any, size: int, number: int) -> None:
    producer.send(names(size)[number % TOPICS], VALUE, partition=number // TOPICS % (size // TOPICS))


def _measured(client: str, bootstrap: str, producer: Any, size: int, rates: Sequence[int]) -> list[Figures]:
    """The figures of the start, and of each rate."""
    command = [sys.executable, "-m", "benchmarks.wide_on_kafka", client, bootstrap, str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        figures = [json.loads(reader.stdout.readline())]
        for rate in rates:
            print(file=reader.stdin, flush=True)
            for number in paced(rate, FED_S):
                _send(producer, size, number)
            figures.append(json.loads(reader.stdout.readline()))
    return figures


class Kohort:
    """A member. `assigned_at`: the time (monotonic s) of its assignment."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        from kohort import Assigned, Consumer, RebalanceHooks

        self.assigned_at = 0.0
        outer = self

        class Clocked(RebalanceHooks):
            def on_assigned(self, event: Assigned) -> None:
                outer.assigned_at = time.monotonic()

        self.consumer = Consumer(bootstrap, group=uuid.uuid4().hex, auto_offset_reset="earliest")
        self.consumer.subscribe(topics, hooks=Clocked())

    def poll(self) -> list[tuple[str, int]]:
        """The partition of each record."""
        slices = self.consumer.poll(POLL_S)
        return [(columns.topic, columns.partition) for columns in slices for _record in range(len(columns))]


class Confluent:
    """As `Kohort`."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        from confluent_kafka import Consumer

        self.assigned_at = 0.0
        group = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
        self.consumer = Consumer({"bootstrap.servers": bootstrap, **group})
        self.consumer.subscribe(topics, on_assign=self._on_assign)

    def _on_assign(self, _consumer: Any, _partitions: Any) -> None:
        self.assigned_at = time.monotonic()

    def poll(self) -> list[tuple[str, int]]:
        """The partition of each record."""
        found = self.consumer.consume(500, 0.0) or [self.consumer.poll(POLL_S)]
        return [(one.topic(), one.partition()) for one in found if one is not None and not one.error()]


CLIENTS: dict[str, Callable[[str, list[str]], Any]] = {OURS: Kohort, "confluent-kafka": Confluent}


class Polls:
    """Counts records, notes their partitions, and has the duration of the longest poll (s)."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.partitions: set[tuple[str, int]] = set()
        self.records = 0
        self.longest_s = 0.0

    def poll(self) -> None:
        began = time.monotonic()
        found = self._client.poll()
        self.longest_s = max(self.longest_s, time.monotonic() - began)
        self.partitions.update(found)
        self.records += len(found)


def main(name: str, bootstrap: str, size: int) -> None:
    began, before_mb = time.monotonic(), resident_mb()
    client = CLIENTS[name](bootstrap, names(size))
    first = Polls(client)
    while len(first.partitions) < size:
        if time.monotonic() > began + PATIENCE_S:
            raise TimeoutError(f"{name} has read {len(first.partitions)} of {size} partitions")
        first.poll()
    figures = {"assigned_s": client.assigned_at - began, "read_s": time.monotonic() - client.assigned_at}
    print(json.dumps(figures | {"longest_poll_s": first.longest_s, "memory_mb": resident_mb() - before_mb}), flush=True)
    for _line in sys.stdin:
        began, cpu, fed = time.monotonic(), time.process_time(), Polls(client)
        while time.monotonic() < began + FED_S:
            fed.poll()
        cpu = time.process_time() - cpu
        figures = {"record_us": cpu * 1e6 / fed.records, "core_percent": cpu / FED_S * 100}
        print(json.dumps(figures | {"longest_poll_s": fed.longest_s}), flush=True)
    os._exit(0)  # leaving is not measured


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
