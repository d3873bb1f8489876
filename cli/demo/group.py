"""The act of the group.

Three members of a region read. One is killed, and a fourth joins. The killed member restarts. At the end all records
are in a checkpoint and committed.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO

from kohort.cli.demo import DemoFailed
from kohort.cli.demo.flights import Aircraft, Tally, Totals
from kohort.cli.demo.ledger import DemoEntry, GroupHistory, Ledger, now_ms
from kohort.cli.demo.member import BETWEEN, MemberTask
from kohort.consistent_region import DictState
from kohort.consistent_region.coordinator import RegionCoordinator
from kohort.consistent_region.manifest import Manifest
from kohort.consistent_region.store import SqliteStore

FIRST, VICTIM, FOURTH = ("ada", "ben", "cleo"), "ben", "dora"
LOOK_EVERY_S = 0.1
LINE_EVERY_S = 1.0
FOURTH_AFTER_S = 0.5
BACK_AFTER_S = 1.5
STALL_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0


class Crew(AbstractContextManager["Crew"]):
    """The members' processes by name. None outlives the `with` block. `task`: of all, without the name."""

    def __init__(self, ledger: Ledger, task: MemberTask) -> None:
        self._ledger = ledger
        self._task = task
        self._running: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}

    def start(self, name: str) -> None:
        self._ledger.append(DemoEntry(name, "started"))
        # Errors go to a file, because a pipe that is not read would stop the member once it is full.
        errors = tempfile.TemporaryFile()  # noqa: SIM115 -- it lives as long as the process that writes it
        task = json.dumps(self._task._replace(name=name)._asdict())
        # -P: a module of the current folder must not take the place of a library's.
        command = (sys.executable, "-P", "-m", "kohort.cli.demo.member", task)
        self._running[name] = (subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=errors), errors)

    def kill(self, name: str) -> int:
        """SIGKILL: no LeaveGroup, no commit. Returns the process id."""
        process, _ = self._running.pop(name)
        process.kill()
        process.wait()
        self._ledger.append(DemoEntry(name, "killed", cause="SIGKILL"))
        return process.pid

    def check(self, code: int | None = None) -> None:
        """Raises DemoFailed for a member with another exit code. None: it runs."""
        for name, (process, errors) in self._running.items():
            if process.poll() != code:
                errors.seek(0)
                lines = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
                raise DemoFailed((lines or [f"it ended with code {process.returncode}"])[-1], member=name)

    def stop(self) -> None:
        """Stop all members, and wait. Raises DemoFailed for one that does not stop, or fails in leaving."""
        for process, _ in self._running.values():
            process.terminate()
        for name, (process, _) in self._running.items():
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                raise DemoFailed(f"it did not stop within {STOP_TIMEOUT_S:g} s", member=name) from None
        self.check(0)

    def __exit__(self, *_: object) -> None:
        for process, _file in self._running.values():
            process.kill()
            process.wait()


@dataclass
class GroupAct:
    """The act on a crew. `saved`: the offsets of the region's newest checkpoint. `history`: what the ledger says."""

    crew: Crew
    ledger: Ledger
    history: GroupHistory
    committed: Callable[[], dict[int, int]]
    saved: Callable[[], dict[int, int]]
    say: Callable[[str], None]
    _next_line: float = 0.0

    def play(self, kill_at: float) -> None:
        """Play the act to its end. Raises DemoFailed.

        It ends when the saved and the committed offsets are the ends of the partitions, and living members own them
        all. All that was undone has been counted again then.
        """
        for name in FIRST:
            self.crew.start(name)
        self.say(f"{', '.join(FIRST)} form a group")
        self._watch_until(lambda: self._is_time_to_kill(kill_at))
        pid = self.crew.kill(VICTIM)
        self.say(f"{VICTIM} (process {pid}) was killed with SIGKILL at {self.history.read:,} records")
        self._watch(FOURTH_AFTER_S)
        self.crew.start(FOURTH)
        self.say(f"{FOURTH} joins")
        self._watch(BACK_AFTER_S)
        self.crew.start(VICTIM)
        self.say(f"{VICTIM} is started again: counts are of partitions, and go with them to any member")
        self._watch_until(lambda: self._is_settled() and self.committed() == self.history.ends)
        self.crew.stop()
        self._look()

    def _look(self) -> None:
        for entry in self.ledger.unread():
            self.history.add(entry)
        self.history.sample(now_ms(), self.saved())
        if time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY_S
            history, each = self.history, self.history.members.values()
            members = ", ".join(f"{one.name} {' '.join(map(str, one.partitions)) or one.state}" for one in each)
            self.say(f"  {history.read:,} read, {history.reread:,} twice, {history.unsaved:,} to save: {members}")

    def _watch(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self._watch_until(lambda: time.monotonic() >= until)

    def _watch_until(self, done: Callable[[], bool]) -> None:
        seen, since = None, time.monotonic()
        while True:
            self.crew.check()
            self._look()
            if done():
                return
            now = (self.history.read, len(self.history.slices), len(self.history.events), self.history.unsaved)
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > STALL_TIMEOUT_S:
                raise DemoFailed(
                    f"nothing has moved for {STALL_TIMEOUT_S:g} s",
                    lag=self.history.total - self.history.read,
                    unsaved=self.history.unsaved,
                    unowned=sorted(self.history.unowned),
                    members=[f"{member.name} {member.state}" for member in self.history.members.values()],
                )
            time.sleep(LOOK_EVERY_S)

    def _is_time_to_kill(self, kill_at: float) -> bool:
        read, total = self.history.read, self.history.total
        # Of few records, the first member may have read all before the victim came.
        ready = read == total or any(one.member == VICTIM for one in self.history.slices)
        return ready and read >= kill_at * total and bool(self.history.members[VICTIM].partitions)

    def _is_settled(self) -> bool:
        came = all(self.history.members[name].generation >= 0 for name in (FOURTH, VICTIM))
        return came and not self.history.unowned and self.history.unsaved == 0


class Checkpoints:
    """The checkpoints of the demo's region, read from outside the group."""

    def __init__(self, store: SqliteStore, group: str) -> None:
        self._region = RegionCoordinator(store, "demo", group)

    def newest(self) -> Manifest | None:
        """The newest complete one."""
        return next(reversed(self._region.manifests()), None)

    def offsets(self) -> dict[int, int]:
        """The offset of each partition in the newest one."""
        newest = self.newest()
        return {place.partition: at.offset for place, at in newest.offsets.items()} if newest else {}

    def totals(self, checkpoint: Manifest) -> Tally:
        """The sum of all tasks' states."""
        whole: Tally = {}
        for cut in checkpoint.tasks:
            state = DictState()
            state.restore(self._region.state(cut.state), {})
            for key, counts in state.items():
                aircraft = Aircraft(*key.split(BETWEEN))
                whole[aircraft] = whole.get(aircraft, Totals()).plus(Totals(*counts))
        return whole
