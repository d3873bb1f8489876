"""`python -m tests.soak --seed 1 --runs 100`: random runs of a mixed group on three brokers, one a seed.

With `--protocol consumer` the groups are of KIP-848, or move to it, or back, while they live. A result is kept for
each seed in out/soak, or out/soak-consumer; a seed that has passed is not run again without `--again`. The history
of the last run of a seed is kept beside its result.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from kohort.testing import RealCluster
from tests.soak.checker import judge
from tests.soak.conductor import ROOT, Conductor
from tests.soak.plan import CLASSIC, CONSUMER, PLANS, Act, Plan

OUTS = {CLASSIC: ROOT / "out" / "soak", CONSUMER: ROOT / "out" / "soak-consumer"}
START_S = 240.0  # brokers that start while members run on the same cores take their time


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--runs", type=int, default=100, help="how many seeds")
    parser.add_argument("--again", action="store_true", help="run seeds that have passed, too")
    parser.add_argument("--protocol", choices=list(PLANS), default=CLASSIC, help="of which kind the groups are")
    parser.add_argument("--out", type=Path, help="where results and histories are kept")
    options = parser.parse_args()
    options.out = options.out or OUTS[options.protocol]
    seeds = range(options.seed, options.seed + options.runs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that members and brokers end with us
    waiting = [seed for seed in seeds if options.again or not _passed(options.out, seed)]
    if waiting:
        with RealCluster(3, start_timeout_s=START_S) as cluster:
            for number, seed in enumerate(waiting, 1):
                result = run(cluster, seed, options.out, options.protocol)
                print(f"{number}/{len(waiting)} {_line(result)}", flush=True)
    return _summary(options.out, seeds)


def run(cluster: RealCluster, seed: int, out: Path, protocol: str) -> dict[str, Any]:
    """One seed: run, judged and kept."""
    chosen = PLANS[protocol](seed)
    folder = out / f"seed-{seed}"
    began = time.monotonic()
    try:
        history = Conductor(cluster, chosen, folder).run()
    finally:
        cluster.start()  # those that are down, so that the next run finds three
    findings = judge(history)
    what = Counter(entry.what for entry in history)
    result = {
        "seed": seed,
        "passed": not any(one.ours for one in findings),
        "strategy": _strategies(chosen),
        "seconds": round(time.monotonic() - began, 1),
        "code": code(),
        "entries": dict(what),
        "members": [entry.facts["member"] for entry in history if entry.what == "started"],
        "brokers": [entry.facts for entry in history if entry.what == "broker"],
        "findings": [f"{one.rule}: {one.text}" for one in findings if one.ours],
        "about_others": [f"{one.rule}: {one.text}" for one in findings if not one.ours],
    }
    _result(out, seed).write_text(json.dumps(result, indent=1) + "\n")
    for log in folder.glob("*.log"):
        if not log.stat().st_size:
            log.unlink()
    return result


def code() -> str:
    """Names the code under test: a result speaks of the code that it was run with."""
    digest = hashlib.sha256()
    for folder in ("coordinator_client", "network", "assignors", "protocol", "fastpath", "common"):
        for path in sorted((ROOT / folder).rglob("*.py*")):
            if path.suffix in (".py", ".pyx"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _strategies(plan: Plan) -> str:
    """The assignors of a run, in the order in which they come to be used."""
    turns = [plan.protocol]
    for action in plan.actions:
        if action.act is Act.CONVERT:
            turns.append(CLASSIC if turns[-1] == CONSUMER else CONSUMER)
    return " to ".join(plan.remote if turn == CONSUMER else plan.strategy for turn in turns)


def _result(out: Path, seed: int) -> Path:
    return out / f"seed-{seed}.json"


def _passed(out: Path, seed: int) -> bool:
    path = _result(out, seed)
    return path.exists() and bool(json.loads(path.read_text())["passed"])


def _line(result: dict[str, Any]) -> str:
    done = "passed" if result["passed"] else "FAILED"
    brokers = next((one["act"] for one in result["brokers"]), "-")
    others = f", about others {len(result['about_others'])}" if result["about_others"] else ""
    reported = "".join(f"\n    {line}" for line in result["findings"][:8])
    members = len(result["members"])
    head = f"seed {result['seed']} {done} in {result['seconds']} s: {result['strategy']}, {members} members"
    return f"{head}, {brokers}{others}{reported}"


def _summary(out: Path, seeds: range) -> int:
    results = [json.loads(_result(out, seed).read_text()) for seed in seeds if _result(out, seed).exists()]
    passed = [one for one in results if one["passed"]]
    codes = len({one["code"] for one in passed})
    print(f"{len(passed)} of {len(seeds)} seeds have passed, with {codes} version(s) of the code; kept in {out}")
    return 0 if len(passed) == len(seeds) else 1


if __name__ == "__main__":
    sys.exit(main())
