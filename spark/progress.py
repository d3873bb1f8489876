"""Lag and rates by partition, from the progress that Spark reports for each micro-batch.

PySpark 4.2 and later report the latest offsets. Earlier versions have the end of the batch only.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kohort.common import TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.spark.group_stream import unlogged_batch
from kohort.spark.offset_json import is_of_group, reached, unlogged


class PartitionProgress(NamedTuple):
    """A partition in one micro-batch, which read the offsets from `start` up to `end`.

    The first batch of a new query has no start in Spark's progress. `start` is then `end`.

    `lag`: the offsets of the log that the batch has left, None if the progress has no latest offsets. `offsets_per_s`:
    the offsets of the batch by its time.
    """

    start: int
    end: int
    lag: int | None
    offsets_per_s: float


Partitions = dict[TopicPartition, PartitionProgress]


def lag_of(progress: Mapping[str, Any] | None) -> Partitions:
    """The partitions of a progress (`query.lastProgress`, or that of a listener's event).

    A stream with `group` has the partitions of the batch, and a stream without has all of its partitions. Sources whose
    offsets are not those of topics are left out. The lowest end counts if several sources read a partition. The result
    is empty for None, the progress of a query without a batch. Raises KeyError for a mapping that is no progress.
    """
    if progress is None:
        return {}
    # PySpark 4.0's client of Spark Connect has the offsets as JSON in `json` only.
    parsed = json.loads(progress.json) if hasattr(progress, "json") else progress
    seconds = parsed["durationMs"].get("triggerExecution", 0) / 1000
    found: Partitions = {}
    for source in parsed["sources"]:
        for place, one in _of_source(source, seconds).items():
            if place not in found or one.end < found[place].end:
                found[place] = one
    return found


def _of_source(source: Mapping[str, Any], seconds: float) -> Partitions:
    end = _offsets(source["endOffset"])
    stops = reached(end)
    if not stops:
        return {}
    start, latest = _offsets(source["startOffset"]), unlogged(_offsets(source["latestOffset"]) or {})
    if is_of_group(end):
        # A trigger without records has the offset of the last batch.
        starts = {} if start == end else {one.place: one.start for one in unlogged_batch(end).ranges}
    else:
        starts = unlogged(start or {})
    return {
        place: PartitionProgress(
            begin := starts.get(place, stop),
            stop,
            max(latest[place] - stop, 0) if place in latest else None,
            (stop - begin) / seconds if seconds else 0.0,
        )
        for place, stop in stops.items()
    }


def _offsets(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else text


class LagListener(StreamingQueryListener):  # type: ignore[misc]  # pyspark's own types are not followed
    """Calls `export(query, partitions)` after each micro-batch, with the query's name (or id) and `lag_of`.

    spark.streams.addListener(LagListener(lambda query, partitions: print(query, partitions)))
    """

    def __init__(self, export: Callable[[str, Partitions], object]) -> None:
        self._export = export

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing. Raises no error."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Call `export` with the partitions of a micro-batch. Raises the errors of `export`."""
        parsed = json.loads(event.progress.json)
        self._export(parsed["name"] or parsed["id"], lag_of(parsed))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing. Raises no error."""
