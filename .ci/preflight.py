"""Say in one go what this machine lacks, before anything is installed. Standard library only."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys


def java_major() -> int | None:
    if shutil.which("java") is None:
        return None
    text = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None


def missing() -> list[str]:
    lacks = []
    if sys.version_info < (3, 11):
        lacks.append(f"Python 3.11 or newer (this is {sys.version.split()[0]}); set PYTHON=python3.x")
    major = java_major()
    if major is None or major < 17:
        found = major or "none"
        lacks.append(f"a JDK 17 or newer on PATH (found: {found}); e.g. apt-get install openjdk-17-jdk-headless")
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        lacks.append("a C compiler; e.g. apt-get install build-essential")
    return lacks


if __name__ == "__main__":
    if lacks := missing():
        sys.exit("kohort needs, and this machine lacks:\n  - " + "\n  - ".join(lacks))
