"""What a benchmark measured: rows of (work, who, value), printed as ratios and kept as JSON with the machine.

A row's unit decides which way is better: times and memory shrink, rates grow. A ratio is always *ours over theirs in
our favour*: 2.0x means twice as good as that peer.
"""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

OURS = "kohort"
RESULTS = Path(__file__).parent / "results"
PEERS = ("aiokafka", "confluent-kafka", "construct", "Cython", "kafka-python", "kio", "pyarrow", "pyspark")
LOWER_IS_BETTER = frozenset({"s", "ms", "us", "bytes", "kB", "MB", "threads", "% of a core"})


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure. `who` is "kohort" or a peer; `note` says under which settings, if that matters."""

    work: str
    who: str
    value: float
    unit: str
    note: str = ""


@dataclass(slots=True)
class Report:
    """Rows of one benchmark, added by its `run(report)` as they are measured."""

    name: str
    command: str = ""  # where it is not `python -m benchmarks NAME`
    rows: list[Row] = field(default_factory=list)

    def add(self, work: str, who: str, value: float, unit: str, note: str = "") -> None:
        """Record a figure and print it at once, so that a long run shows progress."""
        self.rows.append(Row(work, who, value, unit, note))
        print(f"  {work:<58} {who:<26} {_human(value):>10} {unit}  {note}", flush=True)

    def ratios(self) -> list[tuple[str, str, float]]:
        """(work, peer, how many times better ours is), for every peer measured on the same work and unit."""
        ours = {(row.work, row.unit): row.value for row in self.rows if row.who == OURS}
        found = []
        for row in self.rows:
            mine = ours.get((row.work, row.unit))
            if row.who == OURS or not mine or not row.value:
                continue
            better = row.value / mine if row.unit in LOWER_IS_BETTER else mine / row.value
            found.append((row.work, row.who, better))
        return found

    def print_ratios(self) -> None:
        for work, peer, better in self.ratios():
            print(f"  {work:<58} {better:>8.2f}x {peer}", flush=True)

    def save(self) -> Path:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}.json"
        document = {
            "benchmark": self.name,
            "command": self.command or f"python -m benchmarks {self.name}",
            "machine": machine(),
            "rows": [asdict(row) for row in self.rows],
            "ratios": [{"work": work, "peer": peer, "times_better": round(x, 3)} for work, peer, x in self.ratios()],
        }
        path.write_text(json.dumps(document, indent=1) + "\n")
        return path


def best_of(run: Callable[[], object], *, times: int = 5) -> float:
    """The least wall time in seconds of `times` runs: the one that the machine disturbed least."""
    return min(_timed(run) for _ in range(times))


def median_of(run: Callable[[], object], *, times: int = 5) -> float:
    """The median wall time in seconds, for work whose own variance matters."""
    return statistics.median(_timed(run) for _ in range(times))


def machine() -> dict[str, object]:
    """What the figures were measured on: CPU, cores, memory, Python and the peers' versions, and the date."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PEERS},
        "date": time.strftime("%Y-%m-%d"),
    }


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _human(value: float) -> str:
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.2f}{suffix}"
    return f"{value:.4g}"
