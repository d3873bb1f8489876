"""Faults, their targets and their ends: a plan drawn from a seed, and the crew it is done to."""

import heapq
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from kohort.testing import RealCluster
from kohort.testing.readiness import brokers_seen
from tests.soak_region.member_process import ENDED_BY, ENDED_BY_AN_ERROR
from tests.soak_region.store_host import StoreHost

ROOT = Path(__file__).parents[2]
KINDS = {
    "member killed": 8,
    "member stopped": 5,
    "member started twice": 1,
    "broker killed": 3,
    "broker stopped": 2,
    "store's host killed": 2,
    "store's host stopped": 1,
}
STARTS_WITHIN_S = 60.0
CURABLE = ("CoordinatorUnavailable", "FencedError", "FencedInstance", "SinkUnavailable")
"""Errors that a member may end with under these harms. The soak starts it again."""


class Crew:
    """The members' processes, started again when they end as they may. `static` members keep their partitions when
    they come back within the session, and only one process may have their instance id."""

    def __init__(
        self, names: tuple[str, ...], static: tuple[str, ...], arguments: Callable[[str], list[str]], folder: Path
    ) -> None:
        self.names = names
        self.static = static
        self.ended: Counter[str] = Counter()
        self._arguments = arguments
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._zombies: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.soak_region.member_process", *self._arguments(name)]
        with (self._folder / f"{name}.log").open("ab") as output:
            self._processes[name] = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def pause(self, name: str) -> subprocess.Popen[bytes] | None:
        process = self._processes.get(name)
        if process is not None:
            process.send_signal(signal.SIGSTOP)
        return process

    def replace(self, name: str) -> subprocess.Popen[bytes] | None:
        """Start a second process under the name of one that is stopped, which will wake up a zombie."""
        process = self.pause(name)
        if process is not None:
            self._zombies.append((name, process))
            self.start(name)
        return process

    def alive(self, name: str) -> bool:
        return name in self._processes

    def pids(self, names: Iterable[str]) -> dict[str, int]:
        """The processes of running members. Callable on any thread."""
        found = ((name, self._processes.get(name)) for name in names)
        return {name: process.pid for name, process in found if process is not None}

    @property
    def twins(self) -> bool:
        """True if any static member still has two processes. Either may be the one that has to go: a process that was
        stopped before it had registered comes second. Two dynamic members are two members, and both go on."""
        return any(name in self.static for name, _process in self._zombies)

    def tend(self) -> None:
        """Start members again that ended by an error that a restart cures. Raises AssertionError for any other end."""
        for name, process in list(self._processes.items()):
            if process.poll() is not None:
                self._ended(name, process)
                self.start(name)
        for name, zombie in [one for one in self._zombies if one[1].poll() is not None]:
            self._zombies.remove((name, zombie))
            self._ended("zombie", zombie)

    def _ended(self, name: str, process: subprocess.Popen[bytes]) -> None:
        lines = [] if name == "zombie" else (self._folder / f"{name}.log").read_text(errors="replace").splitlines()
        assert process.returncode == ENDED_BY_AN_ERROR, f"{name} ended with {process.returncode}: {lines[-30:]}"
        reported = next((line for line in reversed(lines) if line.startswith(ENDED_BY)), "")
        error = reported.removeprefix(f"{ENDED_BY} ").partition(":")[0]
        assert name == "zombie" or error in CURABLE, f"{name} {reported}"
        self.ended[error or name] += 1

    def stop(self) -> list[int]:
        """SIGTERM to all, and their exit codes."""
        for process in self._all():
            process.send_signal(signal.SIGCONT)
            _wait_until_it_heeds(process)
            process.terminate()
        return [process.wait(180) for process in self._processes.values()]

    def close(self) -> None:
        for process in self._all():
            if process.poll() is None:
                process.kill()
            process.wait()

    def _all(self) -> tuple[subprocess.Popen[bytes], ...]:
        return (*self._processes.values(), *(process for _name, process in self._zombies))


