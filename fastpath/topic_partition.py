"""The one coordinate every layer shares."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic name, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
