"""Width: the cost of a turn, a poll, a rebalance and a commit as partitions, topics, connections and members grow.

A member reads one record of each partition, and then measures its own CPU time. An idle second has the turns of the
driver with nothing to do. A poll is `poll(0)` without records. A commit is that of all positions. A rebalance is a join
until all partitions are assigned again. Records come at 100/s, to all partitions in turns.

The broker is a `FakeBroker` in another process, so that any number of nodes and partitions takes a second to make. For
10,000 partitions it needs 70 ms a response. Caches are cold then, so a record costs more. `wide_on_kafka` has a real
broker. Topics have 10 partitions where partitions grow, and one where topics grow. Connections are those to nodes with
1,000 partitions in all. Members of one process join a group on a real broker, as in `members`. The slope is that of a
line through the logarithms: 0 is a constant cost, and 1 a cost that grows with the size.

    python -m benchmarks wide --partitions 10 1000 --only partitions --seconds 2
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.consume import running_broker
from benchmarks.members import measured
from benchmarks.report import OURS, Report
from benchmarks.wide_member import FED_PER_S

CLIENTS = (OURS, "confluent-kafka")
MEASURES = (
    ("an idle second", "idle_ms", "ms"),
    ("a poll", "poll_us", "us"),
    ("a record", "record_us", "us"),
    ("a commit", "commit_ms", "ms"),
    ("a rebalance", "rebalance_ms", "ms"),
    ("from the start to a record of each partition", "first_s", "s"),
    ("from the start to a record of each partition: CPU", "first_ms", "ms"),
    ("from the start to a record of each partition: memory", "memory_mb", "MB"),
)
PARTITIONS_OF_A_TOPIC, PARTITIONS_OF_CONNECTIONS = 10, 1_000
SLOPE = ": slope"


class Shape(NamedTuple):
    """The topics of a broker, the partitions of each, and its nodes."""

    topics: int
    partitions: int
    nodes: int = 1


def run(report: Report) -> None:
    options = report.options
    shapes = {
        "partitions": {
            size: Shape(size // PARTITIONS_OF_A_TOPIC, PARTITIONS_OF_A_TOPIC) for size in options.partitions
        },
        "topics": {size: Shape(size, 1) for size in options.topics},
        "connections": {size: Shape(1, PARTITIONS_OF_CONNECTIONS, size) for size in options.connections},
    }
    for axis in options.only:
        if axis == "members":
            _members(report)
        else:
            _grow(report, axis, shapes[axis])


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m benchmarks wide")
    options.add_argument("--partitions", type=int, nargs="+", default=[10, 100, 1_000, 10_000])
    options.add_argument("--topics", type=int, nargs="+", default=[10, 100, 1_000])
    options.add_argument("--connections", type=int, nargs="+", default=[1, 3, 10, 30])
    options.add_argument("--members", type=int, nargs="+", default=[10, 30, 100, 300])
    options.add_argument("--seconds", type=float, default=10.0, help="of the idle and of the fed time")
    axes = ["partitions", "topics", "connections", "members"]
    options.add_argument("--only", nargs="+", choices=axes, default=axes, help="what grows")
    return options


def _grow(report: Report, axis: str, shapes: Mapping[int, Shape]) -> None:
    for client in CLIENTS:
        found = {size: figures_of(client, shape, report.options.seconds) for size, shape in shapes.items()}
        for name, key, unit in MEASURES:
            points = {size: figures[key] for size, figures in found.items() if key in figures}
            _add(report, axis, name, client, points, unit)


def _members(report: Report) -> None:
    with running_broker() as bootstrap:
        for client in CLIENTS:
            points = {size: measured(client, size, bootstrap)[0] for size in report.options.members}
            _add(report, "members", "until all are stable", client, points, "s")


def _add(report: Report, axis: str, name: str, client: str, points: Mapping[int, float], unit: str) -> None:
    for size, value in points.items():
        report.add(f"{name}, {size:,} {axis}", client, value, unit)
    if len(points) > 1:
        # A slope has no ratio to another one, as it may be 0 or less.
        report.add(
            f"{name}, {axis}{SLOPE}{'' if client == OURS else ' of ' + client}", client, slope(points.items()), "slope"
        )


def figures_of(client: str, shape: Shape, seconds: float) -> dict[str, float]:
    """The CPU times of a member, from a fresh broker and a fresh process."""
    broker = [sys.executable, "-m", "benchmarks.wide_broker", *map(str, shape)]
    with subprocess.Popen(broker, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdin is not None
        assert serving.stdout is not None
        bootstrap = serving.stdout.readline().strip()
        arguments = [client, bootstrap, str(shape.topics), str(shape.partitions), str(seconds)]
        command = [sys.executable, "-m", "benchmarks.wide_member", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
            assert member.stdout is not None
            assert member.stdout.readline() == "feed\n", f"{client} did not read {shape}"
            print(FED_PER_S, seconds, file=serving.stdin, flush=True)
            figures: dict[str, float] = json.loads(member.stdout.readline())
            member.kill()
        serving.kill()
    return figures


def slope(points: Iterable[tuple[float, float]]) -> float:
    """The slope of the line of least squares through the logarithms of (size, value)."""
    logs = [(math.log(size), math.log(max(value, 1e-9))) for size, value in points]
    middle_x, middle_y = (sum(column) / len(logs) for column in zip(*logs, strict=True))
    return math.fsum((x - middle_x) * (y - middle_y) for x, y in logs) / math.fsum((x - middle_x) ** 2 for x, _ in logs)


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Ours as lines of both logarithms, a panel for each axis, with the slope of each line in its legend."""
    import matplotlib.pyplot as plt

    mine = [row for row in rows if row["client"] == OURS]
    slopes = {row["work"].removesuffix(SLOPE): row["value"] for row in mine if row["unit"] == "slope"}
    axes = list(dict.fromkeys(line.rpartition(", ")[2] for line in slopes))
    figure, panels = plt.subplots(1, len(axes), figsize=(5 * len(axes), 4.5), squeeze=False)
    for axis, panel in zip(axes, panels[0], strict=True):
        for line, steep in slopes.items():
            name, _, of_axis = line.rpartition(", ")
            if of_axis != axis:
                continue
            points = [row for row in mine if row["unit"] != "slope" and row["work"].startswith(f"{name}, ")]
            points = [row for row in points if row["work"].endswith(f" {axis}")]
            sizes = [int(row["work"].removesuffix(f" {axis}").rpartition(" ")[2].replace(",", "")) for row in points]
            label = f"{name} ({points[0]['unit']}): {steep:.2f}"
            panel.plot(sizes, [row["value"] for row in points], marker="o", markersize=3, label=label)
        panel.set(xscale="log", yscale="log", xlabel=axis)
        panel.grid(linewidth=0.3)
        panel.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
