"""What a busy machine takes away from a process, which is no fault of its own."""

from pathlib import Path


def starved() -> dict[str, float]:
    """Seconds that each thread of this process was ready to run and no processor was free; {} where no /proc tells."""
    found = {}
    for thread in Path("/proc/self/task").glob("*"):
        try:
            found[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
        except OSError:
            continue  # it ended
    return found


def lost_s(before: dict[str, float]) -> float:
    """What the thread that waited longest for a processor lost since: the caller, the driver, or who had the GIL."""
    return max((now - before.get(thread, 0.0) for thread, now in starved().items()), default=0.0)
