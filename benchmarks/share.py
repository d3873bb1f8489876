"""Records of a share group to columns, beside Java's KafkaShareConsumer: rate, and CPU time of the client.

Both accept implicitly, in processes of their own, which take turns. Each run has a new group, which reads a topic of 4
partitions from its start. A run is measured from the first records on. Medians are kept.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from benchmarks.consume import PARTITIONS, words
from benchmarks.report import OURS, Report
from kohort import Admin, ShareConsumer
from kohort.testing import RealBroker, jars
from kohort.testing.jdk import java
from kohort.testing.real_broker import OPTIMIZING

JAVA = "Java's KafkaShareConsumer"
VALUE_BYTES = 100


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m benchmarks share")
    found.add_argument("--records", type=int, default=1_000_000)
    found.add_argument("--runs", type=int, default=5)
    found.add_argument("--max-poll-records", type=int, default=2000)
    found.add_argument("--locks", type=int, default=4000, help="share.partition.max.record.locks, up to 4,000")
    return found


def run(report: Report) -> None:
    given = report.options
    with tempfile.TemporaryDirectory() as scratch, RealBroker(jvm_options=OPTIMIZING) as broker:
        commands = {
            OURS: [sys.executable, "-m", "benchmarks.share"],
            JAVA: _java_command(Path(scratch)),
        }
        topic = words(broker.bootstrap, "none", given.records, VALUE_BYTES)
        found: dict[str, list[tuple[float, float]]] = {OURS: [], JAVA: []}
        for _ in range(given.runs):
            for who, command in commands.items():
                group = f"share-{uuid.uuid4().hex[:8]}"
                with Admin(broker.bootstrap) as admin:
                    admin.set_group_configs(
                        group,
                        {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": str(given.locks)},
                    )
                most = int(given.records * 0.98)  # without the first records
                arguments = [broker.bootstrap, group, topic, str(most), str(given.max_poll_records)]
                done = subprocess.run([*command, *arguments], check=True, text=True, stdout=subprocess.PIPE)
                read, seconds, cpu = map(float, done.stdout.split())
                found[who].append((read / seconds, cpu / read * 1e6))
        for who, runs in found.items():
            note = f"median of {given.runs}, max.poll.records {given.max_poll_records}"
            report.add("share group to columns", who, statistics.median(rate for rate, _cpu in runs), "records/s", note)
            report.add("share group, CPU per record", who, statistics.median(cpu for _rate, cpu in runs), "us", note)


def _java_command(classes: Path) -> list[str]:
    classpath = os.pathsep.join([str(classes), *map(str, jars.clients())])
    source = Path(__file__).with_name("ShareBench.java")
    subprocess.run([str(java().with_name("javac")), "-cp", classpath, "-d", str(classes), str(source)], check=True)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [str(java()), quiet, "-cp", classpath, source.stem]


def read_columns(bootstrap: str, group: str, topic: str, count: int, max_poll_records: int) -> tuple[int, float, float]:
    """Records, seconds and CPU seconds of this process, from the first records on."""
    read = value_bytes = 0
    began = cpu = 0.0
    with ShareConsumer(bootstrap, group=group, max_poll_records=max_poll_records) as consumer:
        consumer.subscribe([topic])
        while read < count:
            batches = consumer.poll(1.0)
            if not began and batches:
                began, cpu = time.perf_counter(), time.process_time()
                continue  # the first records begin the measurement
            for batch in batches:
                read += len(batch)
                value_bytes += batch.columns.values.nbytes
        took = time.perf_counter() - began, time.process_time() - cpu
    assert value_bytes >= read
    return read, *took


if __name__ == "__main__":
    assert PARTITIONS == 4
    print(*read_columns(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
