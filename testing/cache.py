"""One folder a user for what is fetched once, and a lock so that two processes never fetch the same thing at a time."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_dir() -> Path:
    """The folder, made if missing: `KOHORT_CACHE` if set, else the platform's own place for caches."""
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
    """Hold `path` as a lock between processes, waiting for it; the kernel lets go of it when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_locked(path: Path) -> bool:
    """Whether a living process holds `path`; sure where a process id is not, which may be a zombie's or used again."""
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
