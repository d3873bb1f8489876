"""Samples of the resources of living processes, and checks for growth: memory, threads, descriptors.

Compared are two windows of a process's life, each a fifth of it: the second, when it has warmed up, and the last. Of
memory the median counts, of threads and descriptors the least. One connection more at a moment shows nothing, and a
leaked one never goes away.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

MIB = 1 << 20
FIFTHS = 5
LEAST_HOURS = 0.25  # before that a process has not warmed up
ALLOWED_MIB, ALLOWED_SHARE = 2.0, 0.04
ALLOWED_DESCRIPTORS = 3  # one more connection to each broker
Processes = Iterable[tuple[str, int]]


class Sample(NamedTuple):
    """`at_s`: since the beginning; `who`: what the process is in the run."""

    at_s: float
    who: str
    pid: int
    resident_mib: float
    threads: int
    descriptors: int


class Growth(NamedTuple):
    """One process's life: what it held when warm and at the end, and in words what of that is growth."""

    who: str
    pid: int
    hours: float
    resident_mib: tuple[float, float]
    threads: tuple[int, int]
    descriptors: tuple[int, int]
    grew: tuple[str, ...]


def look(who: str, pid: int, at_s: float) -> Sample | None:
    """None: there is no such process any more."""
    home = Path("/proc") / str(pid)
    try:
        pages = int((home / "statm").read_text().split()[1])
        return Sample(
            at_s,
            who,
            pid,
            pages * os.sysconf("SC_PAGE_SIZE") / MIB,
            len(os.listdir(home / "task")),
            len(os.listdir(home / "fd")),
        )
    except OSError:
        return None


class Sampler(threading.Thread):
    """Samples the processes named by `processes`, every `every_s`, until it is stopped; `samples` has all of it."""

    def __init__(self, processes: Callable[[], Processes], every_s: float) -> None:
        super().__init__(name="sampler", daemon=True)
        self.samples: list[Sample] = []
        self.began_at = time.monotonic()
        self._processes, self._every_s = processes, every_s
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._every_s):
            at_s = round(time.monotonic() - self.began_at, 1)
            found = (look(who, pid, at_s) for who, pid in self._processes())
            self.samples += [sample for sample in found if sample is not None and sample.resident_mib]

    def stop(self) -> None:
        self._over.set()
        self.join()


def growth(samples: Sequence[Sample]) -> list[Growth]:
    """The growth of the longest life under each name; too short ones are left out."""
    lives: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        lives.setdefault((sample.who, sample.pid), []).append(sample)
    longest: dict[str, list[Sample]] = {}
    for (who, _pid), life in lives.items():
        if len(life) > len(longest.get(who, ())):
            longest[who] = life
    lived = [life for _who, life in sorted(longest.items()) if _hours(life) >= LEAST_HOURS and len(life) >= FIFTHS]
    return [_of(life) for life in lived]


def _hours(life: Sequence[Sample]) -> float:
    return (life[-1].at_s - life[0].at_s) / 3600


def _of(life: list[Sample]) -> Growth:
    fifth = len(life) // FIFTHS
    warm, end = life[fifth : 2 * fifth], life[-fifth:]
    resident = tuple(round(statistics.median(one.resident_mib for one in some), 1) for some in (warm, end))
    threads = tuple(min(one.threads for one in some) for some in (warm, end))
    descriptors = tuple(min(one.descriptors for one in some) for some in (warm, end))
    grew = []
    if resident[1] - resident[0] > max(ALLOWED_MIB, ALLOWED_SHARE * resident[0]):
        grew.append(f"memory from {resident[0]} to {resident[1]} MiB")
    if threads[1] > threads[0]:
        grew.append(f"threads from {threads[0]} to {threads[1]}")
    if descriptors[1] > descriptors[0] + ALLOWED_DESCRIPTORS:
        grew.append(f"descriptors from {descriptors[0]} to {descriptors[1]}")
    return Growth(
        life[0].who,
        life[0].pid,
        round(_hours(life), 3),
        (resident[0], resident[1]),
        (threads[0], threads[1]),
        (descriptors[0], descriptors[1]),
        tuple(grew),
    )
