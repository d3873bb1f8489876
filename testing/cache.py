"""A cache folder per user for downloads, and a lock so that two processes never download the same file at once."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """The folder, made if missing: `KOHORT_CACHE` if set, else the platform's cache folder."""
    if override := os.environ.get("KOHORT_CACHE"):
        folder = Path(override).expanduser()
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "kohort"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kohort"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` as a lock between processes, waiting for it. The kernel releases it when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_locked(path: Path) -> bool:
    """True if a living process holds `path`. A process id would be less reliable: it may be a zombie's or reused."""
    try:
        handle = path.open("a")
    except FileNotFoundError:
        return False
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
