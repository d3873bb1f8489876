"""Compares a log, as confluent-kafka reads it with read_committed, with what a producer has noted."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.soak_producer.writers import PARTITIONS

READ_S = 300.0

Seen = Mapping[int, Sequence[tuple[int, int]]]
"""(offset, number) of the records of each partition, in the order of the log."""


class Verdict(NamedTuple):
    """`missing`: acknowledged or committed, and not in the log. `doubled`: in it more than once. `disordered`: before a
    record that was sent earlier. `unwanted`: of an aborted transaction, or elsewhere than acknowledged."""

    missing: int
    doubled: int
    disordered: int
    unwanted: int


def read(bootstrap: str, topic: str) -> dict[int, list[tuple[int, int]]]:
    """All records that a read_committed consumer of confluent-kafka gets. Raises TimeoutError."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    seen: dict[int, list[tuple[int, int]]] = {number: [] for number in range(PARTITIONS)}
    left, limit = set(seen), time.monotonic() + READ_S
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in seen])
        while left:
            if time.monotonic() > limit:
                raise TimeoutError(f"{topic}: no end of the partitions {sorted(left)}")
            for message in consumer.consume(10_000, 0.2):
                if message.error() is None:
                    seen[message.partition()].append((message.offset(), int(message.value())))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
    finally:
        consumer.close()
    return seen


def of_acknowledged(seen: Seen, offsets: Mapping[int, int]) -> Verdict:
    """Of records of an idempotent producer without transactions. A record whose outcome is unknown may be there."""
    places = {number: (partition, offset) for partition, log in seen.items() for offset, number in log}
    return Verdict(
        missing=len(offsets.keys() - places.keys()),
        doubled=_doubled(seen),
        disordered=_disordered(seen),
        unwanted=sum(
            number in places and places[number] != (number % PARTITIONS, offset) for number, offset in offsets.items()
        ),
    )


def of_committed(seen: Seen, committed: Sequence[int]) -> Verdict:
    """Of records of transactions: exactly those that were committed."""
    found = {number for log in seen.values() for _, number in log}
    wanted = set(committed)
    return Verdict(len(wanted - found), _doubled(seen), _disordered(seen), len(found - wanted))


def of_leaders(seen: Seen, offsets: Mapping[int, int]) -> Verdict:
    """Of records with acks=1: a repeated record is no violation, nor is one that its leader has lost. Both are counted.

    `disordered` counts records that come first behind later ones.
    """
    found = {number for log in seen.values() for _, number in log}
    firsts = {
        partition: [(0, one) for one in dict.fromkeys(number for _, number in log)] for partition, log in seen.items()
    }
    return Verdict(len(offsets.keys() - found), _doubled(seen), _disordered(firsts), 0)


def _doubled(seen: Seen) -> int:
    times = Counter(number for log in seen.values() for _, number in log)
    return sum(count - 1 for count in times.values())


def _disordered(seen: Seen) -> int:
    return sum(after < before for log in seen.values() for (_, before), (_, after) in pairwise(log))
