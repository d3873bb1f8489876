"""End offsets of a topic and committed offsets of a group, read from outside the group."""

from collections.abc import Iterable

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer


def end_offsets(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """The offset after the last record, by partition."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(bootstrap) as consumer:
        return {place.partition: offset for place, offset in consumer.end_offsets(places).items()}


def committed_offsets(bootstrap: str, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Return the committed offsets by partition. Partitions without a commit are left out."""
    places = [TopicPartition(topic, number) for number in partitions]
    with Consumer(bootstrap, group=group) as consumer:
        found = consumer.committed(places)
    return {place.partition: commit.offset for place, commit in found.items() if commit is not None}
