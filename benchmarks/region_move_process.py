"""A member of a region with a large task: `region_move_process.py BOOTSTRAP TOPIC GROUP URL BIG KEYS OUTPUT`.

The first record of partition BIG fills the state of its task with KEYS keys. At the end, OUTPUT has the times
(`time.monotonic`, s) at which records of each partition were handled.
"""

import json
import signal
import sys
import time
from pathlib import Path

from kohort import ConsistentRegion, Record
from kohort.consistent_region import DictState, Periodic

VALUE = "v" * 80


def main(bootstrap: str, topic: str, group: str, url: str, big: int, keys: int, output: str) -> None:
    times: dict[int, list[float]] = {}

    def handle(record: Record, state: DictState) -> None:
        if record.partition == big and not state:
            state.update({f"key-{number:08}": VALUE for number in range(keys)})
        state["count"] = state.get("count", 0) + 1
        times.setdefault(record.partition, []).append(time.monotonic())

    region = ConsistentRegion(
        "move",
        group=group,
        bootstrap=bootstrap,
        topics=[topic],
        coordinator=url,
        state=DictState,
        handler=handle,
        trigger=Periodic(2.0),
        start_position="beginning",
        hand_over=True,
        heartbeat_interval_ms=500,
    )
    signal.signal(signal.SIGTERM, lambda *_: region.stop())
    print("running", flush=True)
    region.run()
    Path(output).write_text(json.dumps(times))


if __name__ == "__main__":
    bootstrap, topic, group, url, big, keys, output = sys.argv[1:]
    main(bootstrap, topic, group, url, int(big), int(keys), output)
