"""Partitioners: by key, compatible with other clients, or sticky for records without a key.

| name | keys | null keys | empty keys |
|---|---|---|---|
| murmur2 | Java's clients, librdkafka's murmur2_random | sticky | as others |
| crc32 | librdkafka's consistent_random (the default of librdkafka and confluent-kafka) | sticky | sticky |

Sticky (KIP-480): records go to one partition until its batch is closed, or is due and cannot be sent. Then another is
selected at random, so that batches are full.
"""

from collections.abc import Callable, Sequence
from zlib import crc32 as _crc32

from kohort.fastpath._rows import murmur2 as _murmur2


def murmur2(key: bytes, partitions: int) -> int:
    """The partition that Java's clients choose for a key."""
    return _murmur2(key) % partitions


def crc32(key: bytes, partitions: int) -> int:
    """The partition that librdkafka's clients choose for a non-empty key."""
    return _crc32(key) % partitions


def drawn(partitions: Sequence[int], chance: Callable[[], float]) -> int:
    """One of the partitions, at random."""
    return partitions[int(chance() * len(partitions))]
