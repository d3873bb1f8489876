"""Encodes Arrow rows into batches, by partition."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from kohort.common import TopicPartition
from kohort.fastpath._encode import Body
from kohort.fastpath._rows import grouped, lay_out, spread
from kohort.network.errors import UnknownTopic
from kohort.producer.arrow_rows import Rows
from kohort.producer.partitioner import Partitioner, called
from kohort.producer.producer_batch import Headers
from kohort.producer.record_arguments import partition_given

if TYPE_CHECKING:
    from kohort.network.network_client import Driver
    from kohort.producer.producer_core import ProducerCore

ROWS_AT_ONCE: Final = 1 << 16  # rows that are partitioned together
RecordFields = tuple[bytes | None, bytes | None, Headers | None, int | None, int | None]


def named_partitions(batches: Iterable[Rows], topic: str, partition: object) -> set[int]:
    """The lowest and the highest partition that rows name; `partition` if that is not None."""
    if partition is not None:
        return {partition_given(partition, topic) for _rows in batches}
    columns = (rows.source.column("partition") for rows in batches if rows.partitions is not None)
    return {number for column in columns for number in pc.min_max(column).as_py().values()}


def bodies(
    driver: "Driver[ProducerCore]", partitions_of: Callable[[str], int], topic: str, rows: Rows, partition: int | None
) -> Iterator[tuple[TopicPartition, Body]]:
    """Encoded batches of rows, one by one. `partitions_of`: waits for the number of partitions of a topic."""
    batch_bytes = driver.core.config.batch_bytes
    now_ms = driver.wall_ms()

    def lay(places: memoryview | None, start: int, stop: int) -> tuple[Body, int]:
        return lay_out(rows.keys, rows.values, rows.timestamps_ms, now_ms, places, start, stop, batch_bytes)

    at = 0
    while at < rows.size:
        count = partitions_of(topic)
        stop = min(at + ROWS_AT_ONCE, rows.size)
        over = _partitions(driver, topic, rows, count, at, stop) if partition is None else None
        if over is None:
            chosen = driver.lock.run(driver.core.accumulator.chosen, topic, count, None, partition, driver.now())
            body, at = lay(None, at, rows.size)
            yield TopicPartition(topic, chosen), body
            continue
        try:
            places, bounds = grouped(over, count, at)
        except ValueError as error:
            strange = next(one for one in over if not 0 <= one < count)
            raise UnknownTopic(str(error), topic=topic, partition=strange) from None
        for number in range(count):
            row = bounds[number]
            while row < bounds[number + 1]:
                body, row = lay(places, row, bounds[number + 1])
                yield TopicPartition(topic, number), body
        at = stop


def _partitions(
    driver: "Driver[ProducerCore]", topic: str, rows: Rows, count: int, at: int, stop: int
) -> memoryview | None:
    """The partitions of rows; None if any will do."""
    if rows.partitions is not None:
        return rows.partitions[at:stop]
    named = driver.core.config.partitioner
    if isinstance(named, str) and (rows.keys is None or named == "uniform_sticky"):
        return None
    otherwise = driver.lock.run(driver.core.accumulator.sticky, topic, count, driver.now())
    if isinstance(named, str):
        assert rows.keys is not None
        return spread(rows.keys, count, named, otherwise, at, stop)
    return _called(named, topic, rows, count, otherwise, at, stop)


def _called(
    partitioner: Partitioner, topic: str, rows: Rows, count: int, otherwise: int, at: int, stop: int
) -> memoryview:
    """The partitions that a function chooses."""
    values = _column(rows, "value", at, stop)
    keys = _column(rows, "key", at, stop) if rows.keys is not None else [None] * len(values)
    chosen = (called(partitioner, topic, key, value, count) for key, value in zip(keys, values, strict=True))
    return memoryview(array("i", (otherwise if one is None else one for one in chosen)))


def records_of(rows: Rows, partition: int | None) -> Iterator[RecordFields]:
    """Value, key, headers, partition and timestamp (ms) of each of some rows with headers."""
    assert rows.headers is not None
    keys = _column(rows, "key") if rows.keys is not None else repeat(None)
    headers = (
        [(pair["key"], _bytes(pair["value"])) for pair in pairs] if pairs else None
        for pairs in rows.headers.to_pylist()
    )
    places = repeat(partition) if partition is not None or rows.partitions is None else rows.partitions
    times = repeat(None) if rows.timestamps_ms is None else rows.timestamps_ms.cast("q")
    return zip(_column(rows, "value"), keys, headers, places, times, strict=False)


def _column(rows: Rows, name: str, at: int = 0, stop: int | None = None) -> list[bytes | None]:
    """Some rows of a column of keys or values."""
    return [_bytes(one) for one in rows.source.column(name)[at:stop].to_pylist()]


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
