"""A unit of work of `benchmarks.versions`, in the checkout of kohort that PYTHONPATH names. Prints CPU seconds by work.

python -P benchmarks/version_work.py consume BOOTSTRAP TOPIC COUNT
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks import codec, members, peers

MESSAGE: Any = vars(codec)["Message"]  # the module that defines it has moved between commits
PASSES = 3  # of a topic


def consume(bootstrap: str, topic: str, count: str) -> Iterator[tuple[str, float]]:
    for name, read in (("columns", peers.columns), ("record by record", peers.records)):
        yield name, _cpu_s(partial(read, bootstrap, topic, int(count)), PASSES)


def control(least: str) -> Iterator[tuple[str, float]]:
    for what, value, version, *_ in codec.CASES:
        message = MESSAGE.of(type(value))
        data = message.build(value, version)
        times = int(least) if len(data) < 1_000_000 else int(least) // 10
        yield f"parse {what}", _cpu_s(partial(message.parse, data, version), times)
        yield f"build {what}", _cpu_s(partial(message.build, value, version), times)


def group(bootstrap: str, name: str, size: str) -> Iterator[tuple[str, float]]:
    began = time.process_time()
    members._kohort(int(size), bootstrap, name)
    yield "until stable", time.process_time() - began


def _cpu_s(run: Callable[[], object], times: int) -> float:
    """The least CPU time of so many runs: the one that the machine disturbed least."""
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        run()
        best = min(best, time.process_time() - began)
    return best


if __name__ == "__main__":
    works: dict[str, Callable[..., Iterator[tuple[str, float]]]]
    works = {"consume": consume, "codec": control, "members": group}
    print(json.dumps(dict(works[sys.argv[1]](*sys.argv[2:]))), flush=True)
    os._exit(0)  # leaving a group is not measured
