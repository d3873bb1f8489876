"""A faster start: the JVM's own archive of the classes that a broker loads, made once for each version and Java.

A broker's start is mostly the JVM reading and checking some 10,000 classes. With an archive (class data sharing) the
JVM maps them instead. Measured on two cores, one broker starts in 2.7 s without an archive and in 1.6 s with it. The
JVM checks an archive before it uses it, and starts without it if it does not fit. A stale archive therefore only costs
time.
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from kohort.common.errors import KohortError
from kohort.testing.cache import cache_dir, locked
from kohort.testing.jdk import java


def archive_options(version: str, jars: Sequence[Path], prime: Callable[[list[str]], None] | None = None) -> list[str]:
    """Return JVM options that use the archive. If there is none yet, `prime` is called once to make it.

    `prime` must run a broker with the given options and end it cleanly (SIGTERM). Its errors are not raised, because
    the start of the real broker shows them.
    """
    made_of = "\n".join([str(java().resolve()), *map(str, jars)])
    name = f"kafka-{version}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jsa"
    archive = cache_dir() / "class-archives" / name
    if not archive.exists() and prime is not None:
        with locked(archive.with_suffix(".lock")):
            if not archive.exists():
                _make(archive, prime)
    usable = archive.exists() and archive.stat().st_size > 0
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if usable else []


def _make(archive: Path, prime: Callable[[list[str]], None]) -> None:
    unfinished = archive.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    try:
        prime([f"-XX:ArchiveClassesAtExit={unfinished}"])
    except KohortError:
        unfinished.unlink(missing_ok=True)
    if unfinished.exists():
        unfinished.rename(archive)
    else:
        archive.touch()  # this JVM makes none: never try again
