"""Venvs with a version of PySpark, made once and kept in the cache."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from kohort.testing.cache import cache_dir, locked

ROOT = Path(__file__).parents[2]
NEEDS = ("pyarrow", "construct", "cramjam", "crc32c")


def python_with(version: str, package: str = "pyspark") -> Path:
    """The interpreter of a venv that holds PySpark of this version and what kohort needs, but not kohort.

    This interpreter itself if it has that version: `make dev` has put it there. `package`: "pyspark-client" for
    PySpark without a JVM, a client of Spark Connect.
    """
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    if pinned.get(package) == version:
        return Path(sys.executable)
    wanted = [f"{package}=={version}", *(f"{name}=={pinned[name]}" for name in NEEDS if name in pinned)]
    made_of = hashlib.sha256(" ".join([sys.version, *wanted]).encode()).hexdigest()[:8]
    folder = cache_dir() / f"venv-{package}-{version}-{made_of}"
    with locked(folder.with_name(f"{folder.name}.lock")):
        ready = folder / "ready"
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            print(f"{package} {version}: installing into a venv of its own (some 400 MB)", file=sys.stderr, flush=True)
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            pip = [str(folder / "bin" / "pip"), "install", "--disable-pip-version-check", "--quiet"]
            subprocess.run([*pip, *wanted], check=True)
            ready.touch()
    return folder / "bin" / "python"
