"""One member of the demo's group, in a process of its own so that it can be killed.

It reads with `kohort.Consumer`, puts every slice on the ledger, and commits about once a second: what it has on record
but not yet committed when it is killed is what its successor reads again.
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path

from kohort.cli.demo.ledger import Ledger
from kohort.coordinator_client import Assigned, Consumer, Lost, RebalanceHooks, Revoked
from kohort.coordinator_client.errors import CommitFailed
from kohort.fastpath import KohortError, TopicPartition

SESSION_TIMEOUT_MS = 6_000  # the least a broker allows by default: the killed member's partitions rest for as long
HEARTBEAT_INTERVAL_MS = 500
MAX_PARTITION_FETCH_BYTES = 128 * 1024  # some thousand records a slice: the picture moves, and a kill falls inside one
POLL_TIMEOUT_S = 0.2


class Bookkeeping(RebalanceHooks):
    """Keeps what is read but not committed, and tells the ledger what happened to this member."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.generation = -1
        self.uncommitted: dict[TopicPartition, int] = {}
        self._name = name
        self._ledger = ledger

    def on_assigned(self, event: Assigned) -> None:
        self.generation = event.generation
        self._note("assigned", event.generation, event.assignment, str(event.cause))

    def on_revoked(self, event: Revoked) -> dict[TopicPartition, int]:
        self._note("revoked", event.generation, event.partitions, str(event.cause))
        return {place: self.uncommitted.pop(place) for place in event.partitions if place in self.uncommitted}

    def on_lost(self, event: Lost) -> None:
        for place in event.partitions:
            self.uncommitted.pop(place, None)
        self._note("lost", event.generation, event.partitions, str(event.cause))

    def _note(self, kind: str, generation: int, partitions: frozenset[TopicPartition], cause: str) -> None:
        numbers = [place.partition for place in partitions]
        self._ledger.note(self._name, kind, generation=generation, partitions=numbers, cause=cause)


def run(task: argparse.Namespace, stop: threading.Event) -> None:
    """Read until `stop`. Raises what the consumer or the ledger raises."""
    ledger = Ledger(task.ledger)
    hooks = Bookkeeping(task.name, ledger)
    parent = os.getppid()
    with Consumer(
        task.bootstrap,
        group=task.group,
        client_id=f"kohort-demo-{task.name}",
        assignors=[task.assignor],
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        max_partition_fetch_bytes=MAX_PARTITION_FETCH_BYTES,
    ) as consumer:
        consumer.subscribe([task.topic], hooks=hooks)
        commit_at = time.monotonic() + task.commit_every_s
        # An orphan reads for nobody: the one who started it is gone and cannot say stop.
        while not stop.is_set() and os.getppid() == parent:
            for columns in consumer.poll(POLL_TIMEOUT_S):
                place = TopicPartition(columns.topic, columns.partition)
                ledger.append(task.name, hooks.generation, place, columns)
                hooks.uncommitted[place] = columns.next_offset
                if task.records_per_second:
                    time.sleep(len(columns) / task.records_per_second)
            if time.monotonic() >= commit_at and hooks.uncommitted:
                # The group is changing: on_revoked will answer with the same offsets; or on_lost, and they are re-read.
                with contextlib.suppress(CommitFailed):
                    consumer.commit(hooks.uncommitted)
                    hooks.uncommitted.clear()
                commit_at = time.monotonic() + task.commit_every_s
        # Closing revokes, and what on_revoked answers is committed.
    ledger.note(task.name, "left", generation=hooks.generation)
    ledger.close()


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m kohort.cli.demo.member", description=__doc__)
    arguments.add_argument("--bootstrap", required=True)
    arguments.add_argument("--group", required=True)
    arguments.add_argument("--topic", required=True)
    arguments.add_argument("--name", required=True)
    arguments.add_argument("--ledger", required=True, type=Path)
    arguments.add_argument("--assignor", default="range")
    arguments.add_argument("--commit-every-s", type=float, default=1.0)
    arguments.add_argument("--records-per-second", type=float, default=0.0, help="go slower, to watch; 0 is full speed")
    return arguments


def main() -> int:
    task = parser().parse_args()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # Ctrl-C reaches the whole foreground group; the one who started this process decides when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run(task, stop)
    except KohortError as error:
        print(f"{task.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
