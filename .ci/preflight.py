"""Say in one go what this machine lacks, before anything is installed. Standard library only."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path


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
        lacks.append(
            f"a JDK 17 or newer on PATH (found: {major or 'none'}); e.g. apt-get install openjdk-17-jdk-headless, "
            "on Debian 13 openjdk-21-jdk-headless"
        )
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        lacks.append("a C compiler; e.g. apt-get install build-essential")
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if not headers.exists():
        lacks.append(f"the header files of Python ({headers}); e.g. apt-get install python3-dev")
    if importlib.util.find_spec("ensurepip") is None:
        lacks.append("the module ensurepip, which makes virtual environments; e.g. apt-get install python3-venv")
    return lacks


if __name__ == "__main__":
    if lacks := missing():
        sys.exit("kohort needs, and this machine lacks:\n  - " + "\n  - ".join(lacks))
