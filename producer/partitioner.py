"""Which partition a record goes to: by its key as other clients choose, else one after another, batch by batch.

| name | keys | null keys | empty keys |
|---|---|---|---|
| murmur2 | Java's clients, librdkafka's murmur2_random | sticky | as others |
| crc32 | librdkafka's consistent_random (its default, so confluent-kafka's and others') | sticky | sticky |

Sticky (KIP-480): one partition until its batch is closed or was due and could not be sent, then another by chance, so
that batches are full.
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
    """The partition that librdkafka's clients choose for a key that is not empty."""
    return _crc32(key) % partitions


PARTITIONERS: Mapping[str, Callable[[bytes, int], int]] = MappingProxyType({"murmur2": murmur2, "crc32": crc32})


class Sticky:
    """Where records without a key go, by topic."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._chosen: dict[str, int] = {}

    def choose(self, topic: str, partitions: int, led: Callable[[], Sequence[int]]) -> int:
        """The partition of now. `led`: those that have a leader, asked only when one is chosen."""
        chosen = self._chosen.get(topic)
        if chosen is None or chosen >= partitions:
            among = led() or range(partitions)
            chosen = self._chosen[topic] = among[int(self._chance() * len(among))]
        return chosen

    def move_on(self, topic: str) -> None:
        """A batch of the topic is closed: another partition's turn."""
        self._chosen.pop(topic, None)

    def leave(self, partition: TopicPartition) -> None:
        """Another partition's turn, if it was this one's."""
        if self._chosen.get(partition.topic) == partition.partition:
            self.move_on(partition.topic)
