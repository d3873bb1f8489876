"""Offsets in the JSON of Spark's log: `{"topic": {"0": 23, "1": 17}}`."""

from collections.abc import Mapping

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
