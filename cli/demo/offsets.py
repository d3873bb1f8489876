"""Where a topic's partitions end, and what a group has committed: asked by the one who watches, not by a member."""

from collections.abc import Iterable

from kohort.common import TopicPartition
from kohort.coordinator_client import Consumer


def end_offsets(bootstrap: str, topic: str, partitions: int) -> dict[int, int]:
    """The offset after the last record, by partition."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(bootstrap) as consumer:
        return {place.partition: offset for place, offset in consumer.end_offsets(places).items()}


def committed_offsets(bootstrap: str, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """What the group has committed, by partition; partitions without a commit are left out."""
    places = [TopicPartition(topic, number) for number in partitions]
    with Consumer(bootstrap, group=group) as consumer:
        found = consumer.committed(places)
    return {place.partition: commit.offset for place, commit in found.items() if commit is not None}
