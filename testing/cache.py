"""A cache folder per user for downloads, and a lock so that two processes never download the same file at once."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[str]) -> bool:
        """Lock the first byte, which need not exist. Returns False if another process holds it."""
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(file: IO[str]) -> bool:
        """Lock the file. Returns False if another process holds it."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


LOOK_EVERY_S: Final = 0.05


def cache_dir() -> Path:
    """The folder, made if missing: `KOHORT_CACHE` if set, else the platform's cache folder."""
    if override := os.environ.get("KOHORT_CACHE"):
        folder = Path(override).expanduser()
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "kohort"
    elif sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "kohort"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kohort"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` as a lock between processes, waiting for it. The system releases it when its holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        while not _lock(file):
            time.sleep(LOOK_EVERY_S)
        yield


def is_locked(path: Path) -> bool:
    """True if a living process holds `path`. A process id would be less reliable: it may be a zombie's or reused."""
    try:
        file = path.open("a")
    except FileNotFoundError:
        return False
    with file:
        return not _lock(file)
