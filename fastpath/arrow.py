"""Converts columns to Arrow over the same buffers. It is imported at first use, since pyarrow takes long to load.

| column | type without a schema | also |
|---|---|---|
| offset | int64 | |
| timestamp | timestamp[ms, UTC] | any unit and zone, int64 |
| timestamp_type | int8: 0 created, 1 appended by the broker, -1 none | int32 (Spark's) |
| key, value | binary | large_binary, binary_view, string, large_string |
| headers | list<struct<key: string, value: binary>>, null if there are none | large_list |
| topic | dictionary<int8, string> | string |
| partition | int32 | any integer |

Offsets and timestamps are not copied, nor are keys and values as binary_view. Type binary copies keys and values once.
"""

from bisect import bisect_left
from collections.abc import Callable
from struct import pack
from typing import TYPE_CHECKING, Any, Protocol

from kohort.common.errors import KohortError
from kohort.common.optional_libraries import needed

with needed("Arrow", "'kohort[arrow]'"):
    import pyarrow as pa

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]
    import polars

    from kohort.fastpath._bytes_column import BytesColumn
    from kohort.fastpath._headers import HeaderLayout


class SourceColumns(Protocol):
    """The buffers of a `RecordColumns`."""

    topic: str
    partition: int

    def __len__(self) -> int: ...
    @property
    def offsets(self) -> memoryview: ...
    @property
    def timestamps_ms(self) -> memoryview: ...
    @property
    def timestamp_types(self) -> memoryview: ...
    @property
    def keys(self) -> "BytesColumn": ...
    @property
    def values(self) -> "BytesColumn": ...
    @property
    def headers(self) -> "HeaderLayout | None": ...


def record_batch(columns: "SourceColumns", schema: pa.Schema | None = None) -> pa.RecordBatch:
    """Return a pyarrow.RecordBatch of `columns`: those of `schema`, in its order and types, or all of them by default.

    Raises KohortError for an unknown column or type, and for the first record that does not fit its type.
    """
    if schema is None:
        schema = default_schema()
    arrays = []
    for field in schema:
        build = _BUILDERS.get(field.name)
        if build is None:
            raise KohortError(
                f"unknown column {field.name!r} in records", hint=f"the columns are {', '.join(_BUILDERS)}"
            )
        array = build(columns, field.type)
        if array.type != field.type:
            try:
                array = array.cast(field.type)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
                place = _misfit(columns, array, field.type) if isinstance(error, pa.ArrowInvalid) else {}
                raise KohortError(f"column {field.name!r} cannot be of type {field.type}: {error}", **place) from None
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _misfit(columns: "SourceColumns", array: pa.Array, kind: pa.DataType) -> dict[str, Any]:
    """Return the index of the first record with a value that is not a valid `kind`."""

    def fails(rows: int) -> bool:
        try:
            array.slice(0, rows).cast(kind)
        except pa.ArrowInvalid:
            return True
        return False

    row = bisect_left(range(1, len(columns) + 1), True, key=fails)
    offset = {"offset": columns.offsets[row]} if row < len(columns) else {}
    return {"topic": columns.topic, "partition": columns.partition, **offset}


def pandas_frame(columns: "SourceColumns", schema: pa.Schema | None = None) -> "pandas.DataFrame":
    """Return a pandas.DataFrame of `columns`."""
    with needed("pandas", "pandas 'kohort[arrow]'"):
        import pandas

    frame = record_batch(columns, schema).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    return frame


def polars_frame(columns: "SourceColumns", schema: pa.Schema | None = None) -> "polars.DataFrame":
    """Return a polars.DataFrame of `columns`. Without a schema, keys and values are views, without a copy."""
    with needed("Polars", "polars 'kohort[arrow]'"):
        import polars

    if schema is None:
        schema = default_schema()
        for name in ("key", "value"):
            schema = schema.set(schema.get_field_index(name), pa.field(name, pa.binary_view()))
    frame = polars.from_arrow(record_batch(columns, schema))
    assert isinstance(frame, polars.DataFrame)
    return frame


def default_schema() -> pa.Schema:
    """Return the schema of `to_arrow()`."""
    return pa.schema(
        [
            ("topic", pa.dictionary(pa.int8(), pa.string())),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", "UTC")),
            ("timestamp_type", pa.int8()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ]
    )


def _fixed(values: memoryview, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], 0)


def _timestamp(columns: "SourceColumns", kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return _fixed(columns.timestamps_ms, pa.timestamp("ms", kind.tz))
    return _fixed(columns.timestamps_ms, pa.int64())


def _topic(columns: "SourceColumns", kind: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(kind):
        return pa.repeat(pa.scalar(columns.topic, pa.string()), len(columns))
    indices = _fixed(memoryview(bytes(len(columns))), pa.int8())
    return pa.DictionaryArray.from_arrays(indices, pa.array([columns.topic], pa.string()))


def _partition(columns: "SourceColumns", kind: pa.DataType) -> pa.Array:
    return _fixed(memoryview(pack("i", columns.partition) * len(columns)).cast("i"), pa.int32())


def _bytes(column: "BytesColumn", kind: pa.DataType) -> pa.Array:
    validity = column.validity
    bits = None if validity is None else pa.py_buffer(validity)
    nulls = column.null_count
    if hasattr(pa, "binary_view") and kind in (pa.binary_view(), pa.string_view()):
        views, buffers = column.views()
        data = [pa.py_buffer(buffer) for buffer in buffers]
        return pa.Array.from_buffers(pa.binary_view(), len(column), [bits, pa.py_buffer(views), *data], nulls)
    wide = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    offsets, contiguous = column.contiguous(wide=wide)
    plain = pa.large_binary() if wide else pa.binary()
    return pa.Array.from_buffers(plain, len(column), [bits, pa.py_buffer(offsets), pa.py_buffer(contiguous)], nulls)


def _headers(columns: "SourceColumns", kind: pa.DataType) -> pa.Array:
    pair = getattr(kind, "value_type", None)
    for field in pair if pair is not None and pa.types.is_struct(pair) else ():
        if field.name not in ("key", "value"):  # a cast would fill it with nulls
            raise KohortError(f"unknown field {field.name!r} in headers", hint="the fields are key and value")
    layout = columns.headers
    count = len(columns)
    if layout is None:
        return pa.nulls(count, kind)
    total = layout.total
    names = pa.Array.from_buffers(
        pa.string(), total, [None, pa.py_buffer(layout.name_offsets), pa.py_buffer(layout.names)], 0
    )
    values = pa.Array.from_buffers(
        pa.binary(),
        total,
        [pa.py_buffer(layout.validity), pa.py_buffer(layout.value_offsets), pa.py_buffer(layout.values)],
    )
    pairs = pa.StructArray.from_arrays([names, values], names=["key", "value"])
    return pa.Array.from_buffers(
        pa.list_(pairs.type), count, [pa.py_buffer(layout.present), pa.py_buffer(layout.offsets)], children=[pairs]
    )


_BUILDERS: dict[str, Callable[["SourceColumns", Any], Any]] = {
    "topic": _topic,
    "partition": _partition,
    "offset": lambda columns, kind: _fixed(columns.offsets, pa.int64()),
    "timestamp": _timestamp,
    "timestamp_type": lambda columns, kind: _fixed(columns.timestamp_types, pa.int8()),
    "key": lambda columns, kind: _bytes(columns.keys, kind),
    "value": lambda columns, kind: _bytes(columns.values, kind),
    "headers": _headers,
}
