"""kafka_rdd: an RDD of the records in offset ranges."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark import SparkContext
from pyspark.core.rdd import PipelinedRDD

from kohort.common.foreign_text import exception_text
from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client import Consumer, ConsumerConfig
from kohort.fastpath import Record, RecordColumns
from kohort.spark.errors import TAPE_REFUSED, DecoderFailed, PlanError
from kohort.spark.plan import ReadPlan
from kohort.spark.ranges import OffsetRange
from kohort.spark.reader import read_range
from kohort.spark.worker_tuning import Shipped, settle

Decoder = Callable[[bytes], Any]


class DecodedRecord(NamedTuple):
    """A record with decoded key and value. A null stays None, without a call of the decoder."""

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
    """An RDD of the records in `ranges` (see `plan`), one RDD partition for each range, in the same order.

    Elements are `Record`s, or `DecodedRecord`s if there is a decoder. With `as_columns` they are `RecordColumns`, one
    for each fetched slice; with `as_columns="arrow"` pyarrow.RecordBatch. `connect`: the settings of `Consumer`, such
    as `bootstrap`. Executors join no group, so a repeated task reads the same records. If records of a range are
    missing in the log, its task raises DataLossError, unless `skip_lost`.

    Raises ConfigError for settings that a consumer cannot have. Raises PlanError for a decoder of columns, for a tape,
    and for a range that is no OffsetRange.
    """
    if as_columns not in (False, True, "arrow"):
        raise PlanError(f"as_columns must be False, True or 'arrow', not {as_columns!r}")
    if as_columns and (key_decoder or value_decoder):
        raise PlanError("a decoder gets no columns", hint="omit as_columns, or decode the columns in the RDD")
    planned = ranges if isinstance(ranges, ReadPlan) else ReadPlan(ranges)
    if strange := [one for one in planned if not isinstance(one, OffsetRange)]:
        raise PlanError(f"ranges has {strange[0]!r}, which is no OffsetRange", hint="pass the ranges of plan(...)")
    if ConsumerConfig.of(**connect).tape is not None:
        raise PlanError(TAPE_REFUSED, hint="omit tape")
    read = RangeReader(dict(connect), as_columns, key_decoder, value_decoder, skip_lost)
    return KafkaRDD(context, planned, read)


class KafkaRDD(PipelinedRDD):  # type: ignore[misc]  # pyspark's own types are not followed
    """An RDD that keeps its offset ranges."""

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
        """Commit the plan's stops for `group`. Call it after the action; the next plan can start at "committed".

        Raises CommitFailed if the group has members, and the errors of `Consumer.commit`.
        """
        if self._stops:
            with Consumer(**{**self._connect, "group": group}) as consumer:
                consumer.commit(self._stops)


@dataclass(frozen=True)
class RangeReader(Shipped):
    """The function that an executor runs. It is picklable and has no open resources."""

    settings: Mapping[str, Any] = field(repr=False)  # passwords may be among them
    as_columns: bool | Literal["arrow"]
    key_decoder: Decoder | None
    value_decoder: Decoder | None
    skip_lost: bool

    def __call__(self, _index: int, ranges: Iterator[OffsetRange]) -> Iterator[Any]:
        """Yield the records of a task's ranges, in their order."""
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
            f"the {what}'s decoder raised {exception_text(error)}",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
        ) from error
