"""What a busy machine takes away from a process, which is no fault of its own."""

import os
from pathlib import Path


def starved() -> dict[str, float]:
    """Seconds that each thread of this process was ready to run and no processor was free, and that each processor was
    another machine's, under which no thread counts; {} where no /proc tells."""
    found = _stolen()
    for thread in Path("/proc/self/task").glob("*"):
        try:
            found[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
        except OSError:
            continue  # it ended
    return found


def _stolen() -> dict[str, float]:
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    except OSError:
        return {}
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return {one[0]: int(one[8]) * tick_s for one in lines if one[0].removeprefix("cpu").isdecimal()}


def lost_s(before: dict[str, float]) -> float:
    """What the thread that waited longest for a processor lost since (the caller, the driver, or who had the GIL), or
    the processor that was away longest."""
    return max((now - before.get(thread, 0.0) for thread, now in starved().items()), default=0.0)
