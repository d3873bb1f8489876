"""Reading Kafka with Spark: kohort and Spark's own connector, in alternating sessions.

The topics have two million records of 100 bytes and 400,000 of 1,000 bytes, uncompressed and lz4. Both sessions use
local[2] and the same PySpark. Spark's connector runs once with its defaults and once with larger polls and fetches.
kohort runs with its defaults. The floor is the cost of the same Arrow batches without Kafka (`spark_floor.py`).
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
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
WARM_UPS = 3  # during the first ones the JVM's compilers use a core


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
    wanted: Mapping[str, tuple[str, Mapping[str, str]]], version: str = PYSPARK, spark_home: Path | None = None
) -> Iterator[tuple[str, str, dict[str, "Child"]]]:
    """A broker's address, a folder for the floor's batches, and a session for each source with its options."""
    with ExitStack() as stack:
        bootstrap = stack.enter_context(running_broker())
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        sessions = {
            client: stack.enter_context(
                session(source, {**connecting(source, bootstrap, folder), **options}, version, spark_home=spark_home)
            )
            for client, (source, options) in wanted.items()
        }
        yield bootstrap, folder, sessions


def connecting(source: str, bootstrap: str, folder: str) -> dict[str, str]:
    return {"folder": folder} if source == "floor" else {"kafka.bootstrap.servers": bootstrap}


@contextmanager
def precompiled(version: str) -> Iterator[Path]:
    """A Spark installation of links, whose Python archives have bytecode."""
    python = python_with(version)
    show = "import pyspark; print(pyspark.__path__[0])"
    installed = Path(subprocess.run([python, "-c", show], check=True, capture_output=True, text=True).stdout.strip())
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "spark")
        (home / "python" / "lib").mkdir(parents=True)
        for of in (Path(), Path("python"), Path("python", "lib")):
            for path in (installed / of).iterdir():
                if not (home / of / path.name).exists():
                    (home / of / path.name).symlink_to(path)
        precompile = [str(python), "-m", "kohort.spark.precompile", str(home)]
        subprocess.run(precompile, check=True, env=with_bytecode(ROOT), stdout=subprocess.DEVNULL)
        yield home


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
def session(
    source: str, options: dict[str, str], version: str = PYSPARK, *, root: Path = ROOT, spark_home: Path | None = None
) -> Iterator[Child]:
    """A session of a version of PySpark that reads with these options, with kohort of `root`.

    The connector's jars are fetched if need be. `spark_home`: the installation, if it is not that of the venv.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "options.json")
        given.write_text(json.dumps(options))
        with_jars = ",".join(map(str, jars.spark_connector(version))) if source == "kafka" else ""
        command = [str(python_with(version)), "-m", "benchmarks.spark_session", source, str(given), with_jars]
        # Spark forks a Python for each step of a query; without bytecode files each would compile kohort again.
        environment = with_bytecode(root) | ({} if spark_home is None else {"SPARK_HOME": str(spark_home)})
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
    """Add a row for each session, of work on so many records with the result `right`."""
    in_turn(sessions, order, right, WARM_UPS)
    add_rates(report, work, in_turn(sessions, order, right, times), records)


def in_turn(
    sessions: Mapping[str, Child], order: Mapping[str, str], right: int, times: int
) -> dict[str, tuple[float, float]]:
    """The median wall and CPU time in s of each session, in turn."""
    took: dict[str, list[tuple[float, float]]] = {client: [] for client in sessions}
    for _ in range(times):
        for client, one in sessions.items():
            found = one.send(order)
            if found["result"] != right:
                raise AssertionError(f"{client} found {found['result']} and not {right}: {order}")
            took[client].append((found["wall_s"], found["cpu_s"]))
    return {client: (median(wall for wall, _ in both), median(cpu for _, cpu in both)) for client, both in took.items()}


def add_rates(report: Report, work: str, took: Mapping[str, tuple[float, float]], records: int) -> None:
    for client, (wall, cpu) in took.items():
        report.add(work, client, records / wall, "records/s")
        report.add(f"{work}, per CPU second", client, records / cpu, "records/s")
