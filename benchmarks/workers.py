"""`workers.run` with 50 workers and a handler that sleeps 20 ms: its rate, as a part of the ideal one.

The ideal rate is 50 handlers that sleep without a pause: 2,500 records/s. The clock runs from the first start of a
handler to the last end of one. Threads and tasks serve a share group, a classic group and one of KIP-848. Figures are
medians of runs in turns. The CPU time is that of the process.
"""

import argparse
import asyncio
import os
import statistics
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from benchmarks.report import OURS, Report
from kohort import Admin, AsyncConsumer, AsyncShareConsumer, Consumer, Producer, ShareConsumer, workers
from kohort.testing import RealBroker
from kohort.testing.real_broker import OPTIMIZING

CONCURRENCY, SLEEP_S = 50, 0.02
PARTITIONS, KEYS = 4, 1_000
KINDS: Mapping[str, dict[str, Any] | None] = {
    "a share group": None,
    "a classic group": {"protocol": "classic", "auto_offset_reset": "earliest"},
    "a group of KIP-848": {"protocol": "consumer", "auto_offset_reset": "earliest"},
}
"""Settings of the Consumer by kind of group; None is a ShareConsumer."""


class Clock:
    """Measures from the first start of a handler to the last end of one, and sets `ended` then."""

    def __init__(self, records: int, ended: threading.Event | asyncio.Event) -> None:
        self._records, self._ended = records, ended
        self._lock = threading.Lock()
        self._began: tuple[float, float] | None = None
        self._took_s = self._cpu_s = 0.0
        self._done = 0

    def start(self) -> None:
        with self._lock:
            if self._began is None:
                self._began = time.perf_counter(), time.process_time()

    def end(self) -> None:
        with self._lock:
            self._done += 1
            if self._done == self._records:
                assert self._began is not None
                wall, cpu = self._began
                self._took_s, self._cpu_s = time.perf_counter() - wall, time.process_time() - cpu
                self._ended.set()

    @property
    def figures(self) -> tuple[float, float]:
        """The percentage of the ideal rate, and us of CPU a record."""
        assert self._done == self._records
        ideal_s = self._records * SLEEP_S / CONCURRENCY
        return 100 * ideal_s / self._took_s, self._cpu_s / self._records * 1e6


def with_threads(bootstrap: str, topic: str, records: int, settings: dict[str, Any] | None) -> tuple[float, float]:
    stop = threading.Event()
    clock = Clock(records, stop)

    def handler(_record: object) -> None:
        clock.start()
        time.sleep(SLEEP_S)
        clock.end()

    with (
        ShareConsumer(bootstrap, group=topic) if settings is None else Consumer(bootstrap, group=topic, **settings)
    ) as consumer:
        consumer.subscribe([topic])
        workers.run(consumer, handler, concurrency=CONCURRENCY, stop=stop)
    return clock.figures


def with_tasks(bootstrap: str, topic: str, records: int, settings: dict[str, Any] | None) -> tuple[float, float]:
    async def main() -> tuple[float, float]:
        stop = asyncio.Event()
        clock = Clock(records, stop)

        async def handler(_record: object) -> None:
            clock.start()
            await asyncio.sleep(SLEEP_S)
            clock.end()

        async with (
            AsyncShareConsumer(bootstrap, group=topic)
            if settings is None
            else AsyncConsumer(bootstrap, group=topic, **settings)
        ) as consumer:
            consumer.subscribe([topic])
            await workers.run_async(consumer, handler, concurrency=CONCURRENCY, stop=stop)
        return clock.figures

    return asyncio.run(main())


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m benchmarks workers")
    found.add_argument("--records", type=int, default=20_000)
    found.add_argument("--runs", type=int, default=5)
    return found


def run(report: Report) -> None:
    given = report.options
    works = {(kind, how.__name__): how for kind in KINDS for how in (with_threads, with_tasks)}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {work: [] for work in works}
    with RealBroker(jvm_options=OPTIMIZING) as broker, Admin(broker.bootstrap) as admin:
        for _ in range(given.runs):
            for (kind, name), how in works.items():
                topic = f"workers-{uuid.uuid4().hex[:8]}"
                admin.create_topic(topic, partitions=PARTITIONS)
                admin.set_group_configs(topic, {"share.auto.offset.reset": "earliest"})
                with Producer(broker.bootstrap) as producer:
                    for number in range(given.records):
                        producer.send(topic, os.urandom(8), b"%d" % (number % KEYS))
                found[kind, name].append(how(broker.bootstrap, topic, given.records, KINDS[kind]))
    for (kind, name), runs in found.items():
        work = f"{kind}, {name.replace('_', ' ')}"
        note = f"median of {given.runs}, {CONCURRENCY} workers, {SLEEP_S * 1000:.0f} ms"
        report.add(f"{work}: part of the ideal rate", OURS, statistics.median(part for part, _ in runs), "%", note)
        report.add(f"{work}: CPU per record", OURS, statistics.median(cpu for _, cpu in runs), "us", note)
