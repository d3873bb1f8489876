"""A `FakeBroker` in a process of its own, with one record in each partition, for `wide`.

    python -m benchmarks.wide_broker TOPICS PARTITIONS NODES

It prints its address. A line "RATE SECONDS" on its standard input makes it append records at that rate to the
partitions in turns. It ends with its standard input.
"""

import sys
import time
from collections.abc import Iterator

from kohort.fastpath import encode
from kohort.testing import FakeBroker

VALUE = bytes(100)


def names(topics: int) -> list[str]:
    """The topics of a broker."""
    return [f"wide-{number:05d}" for number in range(topics)]


def paced(rate: float, seconds: float) -> Iterator[int]:
    """Numbers from 0 on, each at its time: `rate` a second."""
    began = time.monotonic()
    for number in range(round(rate * seconds)):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))  # the rate of a feed
        yield number


def main(topics: int, partitions: int, nodes: int) -> None:
    batch = encode([(None, VALUE)])
    places = [(name, number) for name in names(topics) for number in range(partitions)]
    with FakeBroker(topics=dict.fromkeys(names(topics), partitions), nodes=nodes, keep_calls=False) as broker:
        for name, number in places:
            broker.append(name, number, batch)
        print(broker.bootstrap, flush=True)
        for line in sys.stdin:
            rate, seconds = map(float, line.split())
            for number in paced(rate, seconds):
                broker.append(*places[number % len(places)], batch)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
