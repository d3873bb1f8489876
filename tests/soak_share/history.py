"""The history of a share soak: a file of lines for each member, which a kill may cut in its last line.

    D NS PARTITION COUNT OFFSET...          a poll returned these records with this delivery count
    T NS PARTITION OFFSET:TYPE...           they are about to be acknowledged so
    S NS PARTITION OFFSET:TYPE...           the commit reported success

NS is the machine's monotonic clock. TYPE is 1 accept, 2 release, 3 reject.
"""

import os
import random
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ACCEPT, RELEASE, REJECT = 1, 2, 3
Typed = Mapping[int, Mapping[int, int]]
"""Types of acknowledgements by partition and offset."""


class Delivery(NamedTuple):
    """A record that a poll has returned, for the `nth` time as the broker counts."""

    at_ns: int
    partition: int
    offset: int
    nth: int


class Acknowledged(NamedTuple):
    """An acknowledgement that is about to be sent, or has succeeded."""

    at_ns: int
    partition: int
    offset: int
    kind: int


class History(NamedTuple):
    """All members' lines."""

    deliveries: list[Delivery]
    attempts: list[Acknowledged]
    successes: list[Acknowledged]


class Writer:
    """Appends the lines of one member."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def delivered(self, records: Iterable[tuple[int, int, int]], typed: Typed) -> None:
        """Records as (partition, offset, count), and their types."""
        now = time.monotonic_ns()
        by_count: dict[tuple[int, int], list[int]] = {}
        for partition, offset, count in records:
            by_count.setdefault((partition, count), []).append(offset)
        lines = [f"D {now} {place} {count} {' '.join(map(str, many))}" for (place, count), many in by_count.items()]
        self._write(lines + [_typed("T", now, place, acks) for place, acks in typed.items()])

    def succeeded(self, typed: Typed) -> None:
        """These acknowledgements had their effect."""
        now = time.monotonic_ns()
        self._write([_typed("S", now, place, acks) for place, acks in typed.items() if acks])

    def _write(self, lines: list[str]) -> None:
        if lines:
            os.write(self._file, ("\n".join(lines) + "\n").encode())


def draw_type(draw: random.Random) -> int:
    """Accept in 80 of 100 cases, release in 12, reject in 8."""
    return draw.choices((ACCEPT, RELEASE, REJECT), (80, 12, 8))[0]


def read(folder: Path) -> History:
    """The histories of all members in a folder."""
    found = History([], [], [])
    for path in sorted(folder.glob("*.history")):
        for line in path.read_bytes().split(b"\n")[:-1]:  # what follows the last end of a line was cut
            what, at, place, *rest = line.split()
            if what == b"D":
                count, *offsets = map(int, rest)
                found.deliveries.extend(Delivery(int(at), int(place), offset, count) for offset in offsets)
            else:
                acks = (tuple(map(int, one.split(b":"))) for one in rest)
                into = found.attempts if what == b"T" else found.successes
                into.extend(Acknowledged(int(at), int(place), offset, kind) for offset, kind in acks)
    return found


def _typed(what: str, now: int, partition: int, acks: Mapping[int, int]) -> str:
    return f"{what} {now} {partition} {' '.join(f'{offset}:{kind}' for offset, kind in acks.items())}"
