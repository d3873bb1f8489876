"""quixstreams counting by key: `region_quix.py at-least-once|exactly-once BOOTSTRAP TOPIC RECORDS`. Prints JSON.

Timed from the first record to the commit after the last one. It has its own Python, and imports nothing of kohort.
"""

import json
import sys
import tempfile
import time
import uuid
from typing import Any

from quixstreams import Application, State  # type: ignore[import-not-found]


def main(guarantee: str, bootstrap: str, topic: str, records: int) -> None:
    began: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        app = Application(
            broker_address=bootstrap,
            consumer_group=f"quix-{uuid.uuid4().hex}",
            auto_offset_reset="earliest",
            processing_guarantee=guarantee,
            state_dir=folder,
            loglevel="ERROR",
        )

        def count(value: Any, key: Any, timestamp: int, headers: Any, state: State) -> None:
            if not began:
                began.append((time.perf_counter(), time.process_time()))
            state.set("n", state.get("n", 0) + 1)

        frame = app.dataframe(app.topic(topic, key_deserializer="bytes", value_deserializer="bytes"))
        frame.update(count, stateful=True, metadata=True)
        app.run(count=records)
    wall, cpu = began[0]
    print(json.dumps({"took_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
