"""kohort beside an older commit of kohort: the CPU time of the same work, so that no change makes it slower unnoticed.

The older commit is cloned and compiled in out/versions. Both run in turn, each time in a new process, on one broker. A
run takes the least of some repetitions. Figures are the medians of all runs. CPU time is that of the whole process. For
Spark it is that of the JVM and of all Pythons under it. The commit is the last one before the layout of today, unless
`--old` names another one.

    python -m benchmarks versions --old HEAD~1 --runs 3 --only codec consume
"""

import argparse
import json
import statistics
import subprocess
import sys
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from operator import methodcaller
from pathlib import Path
from typing import NamedTuple

from benchmarks import members, spark
from benchmarks.consume import CODECS, SIZES, filled, running_broker, words
from benchmarks.environment import with_bytecode
from benchmarks.first_record import PROGRAMS, first_record
from benchmarks.report import OURS, Report
from kohort.testing.topics import create_topic

ROOT = Path(__file__).parent.parent
BEFORE_TODAYS_LAYOUT = "3be6e6d5"
CODEC_TIMES = 400
MEMBERS = (300, 1000)
STARTS, REPETITIONS = 5, 2  # of a client, and of a query of Spark, in each run
Figures = Iterator[tuple[str, float]]


class Checkout(NamedTuple):
    """A compiled commit of kohort and its name in the table."""

    client: str
    root: Path

    def work(self, *arguments: str) -> Figures:
        """Run `benchmarks/version_work.py` with this checkout."""
        command = [sys.executable, "-P", str(ROOT / "benchmarks" / "version_work.py"), *arguments]
        environment = with_bytecode(self.root)
        done = subprocess.run(command, cwd=self.root, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        yield from json.loads(done.stdout.splitlines()[-1]).items()


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m benchmarks versions")
    options.add_argument("--old", default=BEFORE_TODAYS_LAYOUT, help="the commit to compare with")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--only", nargs="+", choices=list(WORKS), default=list(WORKS))
    return options


def run(report: Report) -> None:
    commit = _git(ROOT, "rev-parse", "--short=8", report.options.old)
    both = (Checkout(OURS, ROOT), Checkout(f"{OURS} at {commit}", compiled(commit)))
    with running_broker() as bootstrap:
        for name in report.options.only:
            WORKS[name](report, both, bootstrap)


def compiled(commit: str) -> Path:
    """A clone of this repository at `commit`, with its extensions compiled."""
    folder = ROOT / "out" / "versions" / commit
    ready = folder / ".compiled"
    if not ready.exists():
        print(f"  {commit}: cloning and compiling", flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if not folder.exists():
            _git(ROOT, "clone", "--quiet", str(ROOT), str(folder))
        _git(folder, "checkout", "--quiet", commit)
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        subprocess.run(build, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ready.touch()
    return folder


def _git(folder: Path, *arguments: str) -> str:
    """The output of a command of git in a repository."""
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


def _alternate(report: Report, both: tuple[Checkout, ...], prefix: str, work: Callable[[Checkout], Figures]) -> None:
    """Add the medians of all runs. A pair of runs is in the other order than the one before."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for number in range(report.options.runs):
        for checkout in both if number % 2 else reversed(both):
            for name, cpu_s in work(checkout):
                found[name][checkout.client].append(cpu_s)
    for name, by_client in found.items():
        for checkout in both:
            report.add(f"{prefix}: {name}", checkout.client, statistics.median(by_client[checkout.client]), "s")


def _consume(report: Report, both: tuple[Checkout, ...], bootstrap: str) -> None:
    for size, count in SIZES.items():
        for codec in CODECS:
            topic = words(bootstrap, codec, count, size)
            arguments = ("consume", bootstrap, topic, str(count))
            _alternate(report, both, f"{count:,} x {size} B, {codec}", methodcaller("work", *arguments))


def _codec(report: Report, both: tuple[Checkout, ...], bootstrap: str) -> None:
    _alternate(report, both, "codec", methodcaller("work", "codec", str(CODEC_TIMES)))


def _members(report: Report, both: tuple[Checkout, ...], bootstrap: str) -> None:
    for size in MEMBERS:
        create_topic(bootstrap, members.topic_of(size), partitions=size, timeout_s=60.0)

        def work(one: Checkout, size: int = size) -> Figures:
            group = f"bench-versions-{uuid.uuid4().hex[:8]}"
            create_topic(bootstrap, group, partitions=size, timeout_s=60.0)  # older commits read a topic of this name
            return one.work("members", bootstrap, group, str(size))

        _alternate(report, both, f"{size} members", work)


def _first_record(report: Report, both: tuple[Checkout, ...], bootstrap: str) -> None:
    topic = filled(bootstrap, "none", records=4)

    def work(one: Checkout) -> Figures:
        environment = with_bytecode(one.root)
        first_record(PROGRAMS[OURS], bootstrap, topic, environment)
        starts = [first_record(PROGRAMS[OURS], bootstrap, topic, environment) for _ in range(STARTS)]
        yield "import + join + first record", min(cpu_s for _, cpu_s in starts)

    _alternate(report, both, "start", work)


def _spark(report: Report, both: tuple[Checkout, ...], bootstrap: str) -> None:
    with ExitStack() as stack:
        options = {"kafka.bootstrap.servers": bootstrap}
        sessions = {one.client: stack.enter_context(spark.session("kohort", options, root=one.root)) for one in both}
        for records, size in spark.SIZES:
            for codec in ("none", "lz4"):
                topic = filled(bootstrap, codec, records, size, spark.DISTINCT)
                for query in spark.QUERIES:
                    order = {"do": "read", "topic": topic, "query": query}

                    def work(one: Checkout, query: str = query, order: dict[str, str] = order) -> Figures:
                        least = min(sessions[one.client].send(order)["cpu_s"] for _ in range(REPETITIONS))
                        yield spark.QUERIES[query], least

                    for session in sessions.values():
                        session.send(order)  # the first one compiles
                    _alternate(report, both, f"Spark, {records:,} x {size} B, {codec}", work)


WORKS: dict[str, Callable[[Report, tuple[Checkout, ...], str], None]] = {
    "codec": _codec,
    "first_record": _first_record,
    "consume": _consume,
    "members": _members,
    "spark": _spark,
}
