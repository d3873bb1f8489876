"""`python -m tests.soak_share --versions 4.2.2 4.3.1 --seeds 1 2 3 --records 200000`: mixed share groups, resumable.

The result of each version and seed is kept in out/soak-share. One that has passed at this size is not run again.
"""

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.soak_share.conductor import ROOT, Conductor


def main() -> int:
    """Run what has not passed, and print a line for each run."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak_share", description=__doc__)
    parser.add_argument("--versions", nargs="+", default=["4.2.2", "4.3.1"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "soak-share")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that members and brokers end with this process
    results = []
    for seed in given.seeds:
        for version in given.versions:
            result = _kept(given.out, version, seed, given.records)
            if result is None:
                result = Conductor(version, seed, given.records, given.out / f"{version}-{seed}").run()
                (given.out / f"{version}-{seed}.json").write_text(json.dumps(result | {"seed": seed}, indent=1))
            results.append(result)
            print(f"{version} seed {seed}: {json.dumps(result)}", flush=True)
    print(summary(results))
    return int(any(one["violated"] for one in results))


def summary(results: Sequence[Mapping[str, Any]]) -> str:
    """The sums of all runs in one line."""
    records, deliveries, violated = (
        sum(one[name] for one in results) for name in ("records", "deliveries", "violated")
    )
    acts = sum(sum(one["acts"].values()) for one in results)
    return f"{len(results)} runs, {records} records, {deliveries} deliveries, {acts} faults, {violated} violated"


def _kept(out: Path, version: str, seed: int, records: int) -> dict[str, Any] | None:
    path = out / f"{version}-{seed}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found if found.get("records") == records and not found["violated"] else None


if __name__ == "__main__":
    sys.exit(main())
