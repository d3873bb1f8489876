"""Reading of a topic of gigabytes end to end: resident memory stays flat, below the byte budget and 100 MB.

    python -m benchmarks.flat_memory --bytes 5e9

kohort's producer writes the topic without compression, on a new broker (or that of KOHORT_BOOTSTRAP; the topic is then
deleted). A fresh process reads it as columns and records its resident memory. The result is results/flat_memory.json.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from benchmarks.consume import running_broker
from benchmarks.report import OURS, Report

BYTES = 5e9
PARTITIONS = 4
VALUE_BYTES = 1_000
BUDGET_MB = 64  # the default of `max_buffered_bytes`
ALLOWED_MB = 100  # beside the budget: Python, the codecs, and what the caller holds
SAMPLES = 200
MB = 1_000_000


def fill(bootstrap: str, size: float) -> tuple[str, int]:
    """A topic of so many bytes and how many records it has."""
    import pyarrow as pa

    from kohort import Producer
    from kohort.testing.topics import create_topic

    topic = f"flat-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    each = 20_000
    values = pa.array([os.urandom(VALUE_BYTES // 2).hex().encode() for _ in range(each)], pa.binary())
    table = pa.table({"value": values})
    rounds = max(int(size / VALUE_BYTES / each), 1)
    with Producer(bootstrap, batch_bytes=1 << 19) as producer:
        for number in range(rounds):
            producer.send_arrow(topic, table, partition=number % PARTITIONS)
            if number % max(rounds // 10, 1) == 0:
                print(f"  written: {number * each * VALUE_BYTES / 1e9:.1f} GB", flush=True)
    return topic, rounds * each


def read(bootstrap: str, topic: str, count: int) -> dict[str, Any]:
    """Read it all in this process; how it went."""
    from kohort import Consumer, TopicPartition

    got = value_bytes = 0
    resident: list[float] = []
    start, cpu = time.perf_counter(), time.process_time()
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(TopicPartition(topic, number) for number in range(PARTITIONS))
        for columns in consumer:
            got += len(columns)
            value_bytes += columns.values.nbytes
            if got >= count * len(resident) / SAMPLES:
                resident.append(_resident_mb())
            if got >= count:
                break
    return {
        "records": got,
        "gigabytes": value_bytes / 1e9,
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "resident_mb": resident,
        "peak_mb": _peak_mb(),
    }


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MB


def _peak_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / MB
    raise AssertionError("no VmHWM here")


def measure(report: Report, size: float) -> bool:
    """True if memory stayed below the budget and what is allowed beside it."""
    with running_broker() as bootstrap:
        topic, count = fill(bootstrap, size)
        command = [sys.executable, "-m", "benchmarks.flat_memory", "--read", bootstrap, topic, str(count)]
        out = subprocess.run(command, capture_output=True, text=True, check=True, timeout=3600).stdout
        reported = json.loads(out.splitlines()[-1])
        if os.environ.get("KOHORT_BOOTSTRAP"):
            from confluent_kafka.admin import AdminClient

            AdminClient({"bootstrap.servers": bootstrap}).delete_topics([topic])[topic].result()
    resident = reported["resident_mb"]
    half = len(resident) // 2
    growth = max(resident[half:]) - max(resident[:half])
    work = f"read {reported['gigabytes']:.2f} GB end to end"
    report.add(
        f"{work}: peak resident memory", OURS, reported["peak_mb"], "MB", f"budget {BUDGET_MB} + {ALLOWED_MB} MB"
    )
    report.add(f"{work}: peak of the second half over that of the first", OURS, growth, "MB")
    report.add(f"{work}: wall", OURS, reported["seconds"], "s")
    report.add(f"{work}: CPU", OURS, reported["cpu_seconds"], "s")
    return bool(reported["peak_mb"] < BUDGET_MB * 1.048576 + ALLOWED_MB)


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--bytes", type=float, default=BYTES)
    options.add_argument("--read", nargs=3, metavar=("BOOTSTRAP", "TOPIC", "COUNT"), help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.read:
        bootstrap, topic, count = chosen.read
        print(json.dumps(read(bootstrap, topic, int(count))))
        return 0
    report = Report("flat_memory", f"python -m benchmarks.flat_memory --bytes {chosen.bytes:g}")
    flat = measure(report, chosen.bytes)
    print(f"{'flat' if flat else 'NOT FLAT'}; kept as {report.save().relative_to(Path.cwd())}")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
