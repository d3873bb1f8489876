"""Histories of share members in a seeded world, resumable: `python -m tests.share_consumer.share_histories`."""

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path

from tests.share_consumer.share_world import ShareWorld

STEPS = 300
KEPT_EVERY = 100


def histories(seeds: Iterable[int]) -> int:
    """Run a history for each seed. Returns the number of deliveries. A violation names its seed."""
    deliveries = 0
    for seed in seeds:
        world = ShareWorld(seed)
        try:
            world.run(STEPS)
            world.calm()
        except AssertionError as violation:
            raise AssertionError(f"{violation} (seed {seed})") from violation
        deliveries += world.deliveries
    return deliveries


def main() -> None:
    """Run seeds from `--first` on, after those that `--resume` names as done. Violations are listed there too."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--resume", type=Path, default=Path("out/share-sim.json"))
    given = parser.parse_args()
    state = {"next": given.first, "deliveries": 0, "violations": [], "seconds": 0.0}
    if given.resume.exists():
        state = json.loads(given.resume.read_text())
    given.resume.parent.mkdir(parents=True, exist_ok=True)
    began = time.process_time()
    while state["next"] < given.first + given.seeds:
        seed = state["next"]
        try:
            state["deliveries"] += histories([seed])
        except AssertionError as violation:
            state["violations"].append(str(violation))
            print(violation, flush=True)
        state["next"] = seed + 1
        if state["next"] % KEPT_EVERY == 0 or state["next"] == given.first + given.seeds:
            state["seconds"] += time.process_time() - began
            began = time.process_time()
            given.resume.write_text(json.dumps(state))
    print(f"{given.seeds} histories, {state['deliveries']} deliveries, {len(state['violations'])} violated")
    raise SystemExit(bool(state["violations"]))


if __name__ == "__main__":
    main()
