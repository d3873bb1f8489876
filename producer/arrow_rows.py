"""Converts Arrow columns to the input of `fastpath._rows`, without copying their buffers.

A producer imports this module at its first rows, since pyarrow takes long to load.
"""

from typing import Any

from kohort.common import KohortError
from kohort.common.named_tuple import NamedTuple
from kohort.common.optional_libraries import needed
from kohort.fastpath._rows import BytesRows

with needed("send_arrow", "'kohort[arrow]'"):
    import pyarrow as pa
    import pyarrow.compute as pc

NAMES = ("key", "value", "timestamp", "partition", "headers")


class Rows(NamedTuple):
    """The columns of an Arrow batch that records have.

    `headers`: an Arrow array, None if no row has any.
    """

    size: int
    keys: BytesRows | None
    values: BytesRows | None
    timestamps_ms: memoryview | None
    partitions: memoryview | None
    headers: pa.Array | None
    source: pa.RecordBatch


def rows_of(data: pa.Table | pa.RecordBatch, now_ms: int, topic: str) -> list[Rows]:
    """The rows of `data`, by batch. Rows without a timestamp get `now_ms`.

    Required column: value. Optional: key (both binary or string of any width), timestamp (int64 or timestamp: ms).
    Optional, too: partition (integer, no nulls), headers (map, or list of struct of key and value). Raises KohortError
    for other columns or types.
    """
    if not isinstance(data, pa.Table | pa.RecordBatch):
        raise TypeError(f"the rows are a pyarrow Table or RecordBatch, not {type(data).__name__} (topic={topic})")
    strange = [name for name in data.schema.names if name not in NAMES]
    twice = [name for name in NAMES if data.schema.names.count(name) > 1]
    if twice:
        raise KohortError(f"two columns have the name {twice[0]!r}", hint="drop or rename one", topic=topic)
    if strange or "value" not in data.schema.names:
        raise KohortError(
            f"no record has a column {strange[0]!r}" if strange else "there is no column 'value'",
            hint=f"rename or select: records have {', '.join(NAMES)}",
            topic=topic,
        )
    batches = data.to_batches() if isinstance(data, pa.Table) else [data]
    return [_rows(batch, now_ms, topic) for batch in batches if batch.num_rows]


def _rows(batch: pa.RecordBatch, now_ms: int, topic: str) -> Rows:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    keys = _bytes("key", columns.get("key"), topic)
    return Rows(
        batch.num_rows,
        keys,
        _bytes("value", columns["value"], topic, even_nulls=keys is None),  # one of the two has the number of rows
        _timestamps(columns.get("timestamp"), now_ms, topic),
        _partitions(columns.get("partition"), topic),
        _headers(columns.get("headers"), topic),
        batch,
    )


def _bytes(name: str, array: Any, topic: str, *, even_nulls: bool = False) -> BytesRows | None:
    if array is None or (array.null_count == len(array) and not even_nulls):
        return None
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    types = pa.types
    if not (types.is_large_binary(array.type) or types.is_large_string(array.type)):
        try:
            array = array.cast(pa.binary())  # copies views, fixed sizes and the like, but not strings
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            hint = "cast it to binary or string"
            raise KohortError(f"column {name!r} is {array.type}: {error}", hint=hint, topic=topic) from None
    wide = types.is_large_binary(array.type) or types.is_large_string(array.type)
    validity, offsets, data = array.buffers()
    return BytesRows(
        offsets, data, validity if array.null_count else None, wide=wide, first=array.offset, count=len(array)
    )


def _timestamps(array: Any, now_ms: int, topic: str) -> memoryview | None:
    if array is None or array.null_count == len(array):
        return None
    types = pa.types
    if types.is_date(array.type):
        array = array.cast(pa.timestamp("ms"))
    elif types.is_timestamp(array.type):
        array = array.cast(pa.timestamp("ms", array.type.tz), safe=False)
    elif not types.is_integer(array.type):  # floats have fractions, and Arrow reads numbers from strings and bools
        raise KohortError(
            f"column 'timestamp' is {array.type}, not milliseconds",
            hint="cast it to int64 (ms since the epoch) or a timestamp",
            topic=topic,
        )
    try:
        array = array.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise KohortError(f"column 'timestamp' is not milliseconds: {error}", topic=topic) from None
    if (pc.min(array).as_py() or 0) < 0:
        raise KohortError("column 'timestamp' has a negative time", hint="times are in ms since the epoch", topic=topic)
    return _integers(array.fill_null(now_ms) if array.null_count else array, 8)


def _headers(array: Any, topic: str) -> Any:
    """The column of headers, of which each has a name and bytes."""
    if array is None or array.null_count == len(array):
        return None
    if pa.types.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
    if not _are_headers(array.type):
        raise KohortError(
            f"column 'headers' is {array.type}",
            hint="cast it to a map of string and binary, or to a list of struct of key (string) and value (binary)",
            topic=topic,
        )
    unnamed = pc.struct_field(array.flatten(), "key").is_null()
    if pc.any(unnamed).as_py():
        row = pc.list_parent_indices(array).filter(unnamed)[0].as_py()
        raise KohortError("a header has no name", hint="filter them out of column 'headers'", topic=topic, row=row)
    return array


def _are_headers(kind: Any) -> bool:
    types = pa.types
    if not (types.is_list(kind) or types.is_large_list(kind)) or not types.is_struct(kind.value_type):
        return False
    fields = {field.name: field.type for field in kind.value_type}
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return fields.keys() == {"key", "value"} and all(
        types.is_null(field) or any(one(field) for one in texts) for field in fields.values()
    )


def _partitions(array: Any, topic: str) -> memoryview | None:
    if array is None or array.null_count == len(array):
        return None
    if array.null_count:
        hint = "split the rows, or name all"
        raise KohortError("column 'partition' names one for some rows only", hint=hint, topic=topic)
    if not pa.types.is_integer(array.type):  # as for timestamps
        raise KohortError(f"column 'partition' is {array.type}", hint="cast it to int32", topic=topic)
    try:
        return _integers(array.cast(pa.int32()), 4).cast("i")
    except pa.ArrowInvalid as error:
        raise KohortError(f"column 'partition' has no such number: {error}", topic=topic) from None


def _integers(array: Any, size: int) -> memoryview:
    return memoryview(array.buffers()[1]).cast("B")[array.offset * size : (array.offset + len(array)) * size]
