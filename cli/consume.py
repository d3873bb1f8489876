"""`kohort consume`: print records or write them to a Parquet file.

It joins no group and commits nothing, except with `--share`.
"""

import base64
import json
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text as Cell

from kohort.admin import Admin
from kohort.cli.connection_options import ConnectionOptions, connected, console
from kohort.cli.file_errors import writing
from kohort.cli.numbers_given import json_number
from kohort.cli.partitions import partitions_of
from kohort.cli.record_progress import Limit, Quiet, RecordProgress
from kohort.cli.terminal import cell
from kohort.cli.timestamps import moment, time_ms
from kohort.common import TopicPartition
from kohort.common.counted import counted
from kohort.common.errors import KohortError
from kohort.common.foreign_text import escaped, parsed_json
from kohort.common.named_tuple import NamedTuple
from kohort.common.optional_libraries import needed
from kohort.common.whole_number import whole
from kohort.coordinator_client import Consumer
from kohort.fastpath import Record, RecordColumns
from kohort.network.errors import OperationTimeout
from kohort.network.process_exit import exit_on_sigterm
from kohort.share_consumer import ShareConsumer, ShareConsumerConfig

app = typer.Typer(add_completion=False)

CELL_CHARACTERS = 60
INTEGER_BYTES = 256
PAGE_ROWS = 200
POLL_S = 0.25
END_S = 1.0


class Form(StrEnum):
    """The output formats of records."""

    TABLE = "table"
    JSON = "json"
    RAW = "raw"


class TextOutput(StrEnum):
    """The representations of bytes."""

    UTF8 = "utf8"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    INT = "int"


def _utf8(data: bytes) -> Any:
    return data.decode("utf-8", "backslashreplace")


def _json(data: bytes) -> Any:
    try:
        return parsed_json(data, parse_constant=json_number, parse_float=json_number)
    except (ValueError, RecursionError):
        return _utf8(data)


def _int(data: bytes) -> Any:
    if len(data) > INTEGER_BYTES:  # Python refuses to print very long integers
        return data.hex()
    return int.from_bytes(data, "big", signed=True)


SHOWN: Mapping[TextOutput, Callable[[bytes], Any]] = {
    TextOutput.UTF8: _utf8,
    TextOutput.JSON: _json,
    TextOutput.HEX: bytes.hex,
    TextOutput.BASE64: lambda data: base64.b64encode(data).decode(),
    TextOutput.INT: _int,
}

WHERE = "earliest, latest, an offset, -N (the last N of each partition), a time (2026-01-31T12:00, UTC) or PT1H (ago)"


@app.command()
@connected
def consume(
    cluster: ConnectionOptions,
    topic: Annotated[str, typer.Argument(help="The topic.")],
    start: Annotated[str | None, typer.Option("--from", help=f"Start: {WHERE}.", show_default="earliest")] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="End: latest, an offset, a time, or 'never'.", show_default="latest")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this partition; repeatable.")
    ] = None,
    limit: Limit = None,
    form: Annotated[Form, typer.Option("--format", "-f", help="The output format.")] = Form.TABLE,
    key: Annotated[TextOutput, typer.Option(help="The representation of keys.")] = TextOutput.UTF8,
    value: Annotated[TextOutput, typer.Option(help="The representation of values.")] = TextOutput.UTF8,
    header: Annotated[TextOutput, typer.Option(help="The representation of headers in JSON.")] = TextOutput.UTF8,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json: one object a line.")] = False,
    parquet: Annotated[
        Path | None, typer.Option(help="Write a Parquet file instead of printing; not with --share.")
    ] = None,
    quiet: Quiet = False,
    share: Annotated[
        str | None,
        typer.Option(
            "--share",
            help="Join this share group. Records are accepted when they are written. A new group starts at the end of "
            "the topic, unless `kohort group configs` has set share.auto.offset.reset.",
        ),
    ] = None,
) -> None:
    """Read records from a topic.

    Example: kohort consume payments --from PT1H --format json -b localhost:9092 | jq .value
    """
    form = Form.JSON if as_json else form
    shown = not quiet and not sys.stdout.isatty()  # else it would be between the records
    with ExitStack() as stack:
        # A Parquet file needs its footer, and printed lines are buffered.
        stack.enter_context(exit_on_sigterm())
        if share is not None:
            if start is not None or to is not None or partition:
                hint = "set share.auto.offset.reset of a new group by `kohort group configs`"
                raise KohortError("--share excludes --from, --to and --partition", hint=hint)
            if parquet is not None:
                hint = "records would be accepted before the file is complete; write them with --json"
                raise KohortError("--share excludes --parquet", hint=hint)
            tick = stack.enter_context(RecordProgress(limit, shown=shown))
            write = stack.enter_context(_writer(parquet, form, key, value, header))
            _consume_share(cluster, topic, share, limit, write, tick)
            return
        settings = {"auto.offset.reset": "earliest"} | cluster.outside()
        consumer = stack.enter_context(Consumer.from_config(settings))
        with cluster.admin() as admin:
            first, last = "earliest" if start is None else start, "latest" if to is None else to
            ranges = _ranges(admin, consumer, topic, partition, first, last)
        if not ranges and not quiet:
            print("no records in this range", file=sys.stderr)
        total = None if to == "never" else sum(span.stop - span.first for span in ranges.values())
        total = limit if total is None else min(total, limit or total)
        tick = stack.enter_context(RecordProgress(total, shown=shown))
        write = stack.enter_context(_writer(parquet, form, key, value, header))
        for columns in _read(consumer, ranges, limit):
            write(columns, {})
            sys.stdout.flush()  # with --to never a reader of the pipe waits for them
            tick(len(columns))


