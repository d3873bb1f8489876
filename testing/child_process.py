"""A server process that ends with the process that started it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kohort.testing import supervisor
from kohort.testing.process_signals import KILL, thaw

KILLED_TIMEOUT_S: Final = 120.0
"""Even SIGKILL waits for a running system call, for example an fsync on a busy disk."""


class Supervised:
    """Runs `command` under `supervisor.py` in `folder`, with both outputs appended to `log`.

    If this process dies, `remove_if_orphaned` is removed with the command. `pid`: the command's own, or 0 if its
    supervisor could not be started. `running` is False then.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        log: Path,
        remove_if_orphaned: Path | None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        requested = [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid()), str(remove_if_orphaned or "")]
        with log.open("ab") as output:
            self._supervisor = subprocess.Popen(
                [*requested, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                start_new_session=True,
                cwd=folder,
                env=environment,
            )
        assert self._supervisor.stdout is not None
        self.pid = int(self._supervisor.stdout.readline() or 0)

    @property
    def running(self) -> bool:
        """True if the process exists (a frozen one does)."""
        return bool(self.pid) and self._supervisor.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Signal it. Nothing happens when it is gone."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):  # its supervisor is about to notice
                os.kill(self.pid, number)

    def end(self, number: signal.Signals, timeout_s: float) -> None:
        """Signal it, SIGKILL it after `timeout_s`, and wait until it is gone.

        Raises TimeoutError where the system keeps it for longer than KILLED_TIMEOUT_S after that.
        """
        self.send(number)
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                thaw(self.pid)  # a frozen process would see nothing but SIGKILL
        try:
            self._supervisor.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.send(KILL)
            self._wait_for_the_killed()
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe is not None:
                pipe.close()

    def _wait_for_the_killed(self) -> None:
        try:
            self._supervisor.wait(KILLED_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise TimeoutError(
                f"process {self.pid} is still there {KILLED_TIMEOUT_S:g} s after SIGKILL: is a disk overloaded?"
            ) from None
