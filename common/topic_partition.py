"""The one coordinate every layer shares."""

from collections.abc import Iterable
from typing import TypeVar

from kohort.common.foreign_text import escaped
from kohort.common.named_tuple import NamedTuple

K = TypeVar("K")
V = TypeVar("V")


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic name, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{escaped(self.topic)}-{self.partition}"


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key, in the order of `pairs`. Of partitions: the numbers of each topic."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
