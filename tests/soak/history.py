"""The events of a soak run, one JSON line an entry, in the order of the machine's monotonic clock.

Every process writes a file of its own, whole lines at a time and straight to the kernel. A SIGKILL therefore loses
no earlier entry. An entry of a member is written before what follows from it: records before the commit
that speaks of them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.testing.starved import lost_s, starved

# What entries say beside `at` (ns, monotonic), `who` and `what`:
#   assigned   partitions (new), assignment (all), generation (-1: this client does not say)
#   revoked    partitions: let go as the protocol requires, written while they are still owned
#   lost       partitions: gone already
#   delivered  began (ns: before the poll that returned them), slices [[partition, first, next offset], ...]
#   committing number, offsets {partition: next offset}, timeout_s (None: it has none)
#   commit     number, outcome: "ok" or an error; took_s, starved_s. A commit without one was stored, or not
#   failed     error;   closing;   left  healthy, reason
#   produced   acks [[partition, offset], ...]          (`who`: producer)
#   started, killed, stopped, continued, leaving, ended  member, code, protocol;   broker  act, node
#   converting  to: the protocol of later members;   became  kind, due: what the group is in the end, and should be
#   quiet: faults are over;   drained  done, behind     (`who`: conductor)


class Entry(NamedTuple):
    """One line; `facts` as the table above says."""

    at: int
    who: str
    what: str
    facts: dict[str, Any]

    @property
    def kind(self) -> str:
        """The kind of client that a member is: its name without the number."""
        return self.who.rpartition("-")[0]


class Writer:
    """Appends entries of `who` to a file."""

    def __init__(self, path: Path, who: str) -> None:
        self._who = who
        self._commits = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, what: str, **facts: object) -> None:
        entry = {"at": time.monotonic_ns(), "who": self._who, "what": what, **facts}
        os.write(self._file, (json.dumps(entry) + "\n").encode())

    def committing(
        self, offsets: Mapping[int, int], timeout_s: float | None = None
    ) -> Callable[[BaseException | None], None]:
        """A commit begins; call what comes back with how it ended."""
        self._commits += 1
        number, before = self._commits, starved() if timeout_s is not None else {}
        self.write("committing", number=number, offsets=dict(offsets), timeout_s=timeout_s)
        began = time.monotonic()  # now: a busy disk may have kept the line for seconds

        def settle(error: BaseException | None) -> None:
            took_s = time.monotonic() - began
            outcome = "ok" if error is None else f"{type(error).__name__}: {error}"
            starved_s = lost_s(before) if before else 0.0
            self.write("commit", number=number, outcome=outcome, took_s=took_s, starved_s=starved_s)

        return settle


def read(paths: Iterable[Path]) -> list[Entry]:
    """All entries of all files, by time. A last line that a kill has torn is left out."""
    entries = []
    for path in paths:
        *lines, _torn = path.read_bytes().split(b"\n")
        for line in lines:
            facts = json.loads(line)
            entries.append(Entry(facts.pop("at"), facts.pop("who"), facts.pop("what"), facts))
    return sorted(entries, key=lambda entry: entry.at)
