"""The members' processes: started, killed, stopped; none outlives the demo."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from kohort.cli.demo.ledger import Ledger
from kohort.common import KohortError

STOP_TIMEOUT_S = 20.0


class MemberFailed(KohortError):
    """A member's process ended by itself: `member`, and its last words in the message."""


class Crew(AbstractContextManager["Crew"]):
    """Processes of `kohort.cli.demo.member` by name. `arguments` are common to all."""

    def __init__(self, ledger: Ledger, arguments: Sequence[str]) -> None:
        self._ledger = ledger
        self._arguments = arguments
        self._running: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}

    def start(self, name: str) -> None:
        self._ledger.note(name, "started")
        # Its own words go to a file: a pipe that nobody drains would one day stop the member.
        words = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the process that writes it
        command = [sys.executable, "-m", "kohort.cli.demo.member", "--name", name, *self._arguments]
        self._running[name] = (subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=words), words)

    def kill(self, name: str) -> int:
        """SIGKILL: no goodbye to the group, no commit. Returns its process id."""
        process, words = self._running.pop(name)
        process.kill()
        process.wait()
        self._ledger.note(name, "killed", cause="SIGKILL")
        words.close()
        return process.pid

    def check(self) -> None:
        """Raises MemberFailed if one ended by itself."""
        for name, (process, words) in self._running.items():
            if process.poll() is not None:
                raise MemberFailed(_last_words(words) or f"it ended with code {process.returncode}", member=name)

    def stop(self) -> None:
        """Stop all members, and wait. Raises MemberFailed for one that does not, or fails in leaving."""
        for process, _ in self._running.values():
            process.terminate()
        while self._running:
            name, (process, words) = self._running.popitem()
            try:
                code = process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise MemberFailed(f"it did not stop within {STOP_TIMEOUT_S:g} s", member=name) from None
            if code != 0:
                raise MemberFailed(_last_words(words) or f"it ended with code {code}", member=name)
            words.close()

    def __exit__(self, *_: object) -> None:
        for process, words in self._running.values():
            process.kill()
            process.wait()
            words.close()
        self._running.clear()


def _last_words(words: IO[bytes]) -> str:
    words.seek(0)
    lines = [line for line in words.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""


def member_arguments(
    *,
    bootstrap: str,
    group: str,
    topic: str,
    ledger: Path,
    region: Path,
    assignor: str,
    records_per_second: float,
) -> list[str]:
    """Return the arguments common to every member of one crew."""
    told = {
        "bootstrap": bootstrap,
        "group": group,
        "topic": topic,
        "ledger": str(ledger),
        "region": str(region),
        "assignor": assignor,
        "records-per-second": str(records_per_second),
    }
    return [f"--{name}={value}" for name, value in told.items()]
