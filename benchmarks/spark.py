"""Reading Kafka with Spark: kohort and Spark's own connector, in alternating sessions.

The topics have two million records of 100 bytes and 400,000 of 1,000 bytes, uncompressed and lz4. Both sessions use
local[2] and the same PySpark. Spark's connector runs once with its defaults and once with larger polls and fetches.
kohort runs with its defaults. The floor is the cost of the same Arrow batches without Kafka (`spark_floor.py`).
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.consume import filled, running_broker
from benchmarks.environment import with_bytecode
from benchmarks.report import OURS, Report
from benchmarks.spark_floor import keep
from kohort.testing import jars
from tests.spark_jvm.venvs import ROOT, python_with

PYSPARK = "4.0.0"
THEIRS, TUNED = "Spark's connector", "Spark's connector, tuned"
FLOOR = "floor: the same batches without Kafka"
TUNING = {"kafka.max.poll.records": "20000", "kafka.max.partition.fetch.bytes": str(8 << 20)}
SESSIONS = {OURS: ("kohort", {}), THEIRS: ("kafka", {}), TUNED: ("kafka", TUNING), FLOOR: ("floor", {})}
SIZES = ((2_000_000, 100), (400_000, 1000))
QUERIES = {
    "count": "count()",
    "size": "sum(length(value))",
    "group": "group by key",
    "parquet": "write to Parquet",
}
DISTINCT = 1009  # values, so many that a batch holds none twice: lz4 leaves half of each
TIMES = 3


def run(report: Report) -> None:
    with running_sessions(SESSIONS) as (bootstrap, folder, sessions):
        for records, size in SIZES:
            for codec in ("none", "lz4"):
                topic = filled(bootstrap, codec, records, size, DISTINCT)
                keep(bootstrap, topic, Path(folder))
                named = f"{records:,} x {size} B, {codec}"
                for query, title in QUERIES.items():
                    right = {"count": records, "size": records * size, "group": records, "parquet": 1}[query]
                    order = {"do": "read", "topic": topic, "query": query}
                    compare(report, f"{named}: {title}", sessions, order, records, right, TIMES)


@contextmanager
def running_sessions(
    wanted: Mapping[str, tuple[str, Mapping[str, str]]],
) -> Iterator[tuple[str, str, dict[str, "Child"]]]:
    """A broker's address, a folder for the floor's batches, and a session for each source with its options."""
    with ExitStack() as stack:
        bootstrap = stack.enter_context(running_broker())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        connect, kept = {"kafka.bootstrap.servers": bootstrap}, {"folder": folder}
        yield (
            bootstrap,
            folder,
            {
                client: stack.enter_context(session(source, {**(kept if source == "floor" else connect), **options}))
                for client, (source, options) in wanted.items()
            },
        )


class Child:
    """A session in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def send(self, order: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The response to a command, or the first line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if order is not None:
            print(json.dumps(dict(order)), file=self._process.stdin, flush=True)
        for line in self._process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise RuntimeError(f"the session ended with {self._process.wait()} at {order}")


@contextmanager
def session(source: str, options: dict[str, str], root: Path = ROOT) -> Iterator[Child]:
    """A session that reads with these options, with kohort of `root`. The connector's jars are fetched if need be."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "options.json")
        given.write_text(json.dumps(options))
        with_jars = ",".join(map(str, jars.spark_connector(PYSPARK))) if source == "kafka" else ""
        command = [str(python_with(PYSPARK)), "-m", "benchmarks.spark_session", source, str(given), with_jars]
        # Spark forks a Python for each step of a query; without bytecode files each would compile kohort again.
        environment = with_bytecode(root)
        with (
            Path(folder, "stderr").open("w+") as log,
            subprocess.Popen(
                command, cwd=root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            child = Child(process)
            try:
                child.send()
                yield child
            except RuntimeError:
                log.seek(0)
                print(log.read()[-4000:], file=sys.stderr)
                raise
            finally:
                assert process.stdin is not None
                process.stdin.close()
                try:
                    process.wait(60)
                finally:
                    process.kill()


def compare(
    report: Report,
    work: str,
    sessions: Mapping[str, Child],
    order: Mapping[str, str],
    records: int,
    right: int,
    times: int,
) -> None:
    """Each in turn, `times` times after one that warms up. The medians are kept."""
    took: dict[str, list[tuple[float, float]]] = {client: [] for client in sessions}
    for turn in range(times + 1):
        for client, one in sessions.items():
            found = one.send(order)
            if found["result"] != right:
                raise AssertionError(f"{client} found {found['result']} and not {right}: {work}")
            if turn:
                took[client].append((found["wall_s"], found["cpu_s"]))
    for client, both in took.items():
        wall, cpu = (statistics.median(column) for column in zip(*both, strict=True))
        report.add(work, client, records / wall, "records/s")
        report.add(f"{work}, per CPU second", client, records / cpu, "records/s")
