"""Lag of a group's topics for lag-based assignors, from OffsetFetch and ListOffsets."""

from collections.abc import Callable, Mapping

from kohort.common import KohortError, TopicPartition
from kohort.coordinator_client.group.events import LagKnown
from kohort.coordinator_client.group.ready import BacklogOrder
from kohort.coordinator_client.offsets.offset_lookups import Listed, Lookup, OffsetsRequestManager
from kohort.network.group_types import OffsetAndMetadata
from kohort.network.offset_requests import EARLIEST, LATEST
from kohort.network.promise import Promise

Committed = Mapping[TopicPartition, OffsetAndMetadata | None]


def waiting(
    committed: Committed,
    ends: Mapping[TopicPartition, int],
    beginnings: Mapping[TopicPartition, int],
    *,
    reads_old: bool,
) -> dict[TopicPartition, int]:
    """The lag of each partition whose offsets are known.

    `reads_old`: true if a consumer without a committed offset starts at the beginning of the log, and not at its end.
    """
    from kohort.assignors.lag import lag_from_offsets  # few assignors use the lag

    known = {}
    for partition, stored in committed.items():
        end = ends.get(partition)
        if end is None or (reads_old and partition not in beginnings):
            continue
        known[partition] = stored.offset if stored is not None else None if reads_old else end
    return lag_from_offsets(known, {one: ends[one] for one in known}, beginnings)


class GroupLag:
    """Measures lag, under the driver's lock. Unresponsive leaders affect only their own topics.

    `reads_old`: true if a position outside of the log is reset to its start. If it is reset to its end, there is no
    lag. `on_lag` is called with the result.
    """

    def __init__(self, lookups: OffsetsRequestManager, on_lag: Callable[[LagKnown], None], *, reads_old: bool) -> None:
        self._lookups = lookups
        self._on_lag = on_lag
        self._reads_old = reads_old

    def measure(self, order: BacklogOrder) -> None:
        """Start a measurement; its `LagKnown` event follows by the order's deadline at the latest."""
        _Measurement(self._lookups, self._on_lag, order, reads_old=self._reads_old)


class _Measurement:
    def __init__(
        self,
        lookups: OffsetsRequestManager,
        on_lag: Callable[[LagKnown], None],
        order: BacklogOrder,
        *,
        reads_old: bool,
    ) -> None:
        self._lookups = lookups
        self._on_lag = on_lag
        self._order = order
        self._reads_old = reads_old
        self._committed: Committed = {}
        self._found: dict[int, dict[TopicPartition, int]] = {LATEST: {}, EARLIEST: {}}
        self._why = ""
        partitions = [TopicPartition(topic, number) for topic, count in order.topics.items() for number in range(count)]
        self._total = len(partitions)
        timestamps = (LATEST, EARLIEST) if reads_old else (LATEST,)
        self._open = 1 + len(order.topics) * len(timestamps)  # requests without an outcome
        requested = lookups.look_up_committed(partitions, order.deadline, stable=False)
        requested.add_done_callback(self._committed_came)
        for topic, count in order.topics.items():
            for timestamp in timestamps:
                self._list(topic, count, timestamp)

    def _list(self, topic: str, count: int, timestamp: int) -> None:
        wanted = dict.fromkeys((TopicPartition(topic, number) for number in range(count)), timestamp)

        def finished(result: Listed | KohortError) -> None:
            found = {one: listed.offset for one, listed in lookup.found.items() if listed.offset >= 0}
            self._found[timestamp].update(found)
            self._ended(result if isinstance(result, KohortError) else None)

        lookup = Lookup(wanted, self._order.deadline, finished)
        self._lookups.put(lookup)

    def _committed_came(self, future: "Promise[dict[TopicPartition, OffsetAndMetadata | None]]") -> None:
        error = future.exception()
        if error is None:
            self._committed = future.result()
        self._ended(error)

    def _ended(self, error: BaseException | None) -> None:
        self._open -= 1
        if error is not None and not self._why:
            self._why = str(error)
        if self._open:
            return
        lag = waiting(self._committed, self._found[LATEST], self._found[EARLIEST], reads_old=self._reads_old)
        self._on_lag(LagKnown(self._order.serial, lag, self._total - len(lag), self._why))
