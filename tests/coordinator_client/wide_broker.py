"""A FakeBroker in a process of its own: `python wide_broker.py TOPICS PARTITIONS`, with one record a partition.

Prints its address; after a line on standard input, the times of the heartbeats that it got (s, monotonic) as JSON.
"""

import json
import sys
import time

from kohort.fastpath import encode
from kohort.testing import FakeBroker


def main(topics: int, partitions: int) -> None:
    """Serve until a line comes."""
    beats: list[float] = []
    with FakeBroker(topics={f"t{number:05d}": partitions for number in range(topics)}) as broker:
        batch = encode([(None, b"v")])
        for number in range(topics):
            for partition in range(partitions):
                broker.append(f"t{number:05d}", partition, batch)
        broker.control("Heartbeat", lambda _call: beats.append(time.monotonic()))
        print(broker.bootstrap, flush=True)
        sys.stdin.readline()
    print(json.dumps({"beats": beats, "faults": broker.faults}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
