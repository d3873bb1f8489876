"""What callers hand in, as the core takes it: any pair is a partition."""

import re
from collections.abc import Iterable, Mapping

from kohort.fastpath import TopicPartition

INT64_MAX = 2**63 - 1
INLINE_FLAGS = ((re.A, "a"), (re.I, "i"), (re.M, "m"), (re.S, "s"), (re.X, "x"))


def pattern_given(pattern: str | re.Pattern[str]) -> str:
    """As text that matches the same: what `re.compile` was told beside its text stands in front of it."""
    if isinstance(pattern, str):
        return pattern
    beside = pattern.flags & ~re.compile(pattern.pattern).flags
    letters = "".join(letter for flag, letter in INLINE_FLAGS if beside & flag)
    return f"(?{letters}){pattern.pattern}" if letters else pattern.pattern


def partitions_given(partitions: Iterable[TopicPartition] | None) -> frozenset[TopicPartition] | None:
    return None if partitions is None else frozenset(TopicPartition(*one) for one in partitions)


def ends_given(until: Mapping[TopicPartition, int], partitions: frozenset[TopicPartition]) -> dict[TopicPartition, int]:
    """Raises ValueError for an end of what is not among `partitions`."""
    ends = {TopicPartition(*one): offset for one, offset in until.items()}
    if strange := sorted(ends.keys() - partitions):
        raise ValueError(f"`until` names a partition that is not to be read: {strange[0]}")
    return ends


def offset_given(offset: int) -> int:
    """Raises ValueError for what no log has: brokers would be asked for it, and take -2 and -1 for out of range."""
    if offset < 0:
        raise ValueError(f"an offset is not negative: {offset}")
    if offset > INT64_MAX:
        raise ValueError(f"an offset has 63 bits: {offset}")
    return offset
