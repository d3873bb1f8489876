"""Assignors of kohort and of Java: a thousand members, a million partitions, and the case that Java searches for.

Each case runs in a separate process, for kohort and for Java. The result is the best of several runs. "plan" is the
assignor's call on a parsed group. "bytes to bytes" is the work of a leader: parse subscriptions, plan, encode
assignments. "peak" is the peak memory of the process at the end of the plans, with interpreter or JVM.

`python -m benchmarks.assign cooperative-sticky 1000 1000000 1000 alike gone 3` runs one case.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import OURS, RESULTS, Report, best_of
from kohort.assignors import Assignor, GroupView, Plan, get
from kohort.common.topic_partition import grouped
from kohort.protocol.membership import Subscription, TopicPartitions, build_subscription, parse_subscription
from kohort.testing import jars
from kohort.testing.jdk import java

JAVA = "Kafka's Java"
SOURCE = Path(__file__).with_name("JavaAssign.java")
FOUR = ("range", "roundrobin", "sticky", "cooperative-sticky")
GROWTH = (50_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000)


class Case(NamedTuple):
    """`shape` "half": every other member subscribes to half of the topics. `past` "gone": a tenth of them just left."""

    assignor: str
    members: int
    partitions: int
    topics: int
    shape: str = "alike"
    past: str = "fresh"
    runs: int = 2

    def __str__(self) -> str:
        shape = ", half on half" if self.shape == "half" else ""
        return f"{self.assignor} {self.members:,} x {self.partitions:,} of {self.topics:,} topics {self.past}{shape}"

    @property
    def arguments(self) -> list[str]:
        return [str(part) for part in self]


class Measured(NamedTuple):
    """`plan_s` and `bytes_s` in seconds, `peak_mb` of the process."""

    plan_s: float
    bytes_s: float
    peak_mb: float


def run(report: Report) -> None:
    million = [Case(name, 1_000, 1_000_000, 1_000, past=past) for name in FOUR for past in ("fresh", "gone")]
    # Half the members on half the topics; the more topics, the longer Java searches.
    search = [Case("cooperative-sticky", 100, 10_000, topics, "half") for topics in (100, 1_000, 10_000)]
    for case in (*million, *search):
        for client, measured in ((OURS, ours_alone(case)), (JAVA, java_alone(case))):
            report.add(f"{case}: plan", client, measured.plan_s, "s")
            report.add(f"{case}: bytes to bytes", client, measured.bytes_s, "s")
            report.add(f"{case}: peak", client, measured.peak_mb, "MB")
    grown = [
        (shape, past, size, plan_seconds(Case("cooperative-sticky", 1_000, size, 100, shape, past, runs=7)))
        for shape in ("alike", "half")
        for past in ("fresh", "gone")
        for size in GROWTH
    ]
    for shape, past, size, seconds in grown:
        report.add(
            f"growth, cooperative-sticky {shape} {past} {size:,}", OURS, seconds * 1e6 / size, "us", "a partition"
        )
    draw_growth(grown, RESULTS / "assign-growth.png")


def ours_alone(case: Case) -> Measured:
    command = [sys.executable, "-m", "benchmarks.assign", *case.arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]).stdout
    return Measured(**json.loads(said))


def java_alone(case: Case) -> Measured:
    classpath = os.pathsep.join(map(str, jars.clients()))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    command = [str(java()), quiet, "-cp", classpath, str(SOURCE), *case.arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    reported = dict(line.split() for line in said.splitlines())
    return Measured(float(reported["seconds"]), float(reported["bytes"]), float(reported["peak"]))


def measure(case: Case) -> Measured:
    """The case in this process."""
    assignor, partitions, said = joined(case)
    group = seen(partitions, said)
    plan_s = best_of(lambda: assignor.assign(unworked(group)), times=case.runs)
    peak_mb = peak_megabytes()
    bytes_s = best_of(lambda: encoded(assignor.assign(seen(partitions, said))), times=case.runs)
    return Measured(plan_s, bytes_s, peak_mb)


def unworked(group: GroupView) -> GroupView:
    """A copy, which has not worked out anything before."""
    return GroupView(group.topics, group.topic_offsets, group.members)


def plan_seconds(case: Case) -> float:
    """The plan alone."""
    assignor, partitions, said = joined(case)
    group = seen(partitions, said)
    return best_of(lambda: assignor.assign(unworked(group)), times=case.runs)


def joined(case: Case) -> tuple[Assignor, dict[str, int], dict[str, bytes]]:
    """The assignor, the topics, and each member's metadata."""
    assignor = get(case.assignor)
    topics = [f"topic-{number}" for number in range(case.topics)]
    partitions = dict.fromkeys(topics, case.partitions // case.topics)
    wanted = {
        f"m{number}": topics[: case.topics // 2] if case.shape == "half" and number % 2 == 0 else topics
        for number in range(case.members)
    }
    said = {member: written(assignor, topics, []) for member, topics in wanted.items()}
    if case.past == "gone":
        before = assignor.assign(seen(partitions, said))
        rest = [member for number, member in enumerate(wanted) if number % 10]
        said = {member: written(assignor, wanted[member], before[member]) for member in rest}
    return assignor, partitions, said


def written(assignor: Assignor, topics: list[str], owned: object) -> bytes:
    """A member's subscription as it joins."""
    reported = assignor.subscription(topics, owned, 1)  # type: ignore[arg-type]
    rows = grouped(reported.owned_partitions)
    claimed = tuple(TopicPartitions(topic=topic, partitions=tuple(row)) for topic, row in rows.items())
    return build_subscription(
        Subscription(topics=reported.topics, user_data=reported.user_data, owned_partitions=claimed, generation_id=1)
    )


def seen(partitions: Mapping[str, int], said: Mapping[str, bytes]) -> GroupView:
    """The group as its leader reads it."""
    members = {}
    for member, data in said.items():
        reported = parse_subscription(data)
        members[member] = {
            "topics": reported.topics,
            "owned": {row.topic: row.partitions for row in reported.owned_partitions},
            "generation": reported.generation_id,
            "user_data": reported.user_data,
        }
    return GroupView.of(partitions, members)


def encoded(plan: Plan) -> list[bytes]:
    return [plan.encode(member) for member in plan]


def peak_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def draw_growth(grown: list[tuple[str, str, int, float]], path: Path) -> None:
    """Milliseconds by partitions, both axes plain: linear growth is a straight line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 5))
    for shape in ("alike", "half"):
        for past in ("fresh", "gone"):
            rows = [(size, seconds * 1e3) for kind, when, size, seconds in grown if (kind, when) == (shape, past)]
            axes.plot(*zip(*rows, strict=True), marker="o", label=f"subscriptions {shape}, {past}")
    axes.set(xlabel="partitions", ylabel="milliseconds", title="cooperative-sticky, 1,000 members, 100 topics")
    axes.set(xlim=(0, None), ylim=(0, None))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend()
    axes.grid(alpha=0.3)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)


if __name__ == "__main__":
    name, members, partitions, topics, shape, past, runs = sys.argv[1:]
    one = Case(name, int(members), int(partitions), int(topics), shape, past, int(runs))
    print(json.dumps(measure(one)._asdict()))
