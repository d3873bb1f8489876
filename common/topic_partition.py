"""The one coordinate every layer shares."""

from kohort.common.foreign_text import escaped
from kohort.common.named_tuple import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic name, then number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{escaped(self.topic)}-{self.partition}"
