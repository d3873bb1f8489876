"""What callers hand in, as the core takes it: any pair is a partition."""

from collections.abc import Iterable, Mapping

from kohort.fastpath import TopicPartition


def partitions_given(partitions: Iterable[TopicPartition] | None) -> frozenset[TopicPartition] | None:
    return None if partitions is None else frozenset(TopicPartition(*one) for one in partitions)


def ends_given(until: Mapping[TopicPartition, int], partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
    """Raises ValueError for an end of what is not among `partitions`."""
    ends = {TopicPartition(*one): offset for one, offset in until.items()}
    if strange := sorted(ends.keys() - partitions):
        raise ValueError(f"`until` names a partition that is not to be read: {strange[0]}")
    return ends
