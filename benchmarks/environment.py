"""The environment of a client that a benchmark runs in a process of its own."""

import os
from pathlib import Path


def with_bytecode(root: Path | None = None) -> dict[str, str]:
    """This process's environment, in which Python keeps bytecode, as for an installed package.

    `root`: the checkout of kohort to import.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept if root is None else kept | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
