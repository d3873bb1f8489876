"""Partitioners: by key, compatible with other clients, or sticky for records without a key.

| name | keys | null keys | empty keys |
|---|---|---|---|
| murmur2 | Java's clients, librdkafka's murmur2_random | sticky | as others |
| crc32 | librdkafka's consistent_random (the default of librdkafka and confluent-kafka) | sticky | sticky |

Sticky (KIP-480): records go to one partition until its batch is closed, or is due and cannot be sent. Then another is
selected at random, so that batches are full.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from zlib import crc32 as _crc32

from kohort.common import TopicPartition
from kohort.fastpath._rows import murmur2 as _murmur2


def murmur2(key: bytes, partitions: int) -> int:
    """The partition that Java's clients choose for a key."""
    return _murmur2(key) % partitions


def crc32(key: bytes, partitions: int) -> int:
    """The partition that librdkafka's clients choose for a non-empty key."""
    return _crc32(key) % partitions


PARTITIONERS: Mapping[str, Callable[[bytes, int], int]] = MappingProxyType({"murmur2": murmur2, "crc32": crc32})


class Sticky:
    """Chooses the partition of records without a key, by topic."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._chosen: dict[str, int] = {}

    def choose(self, topic: str, partitions: int, led: Callable[[], Sequence[int]]) -> int:
        """The current partition. `led`: returns the partitions with a leader; called only for a new choice."""
        chosen = self._chosen.get(topic)
        if chosen is None or chosen >= partitions:
            among = led() or range(partitions)
            chosen = self._chosen[topic] = among[int(self._chance() * len(among))]
        return chosen

    def move_on(self, topic: str) -> None:
        """Choose another partition next time, since a batch of the topic is closed."""
        self._chosen.pop(topic, None)

    def leave(self, partition: TopicPartition) -> None:
        """Choose another partition next time if this is the current one."""
        if self._chosen.get(partition.topic) == partition.partition:
            self.move_on(partition.topic)
