"""Detects that this process is about to run out of memory, on the host or within its cgroup."""

from pathlib import Path
from typing import Final

LEAST_FREE_BYTES: Final = 64 * 1024 * 1024
LEAST_FREE_SHARE: Final = 0.03


def memory_low(root: Path = Path("/")) -> bool:
    """Less than 64 MiB free, or less than 3 % of what there is, of the host's memory or of the cgroup's limit.

    False where neither can be read (not Linux). Page cache counts as free: the kernel gives it back.
    """
    return any(free < max(LEAST_FREE_BYTES, LEAST_FREE_SHARE * whole) for free, whole in _budgets(root))


def _budgets(root: Path) -> list[tuple[int, int]]:
    """(free, whole) in bytes, for each limit that there is."""
    found = []
    host = _table(root / "proc/meminfo")
    if "MemAvailable:" in host and "MemTotal:" in host:
        found.append((host["MemAvailable:"] * 1024, host["MemTotal:"] * 1024))
    group = root / "sys/fs/cgroup"
    whole, used = _number(group / "memory.max"), _number(group / "memory.current")
    if whole is not None and used is not None:
        cache = _table(group / "memory.stat").get("inactive_file", 0)
        found.append((whole - used + cache, whole))
    return found


def _table(path: Path) -> dict[str, int]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in map(str.split, lines) if len(words) > 1 and words[1].isdigit()}


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
