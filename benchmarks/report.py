"""Results of a benchmark: rows of (work, client, value), printed as ratios and kept as JSON with the machine.

Less time and memory is better, and a higher rate is better. So is a higher compression ratio, in times. A ratio above 1
means that kohort is better: 2.0x is twice as good as the other client. It is computed from two rows of one work and one
unit.
"""

import json
import os
import platform
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

OURS = "kohort"
RESULTS = Path(__file__).parent / "results"
PEERS = ("aiokafka", "confluent-kafka", "construct", "Cython", "kafka-python", "kio", "pyarrow", "pyspark")
UNITS_OF_AMOUNT = (
    "bytes",
    "kB",
    "MB",
    "threads",
    "% of a core",
    "rebalances",
    "commits",
    "memberships",
    "wake-ups",
    "calls",
    "slope",
)
TIME, AMOUNT = ("faster", "slower"), ("less", "more")
UNITS: Mapping[str, tuple[bool, tuple[str, str]]] = MappingProxyType(
    dict.fromkeys(("s", "ms", "us"), (True, TIME))
    | dict.fromkeys(UNITS_OF_AMOUNT, (True, AMOUNT))
    | {"records/s": (False, TIME), "times": (False, ("higher", "lower"))}
)
"""By unit: whether a lower figure is better, and the words for a better and a worse one."""


@dataclass(frozen=True, slots=True)
class Row:
    """A result. `client` is "kohort" or another client. `note` has its settings, if they matter."""

    work: str
    client: str
    value: float
    unit: str
    note: str = ""


class Ratio(NamedTuple):
    """Our gain over `peer`, as a ratio of figures in `unit`."""

    work: str
    peer: str
    unit: str
    times_better: float

    def __str__(self) -> str:
        _, (better, worse) = UNITS[self.unit]
        if self.times_better >= 1:
            return f"{self.times_better:.2f}x {better}"
        times = f"{1 / self.times_better:.2f}x " if self.times_better else ""  # nothing at all on the other side
        return f"{times}{worse}"


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """A ratio for every peer's row of a work and unit that ours has too, in their order.

    Raises ValueError where a peer's row has two of ours to be compared with, and KeyError for an unknown unit.
    """
    ours: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row.client == OURS:
            ours.setdefault((row.work, row.unit), []).append(row.value)
    found = []
    for row in rows:
        mine = ours.get((row.work, row.unit))
        if row.client == OURS or mine is None:
            continue
        if len(mine) > 1:
            raise ValueError(f"{len(mine)} rows of ours for one of {row.client}: {row.work} ({row.unit})")
        less_is_better, _ = UNITS[row.unit]
        over, under = (row.value, mine[0]) if less_is_better else (mine[0], row.value)
        if under:
            digits = 3 if 10 * over >= under else 5  # the page shows the inverse, with as many digits
            found.append(Ratio(row.work, row.client, row.unit, round(over / under, digits)))
    return found


@dataclass(slots=True)
class Report:
    """Rows of one benchmark, added by its `run(report)` as they are measured."""

    name: str
    command: str = ""  # where it is not `python -m benchmarks NAME`
    options: Namespace = field(default_factory=Namespace)
    rows: list[Row] = field(default_factory=list)
    loads: list[float] = field(default_factory=lambda: [_load()])  # of the machine, at the start and after each row

    def add(self, work: str, client: str, value: float, unit: str, note: str = "") -> None:
        """Record a figure and print it at once, so that a long run shows progress."""
        self.rows.append(Row(work, client, value, unit, note))
        self.loads.append(_load())
        print(f"  {work:<58} {client:<26} {_human(value):>10} {unit}  {note}", flush=True)

    def print_ratios(self) -> None:
        for one in ratios(self.rows):
            print(f"  {one.work:<58} {one!s:>16} {one.peer} ({one.unit})", flush=True)

    def save(self, folder: Path = RESULTS) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        document = {
            "benchmark": self.name,
            "command": self.command or f"python -m benchmarks {self.name}",
            "machine": machine(),
            "load": {"least": min(self.loads), "most": max(self.loads)},
            "rows": [asdict(row) for row in self.rows],
            "ratios": [one._asdict() for one in ratios(self.rows)],
        }
        path.write_text(json.dumps(document, indent=1) + "\n")
        return path


def best_of(run: Callable[[], object], *, times: int = 5) -> float:
    """The least wall time in seconds of `times` runs: the one that the machine disturbed least."""
    return min(_timed(run) for _ in range(times))


def median_of(run: Callable[[], object], *, times: int = 5) -> float:
    """The median wall time in seconds, for work whose own variance matters."""
    return statistics.median(_timed(run) for _ in range(times))


def _load() -> float:
    """The load average of the last minute: above the number of cores, other work slows down the clients."""
    return round(os.getloadavg()[0], 1)


def machine() -> dict[str, object]:
    """The machine of the figures: CPU, cores, memory, Python and the peers' versions, and the date."""
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
