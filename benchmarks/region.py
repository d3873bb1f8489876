"""Counting by key in a consistent region: with a handler of records, with one of batches, and beside others.

A bare loop of our consumer with a dict has no state that survives. quixstreams counts in RocksDB with a changelog
topic. It is measured if `--quix` names a Python that has it. Runs alternate, each in a process of its own. The time is
from the first record to the checkpoint or commit with all of them. The median counts.
"""

import argparse
import json
import statistics
import subprocess
import sys
import uuid
from pathlib import Path
from typing import NamedTuple

from benchmarks.consume import running_broker
from benchmarks.report import OURS, Report

PARTITIONS = 3
RUNS = 5
RECORDS, SLOW_RECORDS = 6_000_000, 300_000
KEYS = (1_000, 1_000_000)
HERE = Path(__file__).parent


class Way(NamedTuple):
    """A way to count. `slow`: it gets fewer records, since its rate does not depend on their number."""

    name: str
    client: str
    script: str
    kind: str
    slow: bool = False


OWN = (
    Way("handler of records", OURS, "region_process.py", "rows"),
    Way("handler of batches", OURS, "region_process.py", "batches"),
    Way("handler of records", "a bare loop", "region_process.py", "loop"),
)
QUIX = (
    Way("handler of records", "quixstreams at-least-once", "region_quix.py", "at-least-once", slow=True),
    Way("handler of records", "quixstreams exactly-once", "region_quix.py", "exactly-once", slow=True),
)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks region")
    made.add_argument("--runs", type=int, default=RUNS)
    made.add_argument("--records", type=int, default=RECORDS)
    made.add_argument("--keys", type=int, nargs="*", default=KEYS)
    made.add_argument("--quix", help="a Python with quixstreams")
    return made


def run(report: Report) -> None:
    given = report.options
    ways = (*OWN, *(QUIX if given.quix else ()))
    with running_broker() as bootstrap:
        for keys in given.keys:
            wanted = {False: given.records, True: max(SLOW_RECORDS, keys)}
            records = {slow: count - count % PARTITIONS for slow, count in wanted.items()}
            topics = {slow: counted(bootstrap, count, keys) for slow, count in records.items()}
            rates: dict[Way, list[float]] = {way: [] for way in ways}
            for _ in range(given.runs):
                for way, found in rates.items():
                    took_s, cpu_s = _timed(way, given.quix, bootstrap, topics[way.slow], records[way.slow])
                    found.append(records[way.slow] / took_s)
                    print(f"{keys} keys, {way.kind}: {found[-1]:,.0f} records/s, {cpu_s:.1f} s CPU", flush=True)
            for way, found in rates.items():
                report.add(f"count by key, {keys} keys, {way.name}", way.client, statistics.median(found), "records/s")


def _timed(way: Way, quix: str | None, bootstrap: str, topic: str, records: int) -> tuple[float, float]:
    python = quix if way in QUIX and quix else sys.executable
    command = [python, str(HERE / way.script), way.kind, bootstrap, topic, str(records)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return found["took_s"], found["cpu_s"]


def counted(bootstrap: str, records: int, keys: int) -> str:
    """A topic with so many records of 86 bytes. Each key is in one partition, and keys take turns."""
    import pyarrow as pa

    from kohort import Producer
    from kohort.testing.topics import create_topic

    topic = f"count-{keys}-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    each = records // PARTITIONS
    with Producer(bootstrap, compression="none") as producer:
        for partition in range(PARTITIONS):
            for at in range(0, each, 20_000):
                numbers = range(at, min(at + 20_000, each))
                names = pa.array(
                    [b"key-%07d" % (one % (keys // PARTITIONS) * PARTITIONS + partition) for one in numbers],
                    pa.binary(),
                )
                values = pa.array([b"v" * 75] * len(numbers), pa.binary())
                producer.send_arrow(topic, pa.table({"key": names, "value": values}), partition=partition)
    return topic
