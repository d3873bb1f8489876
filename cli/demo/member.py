"""One member of the demo's group, in a process of its own so that it can be killed.

It is a member of a consistent region: what it counts and where it reads are one checkpoint, about once a second. What
it has counted since the last one when it is killed is undone, and counted again: never twice.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kohort.cli.demo.flight_state import FlightRecord, FlightState
from kohort.cli.demo.ledger import Ledger
from kohort.common import KohortError
from kohort.consistent_region import ConsistentRegion, Periodic
from kohort.consistent_region.region_history import HistoryEntry

SESSION_TIMEOUT_MS = 6_000  # the least a broker allows by default: the killed member's partitions rest for as long
HEARTBEAT_INTERVAL_MS = 500
MAX_PARTITION_FETCH_BYTES = 128 * 1024  # some thousand records a fetch: the picture moves, and a kill falls inside one
RESET_TIMEOUT_S = 60.0
LOOK_FOR_PARENT_S = 0.5
NAMES = {"reset_wanted": "undone"}  # what the ledger calls a moment, where it is another word


def run(task: argparse.Namespace, stopping: threading.Event) -> None:
    """Read until `stopping`. Raises what the region or the ledger raises."""
    ledger = Ledger(task.ledger)
    state = FlightState(task.name, ledger)
    region = ConsistentRegion(
        "demo",
        group=task.group,
        topics=[task.topic],
        bootstrap=task.bootstrap,
        member=task.name,
        coordinator=f"sqlite:///{task.region}",
        trigger=Periodic(task.checkpoint_every_s),
        start_position="beginning",
        state=state,
        handler=handler(task.records_per_second),
        on_moment=lambda moment: put_down(moment, task.name, state, ledger),
        reset_timeout_s=RESET_TIMEOUT_S,
        client_id=f"kohort-demo-{task.name}",
        assignors=[task.assignor],
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        max_partition_fetch_bytes=MAX_PARTITION_FETCH_BYTES,
    )
    threading.Thread(target=stop_in_time, args=(region, stopping), daemon=True).start()
    region.run()
    state.note()
    ledger.note(task.name, "left", generation=state.generation)
    ledger.close()


def handler(records_per_second: float) -> Callable[[FlightRecord, FlightState], None]:
    """Return a handler that counts a record, at a limited rate if one is given."""

    def count(record: FlightRecord, state: FlightState) -> None:
        state.count(record)
        if records_per_second:
            time.sleep(1 / records_per_second)

    return count


def put_down(moment: HistoryEntry, name: str, state: FlightState, ledger: Ledger) -> None:
    """Note the entry in the ledger, except a mere change of state."""
    if moment.kind == "assigned":
        state.generation = moment.generation
    if moment.kind == "state":
        return
    state.note()
    numbers = [place.partition for place in moment.partitions]
    kind = NAMES.get(moment.kind, moment.kind)
    cause = moment.text
    if moment.kind == "went_back":
        cause = "to the beginning" if moment.checkpoint is None else f"to checkpoint {moment.checkpoint}"
    ledger.note(name, kind, generation=moment.generation, partitions=numbers, cause=cause)


def stop_in_time(region: ConsistentRegion, stopping: threading.Event) -> None:
    """Stop the region once `stopping` is set or the parent process has ended."""
    parent = os.getppid()
    while not stopping.wait(LOOK_FOR_PARENT_S) and os.getppid() == parent:
        pass
    region.stop()


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m kohort.cli.demo.member", description=__doc__)
    arguments.add_argument("--bootstrap", required=True)
    arguments.add_argument("--group", required=True)
    arguments.add_argument("--topic", required=True)
    arguments.add_argument("--name", required=True)
    arguments.add_argument("--ledger", required=True, type=Path)
    arguments.add_argument("--region", required=True, type=Path, help="the region's SQLite file")
    arguments.add_argument("--assignor", default="range")
    arguments.add_argument("--checkpoint-every-s", type=float, default=1.0)
    arguments.add_argument("--records-per-second", type=float, default=0.0, help="go slower, to watch; 0 is full speed")
    return arguments


def main() -> int:
    task = parser().parse_args()
    # Ctrl-C reaches the whole foreground group; the one who started this process decides when it ends. SIGTERM is the
    # region's to hear.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(task, threading.Event())
    except KohortError as error:
        print(f"{task.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