def _wait_until_it_heeds(process: subprocess.Popen[bytes]) -> None:
    """One that has just been started has no handler of SIGTERM yet, and would die of it."""
    deadline = time.monotonic() + STARTS_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        if int(caught.split()[1], 16) & 1 << signal.SIGTERM - 1:
            return
        time.sleep(0.05)


class Harm:
    """Does `kinds` (name to odds) to `whom` of a crew, the brokers and the store's host, one about every `every_s`;
    `say` is called with each."""

    def __init__(
        self,
        seed: int,
        crew: Crew,
        cluster: RealCluster,
        host: StoreHost,
        *,
        every_s: float,
        say: Callable[[str], None],
        kinds: Mapping[str, int] = KINDS,
        whom: Sequence[str] = (),
    ) -> None:
        self.done: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._crew, self._cluster, self._host = crew, cluster, host
        self._every_s = every_s
        self._say = say
        self._kinds, self._whom = kinds, whom or crew.names
        self._repairs: list[tuple[float, int, Callable[[], None]]] = []
        self._stopped: set[str] = set()
        self._broker_down = self._store_down = False

    def run(self, kills: int) -> None:
        """All of them, and every repair. Raises AssertionError if a member ends as it may not."""
        next_at = time.monotonic() + self._every_s
        while sum(self.done.values()) < kills or self._repairs:
            now = time.monotonic()
            while self._repairs and self._repairs[0][0] <= now:
                heapq.heappop(self._repairs)[2]()
            if sum(self.done.values()) < kills and now >= next_at:
                self._one()
                next_at = now + self._every_s * self._chance.uniform(0.5, 1.5)
            self._crew.tend()
            time.sleep(0.1)

    def _one(self) -> None:
        possible = [kind for kind in self._kinds if self._possible(kind)]
        if not possible:
            return  # all are away; the next one comes soon
        kind = self._chance.choices(possible, [self._kinds[one] for one in possible])[0]
        self.done[kind] += 1
        after_s = self._chance.uniform(0.5, 10.0)
        whom = self._do(kind, after_s)
        self._say(f"{sum(self.done.values()):4} {kind}: {whom}, for {after_s:.1f} s")

    def _possible(self, kind: str) -> bool:
        if kind.startswith("broker"):
            return not self._broker_down  # two at once of three, and nothing at all can be written
        if kind.startswith("store"):
            return not self._store_down
        return bool(self._free())

    def _free(self) -> list[str]:
        return [name for name in self._whom if name not in self._stopped and self._crew.alive(name)]

    def _do(self, kind: str, after_s: float) -> str:
        what, _, how = kind.rpartition(" ")
        if what == "broker":
            return self._broker(how, after_s)
        if what == "store's host":
            self._store_down = True
            self._later(after_s, self._host.stop() if how == "stopped" else self._host.kill(), self._store_is_up)
            return type(self._host).__name__
        name = self._chance.choice(self._free())
        if how == "killed":
            self._crew.kill(name)
            self._later(after_s, lambda: self._crew.start(name))
        else:
            self._stopped.add(name)
            process = self._crew.pause(name) if how == "stopped" else self._crew.replace(name)
            assert process is not None
            self._later(after_s, lambda: process.send_signal(signal.SIGCONT), lambda: self._stopped.discard(name))
        return name

    def _broker(self, how: str, after_s: float) -> str:
        node = self._chance.choice(self._cluster.nodes)
        self._broker_down = True

        def is_up() -> None:
            if brokers_seen(node.bootstrap) < len(self._cluster.nodes):
                self._later(1.0, is_up)  # on a busy machine a broker takes its time, and the next one waits for it
            else:
                self._broker_down = False

        if how == "killed":
            node.kill()
            self._later(after_s, lambda: node.launch(remove_if_orphaned=None))
            self._later(after_s + 5.0, is_up)
        else:
            node.pause()
            self._later(after_s, node.resume)
            self._later(after_s + 1.0, is_up)
        return str(node.node_id)

    def _store_is_up(self) -> None:
        self._store_down = False

    def _later(self, after_s: float, *repairs: Callable[[], None]) -> None:
        for repair in repairs:
            heapq.heappush(self._repairs, (time.monotonic() + after_s, self._chance.getrandbits(32), repair))
