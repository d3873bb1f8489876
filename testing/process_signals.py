"""Signals to processes by what they do. Windows has none: there any signal ends a process, and nothing freezes one."""

import os
import signal
import sys
from typing import Final

KILL: Final[signal.Signals] = getattr(signal, "SIGKILL", signal.SIGTERM)
"""Ends a process at once, which cannot prevent it. `os.kill` of Windows ends it in this way by SIGTERM."""


def freeze(pid: int) -> None:
    """Stop a process until `thaw` (SIGSTOP). Raises NotImplementedError on Windows."""
    if sys.platform != "win32":
        os.kill(pid, signal.SIGSTOP)
    else:
        raise NotImplementedError("Windows cannot freeze a process")


def thaw(pid: int) -> None:
    """Let a frozen process run again (SIGCONT). Nothing happens on Windows."""
    if sys.platform != "win32":
        os.kill(pid, signal.SIGCONT)
