"""`kohort segment dump|stats|to-parquet`: a broker's log segment, read without the broker."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from kohort.cli.file_errors import writing
from kohort.cli.terminal import say
from kohort.cli.timestamps import moment
from kohort.common.counted import counted
from kohort.common.errors import KohortError
from kohort.common.optional_libraries import needed
from kohort.fastpath import Codec, Record, RecordColumns
from kohort.fastpath.batches import BatchInfo
from kohort.fastpath.segment import Segment, open_segment
from kohort.network.process_exit import exit_on_sigterm

MAX_VALUE_CHARACTERS = 60

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A broker's log segment, read without the broker.")


class Isolation(StrEnum):
    """The values of `--isolation`."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class OnCorrupt(StrEnum):
    """The values of `--on-corrupt`."""

    RAISE = "raise"
    SKIP_BATCH = "skip_batch"


PathOf = Annotated[Path, typer.Argument(help="A .log file in its folder (topic-partition), with indexes beside it.")]
FromOffset = Annotated[int, typer.Option(help="Start at the batch with this offset.", min=0)]
IsolationOf = Annotated[Isolation, typer.Option(help="read_committed leaves out aborted records of the .txnindex.")]
OnCorruptOf = Annotated[OnCorrupt, typer.Option(help="skip_batch goes on behind a corrupt batch and counts it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")]


@app.command()
def dump(
    path: PathOf,
    from_offset: FromOffset = 0,
    records: Annotated[bool, typer.Option("--records", help="Show records instead of batches.")] = False,
    limit: Annotated[int | None, typer.Option(help="The maximum number of lines.", min=1)] = None,
    isolation: IsolationOf = Isolation.READ_UNCOMMITTED,
    on_corrupt: OnCorruptOf = OnCorrupt.RAISE,
    as_json: AsJson = False,
) -> None:
    """Print batches with headers and checksums, or (--records) every record.

    Example: kohort segment dump /var/lib/kafka/flights-0/00000000000000000000.log --records --limit 20

    The exit code is 1 if a checksum is wrong.
    """
    unsound = 0
    with open_segment(path) as segment:
        if records:
            slices = segment.read(from_offset=from_offset, isolation=isolation.value, on_corrupt=on_corrupt.value)
            lines: Iterator[tuple[dict[str, Any], bool]] = (
                (_record(record), True)
                for columns in slices
                for record in _reported(columns)
                if record.offset >= from_offset
            )
        else:
            lines = (
                (_batch(batch, sound), sound)
                for batch in segment.batches(from_offset=from_offset)
                for sound in (segment.is_sound(batch),)
            )
        for number, (line, sound) in enumerate(lines):
            if number == limit:
                break
            unsound += not sound
            print(json.dumps(line) if as_json else "  ".join(f"{name}={value}" for name, value in line.items()))
    if unsound:
        raise KohortError(
            f"batches with a wrong checksum: {unsound}",
            hint="use `--on-corrupt skip_batch` to skip them",
            path=str(path),
        )


@app.command()
def stats(path: PathOf, on_corrupt: OnCorruptOf = OnCorrupt.RAISE, as_json: AsJson = False) -> None:
    """Print sizes, counts, codecs, offsets and times of a segment. Every record is read once.

    Example: kohort segment stats /var/lib/kafka/flights-0/00000000000000000000.log --json
    """
    with open_segment(path) as segment:
        figures = _figures(segment, on_corrupt)
    if as_json:
        print(json.dumps(figures))
        return
    width = max(map(len, figures)) + 2
    for name, value in figures.items():
        say(f"{name:{width}}{_plain(value)}")