# ----------------------------------------------------------------------------------------------------------- reading


def _consume_share(
    cluster: ConnectionOptions,
    topic: str,
    group: str,
    limit: int | None,
    write: "Write",
    tick: Callable[[int], None],
) -> None:
    """Write acquired records, and accept each batch when it is written. It ends at the limit only."""
    settings: dict[str, Any] = {"group.id": group, "share.acknowledgement.mode": "explicit"}
    if limit is not None:  # records beyond the limit would be acquired for nothing
        settings |= {"share.acquire.mode": "record_limit", "max.poll.records": str(min(limit, 500))}
    left = limit if limit is not None else NEVER
    with ShareConsumer.from_config(ShareConsumerConfig.part_of(cluster.outside()) | settings) as consumer:
        consumer.subscribe([topic])
        while left:
            for batch in consumer.poll(POLL_S):
                taken = batch.columns[:left]
                if len(taken):
                    write(taken, {"delivery_count": batch.delivery_count})
                    tick(len(taken))
                for record in taken:
                    consumer.acknowledge(record, "accept")
                for record in batch.columns[len(taken) :]:
                    consumer.acknowledge(record, "release")
                left -= len(taken)
            sys.stdout.flush()
        consumer.commit()


class OffsetSpan(NamedTuple):
    """Offsets to show, from `first` to before `stop`, and the offset to `begin` at.

    A consumer that begins behind the end of a log would be reset to its beginning.
    """

    begin: int
    first: int
    stop: int


Ranges = Mapping[TopicPartition, OffsetSpan]
NEVER = 1 << 62


def _ranges(admin: Admin, consumer: Consumer, topic: str, only: list[int] | None, start: str, to: str) -> Ranges:
    """Return the offsets to read by partition. Partitions with nothing to read are left out."""
    known = partitions_of(admin, topic)
    if strange := sorted(set(only or ()) - {one.partition for one in known}):
        raise KohortError(f"the topic has {counted(len(known), 'partition')}", topic=topic, partition=strange[0])
    chosen = [one for one in known if only is None or one.partition in only]
    # Behind the end as this consumer sees it, under read_committed the last stable offset, nothing comes for now. A
    # leader that is moving is waited for: partitions must not be missing from what looks like all of a topic.
    first, end = consumer.beginning_offsets(chosen), consumer.end_offsets(chosen)
    begins = _offsets(consumer, start, first, end)
    if to == "never":
        ends = dict.fromkeys(chosen, NEVER)
    else:  # the end does not wait for later records
        ends = {one: min(at, end[one]) for one, at in _offsets(consumer, to, first, end).items()}
    firsts = {one: max(begins[one], first[one]) for one in chosen}
    spans = {one: OffsetSpan(min(at, end[one]), at, ends[one]) for one, at in firsts.items()}
    return {one: span for one, span in spans.items() if span.first < span.stop}


