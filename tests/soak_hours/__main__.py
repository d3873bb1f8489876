"""`python -m tests.soak_hours --hours 8 --seed 1`: everything at once on three brokers that fall, for hours.

It goes in turns of an hour, each with a seed of its own (SEED, SEED + 1, ...). A turn that ended without a finding
is kept in out/soak-hours, and is not run again without `--again`. A run that was stopped goes on with its last turn.
In the end out/soak-hours/page.html shows all of them.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.report import machine
from kohort.testing import RealCluster
from tests.soak_hours.page import page
from tests.soak_hours.turn import OURS, live

OUT = Path(__file__).parents[2] / "out" / "soak-hours"
TURN_S = 3600.0
START_S = 240.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak_hours", description=(__doc__ or "").split(":", 1)[0])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1, help="of the first hour")
    parser.add_argument("--again", action="store_true", help="run turns that have passed, too")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that members and brokers end with us
    options.out.mkdir(parents=True, exist_ok=True)
    turns = _turns(options.hours, options.seed)
    waiting = [turn for turn in turns if options.again or not _passed(options.out, *turn)]
    if waiting:
        with RealCluster(3, start_timeout_s=START_S) as cluster:
            for seed, seconds in waiting:
                _run(cluster, seed, seconds, options.out)
    return _summary(options.out, turns, f"python -m tests.soak_hours --hours {options.hours:g} --seed {options.seed}")


def _turns(hours: float, seed: int) -> list[tuple[int, float]]:
    """(seed, seconds) of each; the last one may be shorter than an hour."""
    seconds = hours * 3600
    return [(seed + number, min(TURN_S, seconds - number * TURN_S)) for number in range(math.ceil(seconds / TURN_S))]


def _run(cluster: RealCluster, seed: int, seconds: float, out: Path) -> None:
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"seed {seed}: {time.monotonic() - began:7.0f} s: {text}", flush=True)

    say(f"{seconds / 60:.0f} minutes begin")
    reported = asdict(live(cluster, seed, seconds, out / f"seed-{seed}", say))
    for text in reported["findings"]:
        say(f"FOUND {text}")
    say(f"{len(reported['faults'])} faults, {len(reported['findings'])} findings")
    _kept(out, seed).write_text(json.dumps(reported) + "\n")


def _kept(out: Path, seed: int) -> Path:
    return out / f"seed-{seed}.json"


def _passed(out: Path, seed: int, seconds: float) -> bool:
    path = _kept(out, seed)
    if not path.exists():
        return False
    reported = json.loads(path.read_text())
    return reported["seconds"] == seconds and not reported["findings"]


def _summary(out: Path, turns: list[tuple[int, float]], command: str) -> int:
    reported: list[dict[str, Any]] = [json.loads(_kept(out, seed).read_text()) for seed, _seconds in turns]
    on = machine()
    where = out / "page.html"
    where.write_text(page(reported, command, f"{on['date']}, {on['cores']} cores of {on['cpu']}"))
    ours = [one for turn in reported for one in turn["growth"] if one["who"].startswith(OURS)]
    most = {
        name: max((one[name][1] - one[name][0] for one in ours), default=0)
        for name in ("resident_mib", "threads", "descriptors")
    }
    records = sum(turn["group"].get("records", 0) + turn["region"].get("records", 0) for turn in reported)
    faults, findings = (sum(len(turn[name]) for turn in reported) for name in ("faults", "findings"))
    hours = sum(turn["seconds"] for turn in reported) / 3600
    print(f"the page: {where}")
    print(
        f"{hours:.2f} hours, {records} records, {faults} faults, {findings} findings; the most that any of "
        f"{len(ours)} processes grew by: {most['resident_mib']:.1f} MiB, {most['threads']} threads, "
        f"{most['descriptors']} descriptors"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
