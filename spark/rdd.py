"""kafka_rdd: offset ranges in, an RDD of records out."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from pyspark import SparkContext
from pyspark.core.rdd import PipelinedRDD

from kohort.coordinator_client import Consumer
from kohort.fastpath import Record, RecordColumns
from kohort.spark.errors import DecoderFailed
from kohort.spark.plan import ReadPlan
from kohort.spark.ranges import OffsetRange
from kohort.spark.reader import read_range
from kohort.spark.worker_tuning import Shipped, settle

Decoder = Callable[[bytes], Any]


class DecodedRecord(NamedTuple):
    """A record whose key and value went through the decoders; a null stays None, undecoded."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]


def kafka_rdd(
    context: SparkContext,
    ranges: Iterable[OffsetRange],
    *,
    as_columns: bool | Literal["arrow"] = False,
    key_decoder: Decoder | None = None,
    value_decoder: Decoder | None = None,
    skip_lost: bool = False,
    **connect: Any,
) -> "KafkaRDD":
    """An RDD of the records in `ranges` (see `plan`), one RDD partition a range, in the order of the ranges.

    Elements are `Record`s; with decoders `DecodedRecord`s; with `as_columns` a `RecordColumns` for each fetched slice,
    with `as_columns="arrow"` a pyarrow.RecordBatch of it. `connect`: the settings of `Consumer`, as `bootstrap`.
    Executors read their range without joining a group, so a task that Spark runs again reads the same. A range that
    the log no longer holds fails its task with DataLossError, unless `skip_lost`.
    """
    read = RangeReader(dict(connect), as_columns, key_decoder, value_decoder, skip_lost)
    return KafkaRDD(context, ranges if isinstance(ranges, ReadPlan) else ReadPlan(ranges), read)


class KafkaRDD(PipelinedRDD):  # type: ignore[misc]  # pyspark's own types are not followed
    """An RDD that knows what it was made of."""

    def __init__(self, context: SparkContext, planned: ReadPlan, read: "RangeReader") -> None:
        self._offset_ranges = tuple(planned)
        self._stops = planned.stops
        self._connect = read.settings
        super().__init__(context.parallelize(self._offset_ranges, max(len(planned), 1)), read)

    @property
    def offset_ranges(self) -> tuple[OffsetRange, ...]:
        """The ranges, one for each RDD partition, in the same order."""
        return self._offset_ranges

    def commit(self, group: str) -> None:
        """Store the plan's stops for `group`, to be called after the action: the next plan can start "committed".

        Raises CommitFailed if the group has members, who own its offsets; KohortError otherwise as `Consumer.commit`.
        """
        if self._stops:
            with Consumer(**{**self._connect, "group": group}) as consumer:
                consumer.commit(self._stops)


@dataclass(frozen=True)
class RangeReader(Shipped):
    """The function that an executor runs: picklable, without open resources."""

    settings: Mapping[str, Any] = field(repr=False)  # passwords may be among them
    as_columns: bool | Literal["arrow"]
    key_decoder: Decoder | None
    value_decoder: Decoder | None
    skip_lost: bool

    def __call__(self, _index: int, ranges: Iterator[OffsetRange]) -> Iterator[Any]:
        settle()
        for one in ranges:
            for columns in read_range(one, self.settings, skip_lost=self.skip_lost):
                if self.as_columns == "arrow":
                    yield columns.to_arrow()
                elif self.as_columns:
                    yield columns
                elif self.key_decoder is None and self.value_decoder is None:
                    yield from columns
                else:
                    yield from self._decoded(columns)

    def _decoded(self, columns: RecordColumns) -> Iterator[DecodedRecord]:
        for record in columns:
            yield DecodedRecord(
                record.topic,
                record.partition,
                record.offset,
                record.timestamp_ms,
                _decode(self.key_decoder, record.key, record, "key"),
                _decode(self.value_decoder, record.value, record, "value"),
                record.headers,
            )


def _decode(decoder: Decoder | None, data: bytes | None, record: Record, what: str) -> Any:
    if decoder is None or data is None:
        return data
    try:
        return decoder(data)
    except Exception as error:
        raise DecoderFailed(
            f"the {what}'s decoder raised {type(error).__name__}: {error}",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        ) from error
