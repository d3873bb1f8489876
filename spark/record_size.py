"""Estimates record sizes from the middle of each range, for plans by bytes."""

import time
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from statistics import fmean
from typing import TYPE_CHECKING, Any

from kohort.common import TopicPartition
from kohort.common.topic_partition import grouped
from kohort.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from kohort.coordinator_client import Consumer

SAMPLES_AT_ONCE = 500
SAMPLE_BYTES = 64 * 1024
SAMPLE_TIMEOUT_S = 10.0
POLL_TIMEOUT_S = 0.1


def bytes_an_offset(ranges: Iterable[OffsetRange], settings: Mapping[str, Any]) -> dict[TopicPartition, float]:
    """The average bytes of decompressed keys and values an offset, by one fetch from the middle of each range.

    There is at most one range a partition. A range without records from its middle to its end is left out. A partition
    that was not fetched within SAMPLE_TIMEOUT_S has the average of its topic. `settings`: those of `Consumer`. Raises
    the errors of `Consumer.poll`.
    """
    from kohort.coordinator_client import Consumer  # Spark also imports this module to check options

    wanted = {one.place: ((one.start + one.stop) // 2, one.stop) for one in _longest_first(ranges)}
    found: dict[TopicPartition, float] = {}
    if not wanted:
        return found
    ours = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": SAMPLE_BYTES, "client_id": "kohort-spark"}
    deadline = time.monotonic() + SAMPLE_TIMEOUT_S
    places, late = list(wanted), list[TopicPartition]()
    with Consumer(**{**settings, **ours}) as consumer:
        for at in range(0, len(places), SAMPLES_AT_ONCE):
            some = {place: wanted[place] for place in places[at : at + SAMPLES_AT_ONCE]}
            late += _sampled(consumer, some, found, deadline)
    sizes = grouped((place.topic, size) for place, size in found.items())
    return found | {place: fmean(sizes[place.topic]) for place in late if place.topic in sizes}


def _longest_first(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The longest range of each topic, then the second longest of each, and so on."""
    longest = sorted((one for one in ranges if len(one)), key=lambda one: (-len(one), one))
    by_topic = grouped((one.topic, one) for one in longest)
    return [one for rank in zip_longest(*by_topic.values()) for one in rank if one is not None]


def _sampled(
    consumer: "Consumer",
    waiting: dict[TopicPartition, tuple[int, int]],
    found: dict[TopicPartition, float],
    until: float,
) -> Iterable[TopicPartition]:
    """Add the sizes of partitions to `found`. Returns those without a response in time."""
    consumer.assign({place: middle for place, (middle, _) in waiting.items()})
    while waiting and time.monotonic() < until:
        for columns in consumer.poll(POLL_TIMEOUT_S):
            place = TopicPartition(columns.topic, columns.partition)
            if len(columns) and place in waiting:
                middle, _ = waiting.pop(place)
                size = columns.keys.nbytes + columns.values.nbytes
                found[place] = size / max(columns.next_offset - middle, 1)
        # Markers and gaps move the position without records.
        for place in [one for one, (_, stop) in waiting.items() if consumer.position(one) >= stop]:
            del waiting[place]
    return waiting


def most_offsets(
    ranges: Iterable[OffsetRange], most_bytes: int, settings: Mapping[str, Any]
) -> dict[TopicPartition, int]:
    """The number of offsets of each partition with about `most_bytes`."""
    return {
        place: max(int(most_bytes / size), 1) for place, size in bytes_an_offset(ranges, settings).items() if size > 0
    }