def _offsets(
    consumer: Consumer, text: str, first: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if text in ("earliest", "latest"):
        return dict(first if text == "earliest" else end)
    if (offset := whole(text)) is not None:
        return dict.fromkeys(end, offset)
    if text[:1] == "-" and (last := whole(text[1:])) is not None:
        return {one: at - last for one, at in end.items()}
    found = consumer.offsets_for_times(dict.fromkeys(end, time_ms(text, WHERE)))
    return {one: end[one] if at is None else at.offset for one, at in found.items()}


def _read(consumer: Consumer, ranges: Ranges, limit: int | None) -> Iterator[RecordColumns]:
    """Yield columns up to each partition's end, and up to the total limit.

    The end is lower if the log was truncated.
    """
    left, waiting = limit if limit is not None else NEVER, dict(ranges)
    if not waiting:
        return
    consumer.assign({one: span.begin for one, span in waiting.items()})
    while waiting and left:
        read = consumer.poll(POLL_S)
        for columns in read:
            one = TopicPartition(columns.topic, columns.partition)
            if one not in waiting:
                continue
            span, offsets = waiting[one], columns.offsets
            inside = columns[bisect_left(offsets, span.first) : bisect_left(offsets, span.stop)][:left]
            if columns.next_offset >= span.stop:
                del waiting[one]
            left -= len(inside)
            if len(inside):
                yield inside
            if not left:
                return
        # A gap at the end of a log (an aborted transaction, compaction) moves the position without a record.
        waiting = {one: span for one, span in waiting.items() if (consumer.position(one) or 0) < span.stop}
        if not read and any(span.stop < NEVER for span in waiting.values()):
            # A new leader may have lost the last records before `stop`. Without a leader, there is no end for now.
            with suppress(OperationTimeout):
                ends = consumer.end_offsets(waiting, END_S)
                waiting = {one: span for one, span in waiting.items() if (consumer.position(one) or 0) < ends[one]}


# ----------------------------------------------------------------------------------------------------------- writing


Write = Callable[[RecordColumns, Mapping[str, Any]], None]


class _writer:
    """The output of records. `with` gives a function that takes columns, and values that JSON adds to each record.

    `texts`: the representations of keys, values and headers.
    """

    def __init__(self, parquet: Path | None, form: Form, *texts: TextOutput) -> None:
        self._path = parquet
        self._file: Any = None
        self._form = form
        self._key, self._value, self._header = (SHOWN[each] for each in texts)

    def __enter__(self) -> Write:
        if self._path is not None:
            # Also without records, so that the file of an earlier run does not stay.
            self._file = _parquet_file(self._path)
            return self._to_parquet
        return {Form.TABLE: self._to_table, Form.JSON: self._to_json, Form.RAW: self._to_raw}[self._form]

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()
        sys.stdout.flush()

    def _to_parquet(self, columns: RecordColumns, _more: Mapping[str, Any]) -> None:
        self._file.write_batch(columns.to_arrow())

    def _to_json(self, columns: RecordColumns, more: Mapping[str, Any]) -> None:
        out = sys.stdout
        for record in columns:
            out.write(json.dumps({**self._plain(record), **more}) + "\n")

    def _to_raw(self, columns: RecordColumns, _more: Mapping[str, Any]) -> None:
        out = sys.stdout.buffer
        for record in columns:
            out.write((record.value or b"") + b"\n")

    def _to_table(self, columns: RecordColumns, _more: Mapping[str, Any]) -> None:
        records = iter(columns)
        while page := list(islice(records, PAGE_ROWS)):  # a table needs all rows for its layout
            table = Table("partition", "offset", "time", "key", "value", box=None)
            for record in page:
                when = moment(record.timestamp_ms) or "-"
                cells = (_cell(self._shown(self._key, record.key)), _cell(self._shown(self._value, record.value)))
                table.add_row(str(record.partition), str(record.offset), when, *cells)
            console().print(table)

    def _plain(self, record: Record) -> dict[str, Any]:
        return {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": self._shown(self._key, record.key),
            "value": self._shown(self._value, record.value),
            "headers": [[name, self._shown(self._header, data)] for name, data in record.headers],
        }

    @staticmethod
    def _shown(show: Callable[[bytes], Any], data: bytes | None) -> Any:
        return None if data is None else show(data)


def _parquet_file(path: Path) -> Any:
    with needed("Parquet", "'kohort[arrow]'"):
        import pyarrow.parquet as pq
    from kohort.fastpath.arrow import default_schema

    with writing(path):
        return pq.ParquetWriter(path, default_schema())


def _cell(value: Any) -> Cell:
    shown = "-" if value is None else value if isinstance(value, str) else json.dumps(value)
    text = escaped(shown, lines=True)
    whole = len(text) <= CELL_CHARACTERS or not sys.stdout.isatty()
    return cell(text if whole else f"{text[: CELL_CHARACTERS - 1]}…", lines=True)
