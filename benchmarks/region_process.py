"""One process that counts by key: `region_process.py rows|batches|loop BOOTSTRAP TOPIC RECORDS`. Prints JSON."""

import json
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

from kohort import ConsistentRegion, Consumer, Record, RecordColumns
from kohort.consistent_region import DictState, Periodic
from kohort.consistent_region.states import RegionState


class Clock:
    """Times from the first record on."""

    def __init__(self) -> None:
        self.began: tuple[float, float] | None = None

    def begin(self) -> None:
        self.began = self.began or (time.perf_counter(), time.process_time())

    def print(self) -> None:
        assert self.began is not None
        took_s, cpu_s = time.perf_counter() - self.began[0], time.process_time() - self.began[1]
        print(json.dumps({"took_s": took_s, "cpu_s": cpu_s}))


def region(bootstrap: str, topic: str, records: int, **given: Any) -> None:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        made = ConsistentRegion(
            "count",
            group=f"count-{uuid.uuid4().hex}",
            bootstrap=bootstrap,
            topics=[topic],
            coordinator=f"sqlite:///{folder}/region.db",
            trigger=Periodic(5),
            start_position="beginning",
            on_moment=lambda moment: clock.begin() if moment.state is RegionState.RECORDS_FETCHED else None,
            **given,
        )
        threading.Thread(target=_end, args=(made, records, clock), daemon=True).start()
        made.run()


def _end(made: ConsistentRegion, records: int, clock: Clock) -> None:
    """Stop the region when all records are in a checkpoint."""
    while made.metrics()["records_submitted_total"] < records:
        time.sleep(0.01)
    before = made.coordinator.checkpoints()
    made.make_consistent()
    while made.coordinator.checkpoints()[-1:] == before[-1:]:
        time.sleep(0.005)
    clock.print()
    made.stop()


def rows(bootstrap: str, topic: str, records: int) -> None:
    def count(record: Record, state: DictState) -> None:
        key = record.key.decode()  # type: ignore[union-attr]
        state[key] = state.get(key, 0) + 1

    region(bootstrap, topic, records, handler=count)


def batches(bootstrap: str, topic: str, records: int) -> None:
    def count(columns: RecordColumns, state: DictState) -> None:
        for key, number in Counter(columns.keys).items():
            name = key.decode()  # type: ignore[union-attr]
            state[name] = state.get(name, 0) + number

    region(bootstrap, topic, records, handler=count, batch_records=20_000, max_poll_records=20_000)


def loop(bootstrap: str, topic: str, records: int) -> None:
    clock, counts, read = Clock(), dict[str, int](), 0
    with Consumer(bootstrap, group=f"count-{uuid.uuid4().hex}", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        for columns in consumer:
            clock.begin()
            for record in columns:
                key = record.key.decode()  # type: ignore[union-attr]
                counts[key] = counts.get(key, 0) + 1
            read += len(columns)
            if read >= records:
                break
    clock.print()


KINDS: dict[str, Callable[[str, str, int], None]] = {"rows": rows, "batches": batches, "loop": loop}

if __name__ == "__main__":
    KINDS[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
