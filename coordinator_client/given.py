"""What callers hand in, as the core takes it: any pair is a partition."""

import re
from collections.abc import Iterable, Mapping
from operator import index

from kohort.fastpath import TopicPartition

INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
INLINE_FLAGS = ((re.A, "a"), (re.I, "i"), (re.M, "m"), (re.S, "s"), (re.X, "x"))


def pattern_given(pattern: str | re.Pattern[str]) -> str:
    """As text that matches the same: what `re.compile` was told beside its text stands in front of it."""
    if isinstance(pattern, str):
        return pattern
    beside = pattern.flags & ~re.compile(pattern.pattern).flags
    letters = "".join(letter for flag, letter in INLINE_FLAGS if beside & flag)
    return f"(?{letters}){pattern.pattern}" if letters else pattern.pattern


def fits_the_wire(name: str) -> bool:
    """Whether a name can be sent at all: text that UTF-8 has, and no longer than a string of Kafka's may be."""
    try:
        return len(name.encode()) <= INT16_MAX
    except UnicodeEncodeError:
        return False


def topic_given(topic: str) -> str:
    """Raises TypeError for what is no name, ValueError for one that no request can carry; what brokers make of any
    other, they say."""
    if not isinstance(topic, str):
        raise TypeError(f"a topic's name is a str, not {topic!r}")
    if not fits_the_wire(topic):
        raise ValueError(f"no topic can have this name: {topic[:80]!r}")
    return topic


def partition_given(partition: tuple[str, int]) -> TopicPartition:
    """Raises TypeError and ValueError for what cannot be one: the driver, who meets it otherwise, can tell nobody."""
    topic, number = partition
    try:
        number = index(number)
    except TypeError:
        raise TypeError(f"a partition is (topic, number), not {partition!r}") from None
    if not 0 <= number <= INT32_MAX:
        raise ValueError(f"a partition's number is from 0 to {INT32_MAX}: {partition!r}")
    return TopicPartition(topic_given(topic), number)


def partitions_given(partitions: Iterable[TopicPartition] | None) -> frozenset[TopicPartition] | None:
    return None if partitions is None else frozenset(map(partition_given, partitions))


def ends_given(until: Mapping[TopicPartition, int], partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
    """Raises ValueError for an end of what is not among `partitions`."""
    ends = {partition_given(one): index(offset) for one, offset in until.items()}
    if strange := sorted(ends.keys() - partitions):
        raise ValueError(f"`until` names a partition that is not to be read: {strange[0]}")
    return ends


def offset_given(offset: int) -> int:
    """Raises ValueError for what no log has: brokers would be asked for it, and take -2 and -1 for out of range."""
    offset = index(offset)
    if offset < 0:
        raise ValueError(f"an offset is not negative: {offset}")
    if offset > INT64_MAX:
        raise ValueError(f"an offset has 63 bits: {offset}")
    return offset


def epoch_given(leader_epoch: int) -> int:
    """Raises ValueError for what no leader has; -1: it is not known."""
    leader_epoch = index(leader_epoch)
    if not -1 <= leader_epoch <= INT32_MAX:
        raise ValueError(f"a leader epoch is from 0 to {INT32_MAX}, or -1 where it is not known: {leader_epoch}")
    return leader_epoch
