"""Finds Java, and checks that it is new enough for today's Apache Kafka."""

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from kohort.testing.errors import JdkMissing

LOWEST_MAJOR = 17
_HINT = (
    f"install a JDK {LOWEST_MAJOR} or newer (Debian 12: `apt-get install openjdk-17-jre-headless`, "
    "Debian 13: `openjdk-21-jre-headless`, macOS: `brew install openjdk`) or point JAVA_HOME at one"
)


def java() -> Path:
    """Return the `java` to run: that of JAVA_HOME if set, else the first on PATH. It is at least Java 17.

    Raises JdkMissing, with the installation command.
    """
    return _checked(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


def java_major(executable: Path) -> int | None:
    """The major version that `java -version` prints, or None if it does not run or prints no known version."""
    try:
        said = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, errors="replace", timeout=30, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match.group(1)) if match else None


@lru_cache(maxsize=8)
def _checked(java_home: str, search_path: str) -> Path:
    found = shutil.which("java", path=os.path.join(java_home, "bin") if java_home else search_path)
    if found is None and java_home:
        raise JdkMissing("JAVA_HOME holds no bin/java that this user may run", hint=_HINT, found=java_home)
    if found is None:
        raise JdkMissing("no Java on this machine", hint=_HINT)
    executable = Path(found).absolute()  # processes run it in folders of their own
    major = java_major(executable)
    if major is None:
        raise JdkMissing("this Java does not run", hint=_HINT, found=executable)
    if major < LOWEST_MAJOR:
        raise JdkMissing(f"Java {major} is too old for Apache Kafka", hint=_HINT, found=executable)
    return executable
