"""Offsets in the JSON of Spark's log: `{"topic": {"0": 23, "1": 17}}`."""

from collections.abc import Mapping
from typing import Any

from kohort.common import TopicPartition

Logged = dict[str, dict[str, int]]


def logged(offsets: Mapping[TopicPartition, int]) -> Logged:
    """The form of Spark's log."""
    found: Logged = {}
    for place, offset in sorted(offsets.items()):
        found.setdefault(place.topic, {})[str(place.partition)] = offset
    return found


def is_of_group(offset: Mapping[str, object]) -> bool:
    """True if a stream with a group has written the offset."""
    return isinstance(offset.get("generation"), int)


def unlogged(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Parse offsets of Spark's log."""
    return {
        TopicPartition(topic, int(number)): offset
        for topic, numbers in offsets.items()
        for number, offset in numbers.items()
    }


def reached(offset: Any) -> dict[TopicPartition, int]:
    """The next offset of each partition, by an offset of a stream with or without a group.

    It is empty for an offset of another source.
    """
    if not isinstance(offset, dict):
        return {}
    if is_of_group(offset):
        return unlogged({topic: {p: stop for p, (_, stop) in some.items()} for topic, some in offset["ranges"].items()})
    return unlogged(offset) if all(map(_is_of_topic, offset.values())) else {}


def _is_of_topic(some: Any) -> bool:
    return isinstance(some, dict) and all(p.isdecimal() and type(offset) is int for p, offset in some.items())
