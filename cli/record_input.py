"""Reads records for `kohort produce`: lines, JSON lines, Parquet and Arrow files."""

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from kohort.cli.file_errors import reading
from kohort.cli.numbers_given import json_number
from kohort.common.errors import KohortError
from kohort.common.foreign_text import parsed_json
from kohort.common.named_tuple import NamedTuple
from kohort.common.optional_libraries import needed

if TYPE_CHECKING:
    import pyarrow as pa

STANDARD_INPUT: Final = Path("-")
SHOWN: Final = 40  # characters of a value in an error
ARROW_FILE: Final = b"ARROW1"  # the first bytes of a file, and not of a stream
OF_CONSUME: Final = ("topic", "offset", "timestamp_type", "delivery_count")
"""Fields and columns that `kohort consume` writes, and that a new record does not take."""


class InputFormat(StrEnum):
    """The input formats of records."""

    TEXT = "text"
    JSON = "json"
    PARQUET = "parquet"
    ARROW = "arrow"


class TextInput(StrEnum):
    """The representations of bytes in JSON lines."""

    UTF8 = "utf8"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


def _utf8(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{json.dumps(value)[:SHOWN]} is no text")
    return value.encode()


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


READ: Final[Mapping[TextInput, Callable[[Any], bytes]]] = {
    TextInput.UTF8: _utf8,
    TextInput.JSON: _json,
    TextInput.HEX: bytes.fromhex,
    TextInput.BASE64: lambda text: base64.b64decode(text, validate=True),
}
SUFFIXES: Final = {
    ".json": InputFormat.JSON,
    ".jsonl": InputFormat.JSON,
    ".ndjson": InputFormat.JSON,
    ".parquet": InputFormat.PARQUET,
    ".arrow": InputFormat.ARROW,
    ".arrows": InputFormat.ARROW,
    ".feather": InputFormat.ARROW,
    ".ipc": InputFormat.ARROW,
}


class InputRecord(NamedTuple):
    """A record to send. `line`: its line in the input."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None
    line: int = 0


FIELDS: Final = frozenset(InputRecord._fields) - {"line"}


def format_of(path: Path) -> InputFormat:
    """The format that a file's suffix names; lines of text for any other."""
    return SUFFIXES.get(path.suffix.lower(), InputFormat.TEXT)


def opened(path: Path) -> AbstractContextManager[BinaryIO]:
    """A file, or standard input for "-". Raises KohortError if it cannot be read."""
    if path == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    with reading(path):
        return path.open("rb")


# ------------------------------------------------------------------------------------------------------------- lines


def text_records(lines: Iterable[bytes], separator: str | None) -> Iterator[InputRecord]:
    """A record a line. `separator`: the end of the key. Raises KohortError for a line without it."""
    ends = separator.encode() if separator is not None else None
    for number, line in enumerate(lines, 1):
        text = line.removesuffix(b"\n")
        if ends is None:
            yield InputRecord(text, line=number)
            continue
        key, found, value = text.partition(ends)
        if not found:
            raise KohortError(f"no {separator!r} in the line", hint="end the key of each line with it", line=number)
        yield InputRecord(value, key, line=number)


def json_records(lines: Iterable[bytes], key: TextInput, value: TextInput, header: TextInput) -> Iterator[InputRecord]:
    """A record a line, with the fields that `kohort consume --json` prints. Raises KohortError for anything else."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            given = parsed_json(line, parse_constant=json_number, parse_float=json_number)
            yield _of_json(given, READ[key], READ[value], READ[header], number)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise KohortError(
                f"not a record: {error}",
                hint='use {"value": "...", "key": "...", "headers": [["name", "..."]], "timestamp_ms": 0}, and --value '
                "json for other values than text",
                line=number,
            ) from None


def _of_json(
    given: Any,
    key: Callable[[Any], bytes],
    value: Callable[[Any], bytes],
    header: Callable[[Any], bytes],
    line: int,
) -> InputRecord:
    if not isinstance(given, dict) or "value" not in given:
        raise ValueError("no object with a field 'value'")
    if strange := given.keys() - FIELDS - set(OF_CONSUME):
        raise ValueError(f"no record has a field {min(strange)!r}")
    for name in ("timestamp_ms", "partition"):
        if not isinstance(given.get(name, 0), int | None) or isinstance(given.get(name), bool):
            raise TypeError(f"{name} is no integer")
    pairs = given.get("headers") or ()
    headers = list(pairs.items() if isinstance(pairs, dict) else pairs)
    if not all(isinstance(one, list | tuple) and len(one) == 2 and isinstance(one[0], str) for one in headers):
        raise ValueError("a header is no pair of a name and a value")
    return InputRecord(
        _read(value, given["value"]),
        _read(key, given.get("key")),
        tuple((name, _read(header, data)) for name, data in headers),
        given.get("timestamp_ms"),
        given.get("partition"),
        line,
    )


def _read(read: Callable[[Any], bytes], given: Any) -> bytes | None:
    return None if given is None else read(given)


# ----------------------------------------------------------------------------------------------------------- columns


def parquet_tables(file: BinaryIO, rows_at_once: int) -> "tuple[Iterator[pa.RecordBatch], int]":
    """The rows of a Parquet file, and their number. Raises KohortError if it is none, and without pyarrow."""
    pa, pq = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    try:
        found = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise KohortError(f"not a Parquet file: {error}", hint="standard input takes lines and Arrow streams") from None
    return found.iter_batches(rows_at_once, columns=_columns(found.schema_arrow.names)), found.metadata.num_rows


def arrow_tables(file: BinaryIO, rows_at_once: int) -> "Iterator[pa.RecordBatch]":
    """The rows of an Arrow file or stream. Raises KohortError if it is neither, and without pyarrow."""
    pa = _arrow("pyarrow")
    is_file = file.seekable() and file.read(len(ARROW_FILE)) == ARROW_FILE
    if file.seekable():
        file.seek(0)
    try:
        reader = pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)
    except (pa.ArrowException, OSError) as error:
        raise KohortError(f"neither an Arrow file nor a stream: {error}") from None
    batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
    names = _columns(reader.schema.names)
    chosen = (batch.select(names) for batch in batches)
    return (batch.slice(at, rows_at_once) for batch in chosen for at in range(0, batch.num_rows, rows_at_once))


def _columns(names: list[str]) -> list[str]:
    """The columns of records. Those of `kohort consume --parquet` that no record takes are left out."""
    return [name for name in names if name not in OF_CONSUME]


def _arrow(module: str) -> Any:
    from importlib import import_module

    with needed("Parquet or Arrow", "'kohort[arrow]'"):
        return import_module(module)
