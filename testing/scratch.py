"""Temporary folders of servers."""

import os
import shutil
import tempfile
from pathlib import Path

_owners: dict[Path, int] = {}


def make_scratch(prefix: str) -> Path:
    """Make a temporary folder, for `remove_scratch`."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    _owners[folder] = os.getpid()
    return folder


def remove_scratch(folder: Path) -> None:
    """Remove a folder of `make_scratch`. A forked child removes none, because the server of its parent runs in it."""
    if _owners.pop(folder, None) == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
