"""A client's process of `light`, from outside: its start, the records that it reads, and its system calls."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Self

from benchmarks.light_clients import Task
from benchmarks.light_meter import PROBE, Usage, stamped

FRANZ_GO = "franz-go"
READY_S, PROBE_S = 60.0, 0.5
Figures = Mapping[str, float]


@cache
def franz_go(package: str = ".") -> Path | None:
    """A program of `franz_go/`, built in a scratch folder. None without Go."""
    if shutil.which("go") is None:
        return None
    program = Path(tempfile.gettempdir()) / f"kohort-franz-go-{package.strip('./')}{os.getuid()}"
    command = ["go", "build", "-o", str(program), package]
    subprocess.run(command, cwd=Path(__file__).parent / "franz_go", check=True)
    return program


class ClientProcess:
    """A client with its own process. Its output is one JSON line for each phase."""

    def __init__(self, task: Task) -> None:
        self.task = task
        program = [str(franz_go())] if task.client == FRANZ_GO else [sys.executable, "-m", "benchmarks.light_clients"]
        self._process = subprocess.Popen([*program, json.dumps(task._asdict())], stdout=subprocess.PIPE, bufsize=0)
        self._phases = count(PROBE + 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._process.kill()
        self._process.communicate()

    def facts(self, timeout_s: float = READY_S) -> dict[str, Any] | None:
        """The next line, or None after `timeout_s`."""
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            return None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.task.client} ended with status {self._process.wait()}")
        facts: dict[str, Any] = json.loads(line)
        return facts

    def phase_facts(self) -> Figures:
        """The figures of the next phase."""
        while (facts := self.facts()) is not None:
            if "phase" in facts:
                return facts
        raise TimeoutError(f"{self.task.client} did not read all records of a phase")

    def become_ready(self, producer: Any) -> None:
        """Send probes until the client has read all partitions."""
        limit = time.monotonic() + READY_S
        while time.monotonic() < limit:
            for partition in range(self.task.partitions):
                producer.produce(self.task.topic, stamped(PROBE, 0, partition), partition=partition)
            producer.flush()
            if self.facts(PROBE_S) is not None:
                time.sleep(PROBE_S)
                return
        raise TimeoutError(f"{self.task.client} did not read all partitions")

    def measured(self, producer: Any, rate: int, seconds: float) -> Figures:
        """Send a phase, and return the client's figures of it."""
        phase, records = next(self._phases), max(2, round(rate * seconds))
        began = time.monotonic()
        for number in range(records):
            if (left := began + number / rate - time.monotonic()) > 0:
                producer.poll(0)
                time.sleep(left)
            partition = number % self.task.partitions
            producer.produce(self.task.topic, stamped(phase, records, partition), partition=partition)
        producer.flush()
        return self.phase_facts()

    def calls(self, producer: Any, rate: int, seconds: float) -> dict[str, float]:
        """System calls of a phase by name, for each delivered batch."""
        with tempfile.NamedTemporaryFile("r", suffix=".strace") as table:
            command = ["strace", "-f", "-c", "-U", "name,calls", "-o", table.name, "-p", str(self._process.pid)]
            with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
                assert tracer.stderr is not None
                tracer.stderr.readline()  # now it is attached
                figures = self.measured(producer, rate, seconds)
                tracer.send_signal(signal.SIGINT)
                tracer.communicate(timeout=READY_S)
            rows = [line.split() for line in table.read().splitlines()]
        return {row[0]: int(row[1]) / figures["deliveries"] for row in rows if len(row) == 2 and row[1].isdigit()}

    def usage(self) -> Usage:
        """CPU time and voluntary context switches of all threads until now."""
        cpu_ns = wake_ups = 0
        for thread in Path(f"/proc/{self._process.pid}/task").iterdir():
            cpu_ns += int((thread / "schedstat").read_text().split()[0])
            for line in (thread / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    wake_ups += int(line.split()[1])
        return Usage(cpu_ns / 1e9, wake_ups)
