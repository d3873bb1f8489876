"""The processor time that a busy machine takes away from a process."""

import os
from pathlib import Path


def starved() -> dict[str, float]:
    """Seconds for which each thread of this process was ready to run without a free processor, and for which each
    processor was another machine's. No thread counts the latter. {} without /proc."""
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
    """The longest time (s) since then that a thread waited for a processor, or that a processor was away.

    Threads are the caller, the driver, and the holder of the GIL."""
    return max((now - before.get(thread, 0.0) for thread, now in starved().items()), default=0.0)
