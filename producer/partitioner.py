"""Partitioners: by key, compatible with other clients, or sticky for records without a key.

| name | keys | null keys | empty keys |
|---|---|---|---|
| murmur2 | Java's clients, librdkafka's murmur2_random | sticky | as others |
| crc32 | librdkafka's consistent_random (the default of librdkafka and confluent-kafka) | sticky | sticky |
| uniform_sticky | sticky (Java's UniformStickyPartitioner, partitioner.ignore.keys) | sticky | sticky |

Sticky (KIP-480): records go to one partition until its batch is closed, or is due and cannot be sent. Then another is
selected at random, so that batches are full. A partition with fewer queued batches is selected more often (KIP-794).

A function takes the place of a name: topic, key, value and number of partitions -> partition, or None for sticky.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import SupportsIndex
from zlib import crc32 as _crc32

from kohort.common.counted import counted
from kohort.common.foreign_text import exception_text
from kohort.fastpath._rows import murmur2 as _murmur2
from kohort.producer.errors import PartitionerError

NAMES = ("murmur2", "crc32", "uniform_sticky")
Partitioner = Callable[[str, bytes | None, bytes | None, int], SupportsIndex | None]


def murmur2(key: bytes, partitions: int) -> int:
    """The partition that Java's clients choose for a key."""
    return _murmur2(key) % partitions


def crc32(key: bytes, partitions: int) -> int:
    """The partition that librdkafka's clients choose for a non-empty key."""
    return _crc32(key) % partitions


def drawn(partitions: Sequence[int], queued: Mapping[int, int], chance: Callable[[], float]) -> int:
    """One of the partitions, which are in order, at random. One with more `queued` batches is less likely.

    The cost does not grow with the partitions that have no batches.
    """
    found = sorted((bisect_left(partitions, one), one, count) for one, count in queued.items())
    waiting = [(at, count) for at, one, count in found if at < len(partitions) and partitions[at] == one]
    weight = max((count for _, count in waiting), default=0) + 1  # of a partition without batches
    point = int(chance() * (len(partitions) * weight - sum(count for _, count in waiting)))
    passed = 0  # the batches of the partitions before
    for at, count in waiting:
        if point < at * weight - passed:
            break
        passed += count
        if point < (at + 1) * weight - passed:
            return partitions[at]
    return partitions[(point + passed) // weight]


def called(partitioner: Partitioner, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int | None:
    """The partition that a function chooses for a record; None if any will do. Raises PartitionerError."""
    try:
        number = partitioner(topic, key, value, partitions)
    except Exception as error:
        raise PartitionerError(f"the partitioner raised {exception_text(error)}", topic=topic) from error
    if number is None:
        return None
    if isinstance(number, bool) or not hasattr(number, "__index__") or not 0 <= number.__index__() < partitions:
        raise PartitionerError(
            f"the partitioner returned {number!r}, and the topic has {counted(partitions, 'partition')}",
            hint="return the number of a partition, or None if any will do",
            topic=topic,
        )
    return number.__index__()
