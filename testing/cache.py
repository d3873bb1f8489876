"""A cache folder per user for downloads, and a lock so that two processes never download the same file at once."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Final

from kohort.common.errors import KohortError
from kohort.common.file_lock import try_lock

LOOK_EVERY_S: Final = 0.05


def cache_dir() -> Path:
    """The folder, made if missing: `KOHORT_CACHE` if set, else the platform's cache folder.

    Raises KohortError if neither names one, and OSError as `mkdir` does.
    """
    try:
        folder = _cache_dir()
    except RuntimeError:
        raise KohortError(
            "this user has no home folder for the cache", hint="set KOHORT_CACHE to a folder that this user can write"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _cache_dir() -> Path:
    if override := os.environ.get("KOHORT_CACHE"):
        return Path(override).expanduser().absolute()  # brokers have a working folder of their own
    if sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "kohort"


@contextmanager
def locked(path: Path, *, timeout_s: float = inf) -> Iterator[None]:
    """Hold `path` as a lock between processes, waiting for it. The system releases it when its holder dies.

    Raises TimeoutError if another process holds it for `timeout_s`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with path.open("a") as file:
        while not try_lock(file):
            if time.monotonic() > deadline:
                raise TimeoutError(f"another process holds {path}")
            time.sleep(LOOK_EVERY_S)
        yield


def is_locked(path: Path) -> bool:
    """True if a living process holds `path`. A process id would be less reliable: it may be a zombie's or reused."""
    try:
        file = path.open("a")
    except FileNotFoundError:
        return False
    with file:
        return not try_lock(file)