@app.command(name="to-parquet")
def to_parquet(
    path: PathOf,
    target: Annotated[Path, typer.Argument(help="The Parquet file to write.")],
    from_offset: FromOffset = 0,
    isolation: IsolationOf = Isolation.READ_UNCOMMITTED,
    on_corrupt: OnCorruptOf = OnCorrupt.RAISE,
    as_json: AsJson = False,
) -> None:
    """Write the segment's records to one Parquet file, in the columns of `to_arrow`.

    Example: kohort segment to-parquet flights-0/00000000000000000000.log flights-0.parquet

    No file is left after an error or a signal.
    """
    with needed("Parquet", "'kohort[arrow]'"):
        from pyarrow import parquet
    from kohort.fastpath.arrow import default_schema

    if os.path.exists(target) and not os.path.isfile(target):  # the file would take the place of a device or a pipe
        raise KohortError("the target is no file", path=target)
    part = target.with_name(f".{target.name}.part")
    written = 0
    try:
        with exit_on_sigterm(), open_segment(path) as segment, writing(target):
            with parquet.ParquetWriter(part, default_schema()) as writer:
                for columns in segment.read(
                    from_offset=from_offset, isolation=isolation.value, on_corrupt=on_corrupt.value
                ):
                    _report(columns)
                    writer.write_batch(columns.to_arrow())
                    written += len(columns)
            part.replace(target)
    finally:
        with suppress(OSError):
            part.unlink()
    print(
        json.dumps({"records": written, "file": str(target)})
        if as_json
        else f"{counted(written, 'record')} -> {target}"
    )


def _figures(segment: Segment, on_corrupt: OnCorrupt) -> dict[str, Any]:
    codecs: Counter[str] = Counter()
    magics: Counter[int] = Counter()
    producers: set[int] = set()
    first = last = None
    transactional = control = 0
    for batch in segment.batches():
        codecs[_codec(batch)] += 1
        magics[batch.magic] += 1
        transactional += batch.transactional
        control += batch.control
        producers |= {batch.producer_id} - {-1}
        first = batch.base_offset if first is None else first
        last = batch.last_offset
    records = tombstones = keyless = key_bytes = value_bytes = corrupt = 0
    earliest: int | None = None
    latest: int | None = None
    for columns in segment.read(on_corrupt=on_corrupt.value):
        records += len(columns)
        tombstones += columns.values.null_count
        keyless += columns.keys.null_count
        key_bytes += columns.keys.nbytes
        value_bytes += columns.values.nbytes
        corrupt += len(columns.corrupt)
        stamps = columns.timestamps_ms
        if len(stamps):
            low, high = min(stamps), max(stamps)
            earliest = low if earliest is None else min(earliest, low)
            latest = high if latest is None else max(latest, high)
    return {
        "topic": segment.topic or None,
        "partition": None if segment.partition < 0 else segment.partition,
        "size_bytes": segment.size_bytes,
        "batches": sum(codecs.values()),
        "magics": {str(magic): count for magic, count in sorted(magics.items())},
        "codecs": dict(codecs),
        "records": records,
        "first_offset": first,
        "last_offset": last,
        "earliest": None if earliest is None else moment(earliest),
        "latest": None if latest is None else moment(latest),
        "null_keys": keyless,
        "null_values": tombstones,
        "key_bytes": key_bytes,
        "value_bytes": value_bytes,
        "bytes_per_record": round(segment.size_bytes / records, 1) if records else None,
        "producers": len(producers),
        "transactional_batches": transactional,
        "control_batches": control,
        "aborted_transactions": len(segment.aborted()),
        "corrupt_batches": corrupt,
    }


def _batch(batch: BatchInfo, sound: bool) -> dict[str, Any]:
    fields = batch._asdict() | {"codec": _codec(batch), "sound": sound}
    return {
        name: value for name, value in fields.items() if (value is not None and value is not False) or name == "sound"
    }


def _codec(batch: BatchInfo) -> str:
    return batch.codec.name.lower() if isinstance(batch.codec, Codec) else str(batch.codec)


def _record(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": moment(record.timestamp_ms),
        "key": _text(record.key),
        "value": _text(record.value),
        **({"headers": [[name, _text(value)] for name, value in record.headers]} if record.headers else {}),
    }


def _text(data: bytes | None) -> str | None:
    """Return printable UTF-8 as text, anything else as hex, both cut if long."""
    if data is None:
        return None
    text = data.decode("utf-8", "replace")
    if not text.isprintable() or "\ufffd" in text:
        text = f"0x{data.hex()}"
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}... ({len(data)} bytes)"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {count}" for name, count in value.items())
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _reported(columns: RecordColumns) -> Iterable[Record]:
    _report(columns)
    return columns


def _report(columns: RecordColumns) -> None:
    """Print skipped batches on standard error."""
    for error in columns.corrupt:
        say(f"kohort: skipped: {error}", sys.stderr)
