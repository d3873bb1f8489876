"""One member of the demo's group, in a process of its own so that it can be killed.

It is a member of a consistent region. Its counts and its offsets are one checkpoint, about once a second. A kill undoes
the counts since the last checkpoint, and the records are counted again: never twice.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from kohort.cli.demo.flights import Totals, add, carrier_of
from kohort.cli.demo.ledger import DemoEntry, Ledger
from kohort.common import KohortError
from kohort.common.named_tuple import NamedTuple
from kohort.consistent_region import ConsistentRegion, DictState, Periodic
from kohort.consistent_region.offsets import Positions
from kohort.consistent_region.region_history import HistoryEntry
from kohort.fastpath import Record

LOOK_FOR_PARENT_S = 0.5
NOTED_EVERY = 2_000
BETWEEN = "|"  # of carrier and tail number, which are letters and digits
NAMES = {"reset_wanted": "undone"}  # kinds of a HistoryEntry with another name in the ledger
SETTINGS: dict[str, Any] = {
    "session_timeout_ms": 6_000,  # the least a broker allows by default: the killed member's partitions rest so long
    "heartbeat_interval_ms": 500,
    # Some thousand records a fetch: the picture moves, and a kill falls inside one.
    "max_partition_fetch_bytes": 128 * 1024,
}


class MemberTask(NamedTuple):
    """The command line of a member, as JSON. `region` is the region's SQLite file."""

    name: str
    bootstrap: str
    group: str
    topic: str
    ledger: str
    region: str
    assignor: str
    records_per_second: float


class FlightState(DictState):
    """Counts of one task by `carrier|tail`, in the order of `Totals`."""

    def __init__(self, log: "ReadLog") -> None:
        super().__init__()
        self._log = log

    def count(self, record: Record) -> None:
        """Add one record to the counts."""
        key = f"{carrier_of(record)}{BETWEEN}{(record.key or b'').decode()}"
        add(record, self.setdefault(key, [0] * len(Totals._fields)))
        self._log.read(record)

    def snapshot(self, offsets: Positions) -> bytes:
        self._log.note()
        return super().snapshot(offsets)


class ReadLog:
    """Puts on the ledger what the member reads, before a checkpoint has it, and what happens to it."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.generation = -1
        self._name = name
        self._ledger = ledger
        self._noted = 0
        self._next = (-1, 0)

    def read(self, record: Record) -> None:
        """One record was counted."""
        if self._next != (record.partition, record.offset) or record.offset - self._noted >= NOTED_EVERY:
            self.note()
            self._noted = record.offset
        self._next = (record.partition, record.offset + 1)

    def note(self) -> None:
        """Put on the ledger what was handled since the last time."""
        partition, stop = self._next
        if self._noted < stop:
            read = DemoEntry(self._name, "read", self.generation, (partition,), start=self._noted, stop=stop)
            self._ledger.append(read)
        self._noted = stop

    def put_down(self, entry: HistoryEntry) -> None:
        """Note the region's entry in the ledger, except a mere change of state."""
        if entry.kind == "assigned":
            self.generation = entry.generation
        if entry.kind == "state":
            return
        self.note()
        cause = entry.text
        if entry.kind == "went_back":
            cause = "to the beginning" if entry.checkpoint is None else f"to checkpoint {entry.checkpoint}"
        kind, partitions = NAMES.get(entry.kind, entry.kind), sorted(place.partition for place in entry.partitions)
        self._ledger.append(DemoEntry(self._name, kind, entry.generation, tuple(partitions), cause))


def run(task: MemberTask) -> None:
    """Read until SIGTERM or until the parent process has ended. Raises what the region or the ledger raises."""
    ledger = Ledger(Path(task.ledger))
    log = ReadLog(task.name, ledger)

    def count(record: Record, state: FlightState) -> None:
        state.count(record)
        if task.records_per_second:
            time.sleep(1 / task.records_per_second)

    region = ConsistentRegion(
        "demo",
        group=task.group,
        topics=[task.topic],
        bootstrap=task.bootstrap,
        member=task.name,
        coordinator=f"sqlite:///{task.region}",
        trigger=Periodic(1.0),
        start_position="beginning",
        state=lambda: FlightState(log),
        handler=count,
        on_moment=log.put_down,
        reset_timeout_s=60.0,
        client_id=f"kohort-demo-{task.name}",
        assignors=[task.assignor],
        **SETTINGS,
    )
    threading.Thread(target=_stop_with_parent, args=(region, os.getppid()), daemon=True).start()
    region.run()
    log.note()
    ledger.append(DemoEntry(task.name, "left", log.generation))


def _stop_with_parent(region: ConsistentRegion, parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_FOR_PARENT_S)
    region.stop()


def main() -> int:
    task = MemberTask(**json.loads(sys.argv[1]))
    # Ctrl-C reaches the whole foreground group. The parent decides when a member ends. The region handles SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(task)
    except KohortError as error:
        print(f"{task.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
