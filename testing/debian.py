"""Programs of Debian's packages without an installation: downloaded without root, and unpacked into the cache."""

import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import unquote

from kohort.testing.cache import cache_dir, locked
from kohort.testing.errors import PackagesUnavailable

DOWNLOAD_TIMEOUT_S = 300.0


def unpacked(name: str, packages: tuple[str, ...]) -> Path:
    """Return the root of a tree with `packages` and their missing dependencies, made once.

    Raises PackagesUnavailable if there is no apt, or a package is unknown.
    """
    root = cache_dir() / "debian" / name
    with locked(root.with_suffix(".lock")):
        if not root.exists():
            half = root.with_suffix(".half")
            shutil.rmtree(half, ignore_errors=True)
            try:
                _unpack(packages, half)
                half.rename(root)
            finally:
                shutil.rmtree(half, ignore_errors=True)
    return root


def _unpack(packages: tuple[str, ...], root: Path) -> None:
    archives = root / "archives"
    archives.mkdir(parents=True)
    planned = _run(["apt-get", "install", "--print-uris", "-y", "-qq", "--no-install-recommends", *packages], archives)
    files = re.findall(r"^'\S+' (\S+\.deb) ", planned, re.MULTILINE)
    versions = [unquote(file).split("_")[:2] for file in files]
    if not versions:
        raise PackagesUnavailable(
            "apt has nothing to download", hint=f"check that {packages[0]} is completely installed"
        )
    _run(["apt-get", "download", *(f"{package}={version}" for package, version in versions)], archives)
    for archive in sorted(archives.glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(archive), str(root)], archives)
    shutil.rmtree(archives)


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise PackagesUnavailable(f"there is no {command[0]} here", hint="this needs Debian, or Ubuntu") from None
    except subprocess.TimeoutExpired:
        raise PackagesUnavailable(f"{command[0]} {command[1]} takes too long", hint="check the network") from None
    if done.returncode:
        raise PackagesUnavailable(
            f"{command[0]} {command[1]} failed: {done.stderr.strip()[-500:]}", hint="run `apt-get update` as root"
        )
    return done.stdout
