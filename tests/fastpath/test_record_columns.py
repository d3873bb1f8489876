"""RecordColumns and Record: slices, pickles and Arrow over the same buffers."""

import gc
import pickle
import sys
import threading
from itertools import pairwise
from typing import Any

import pandas  # type: ignore[import-untyped]
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort import KohortError, TopicPartition
from kohort.fastpath import Record, RecordColumns, _headers, decode, encode
from kohort.fastpath._bytes_column import BytesColumn
from kohort.fastpath._encode import BatchBuilder, seal

HEADERS = (("a", b"1"), ("b", None), ("a", b""))
NEW = [
    (None if i % 3 == 0 else b"k%d" % i, None if i % 4 == 0 else b"v" * i, 1_000 + i, HEADERS[: i % 4])
    for i in range(40)
]
VIEWS = pa.schema([("key", pa.binary_view()), ("value", pa.binary_view())])


def columns_of(*codecs: str, log_append_time_ms: int | None = None) -> RecordColumns:
    """The 40 records again and again, a batch a codec."""
    data = b"".join(
        encode(NEW, codec=codec, base_offset=100 + 50 * i, log_append_time_ms=log_append_time_ms if i % 2 else None)
        for i, codec in enumerate(codecs)
    )
    return decode(data, topic="flights", partition=3)


@pytest.fixture(params=[("none",), ("zstd",), ("none", "lz4", "none", "gzip", "snappy")], ids="+".join)
def columns(request: pytest.FixtureRequest) -> RecordColumns:
    return columns_of(*request.param, log_append_time_ms=7)


def values(records: Any) -> list[tuple[Any, ...]]:
    return [
        (r.topic, r.partition, r.offset, r.timestamp_ms, r.timestamp_type, r.key, r.value, r.headers) for r in records
    ]


def test_a_record_by_place_is_the_one_that_iteration_gives(columns: RecordColumns) -> None:
    assert values(columns) == values(columns[i] for i in range(len(columns)))
    assert values([columns[-1]]) == values(columns)[-1:]
    for place in (len(columns), -len(columns) - 1):
        with pytest.raises(IndexError):
            columns[place]


def test_a_slice_is_the_same_records_and_says_where_to_go_on(columns: RecordColumns) -> None:
    everything, count = values(columns), len(columns)
    for start, stop in ((0, 0), (0, count), (3, 17), (5, -5), (35, count), (count, count), (9, 2)):
        part = columns[start:stop]
        assert values(part) == everything[start:stop]
        assert list(part.keys) == [row[5] for row in everything[start:stop]]
        assert list(part.offsets) == [row[2] for row in everything[start:stop]]
    assert columns[:10].next_offset == columns[10].offset
    assert columns[10:].next_offset == columns.next_offset
    assert columns.next_offsets == {TopicPartition("flights", 3): columns[-1].offset + 1}
    assert values(columns[10:30][5:10]) == everything[15:20]
    with pytest.raises(ValueError, match="step 1"):
        columns[::2]


@pytest.mark.proves("B-09")
def test_each_skipped_batch_is_in_one_part_of_its_slice() -> None:
    new: Any = [(b"k", b"v", 1)] * 3
    data = [encode(new, base_offset=at) for at in range(0, 15, 3)]
    for bad in (0, 2, 4):
        data[bad] = data[bad][:-1] + b"?"
    columns = decode(b"".join(data), on_corrupt="skip_batch", high_watermark=15)
    assert [record.offset for record in columns] == [3, 4, 5, 9, 10, 11]
    for cuts in ((0, 6), (0, 1, 6), (0, 3, 6), (0, 2, 4, 6), (0, 6, 6)):
        parts = [columns[start:stop] for start, stop in pairwise(cuts)]
        assert [error.place["offset"] for part in parts for error in part.corrupt] == [0, 6, 12]
        assert all((error.resumed_at or 0) <= part.next_offset for part in parts for error in part.corrupt)
    assert columns[1:3][:1].corrupt == columns[2:4][1:].corrupt == ()


def test_a_slice_copies_nothing() -> None:
    columns = columns_of("none")
    whole = pa.py_buffer(columns.offsets).address
    assert pa.py_buffer(columns[10:].offsets).address == whole + 80


def test_columns_are_readonly_memoryviews(columns: RecordColumns) -> None:
    for view, kind in ((columns.offsets, "q"), (columns.timestamps_ms, "q"), (columns.timestamp_types, "b")):
        assert view.readonly
        assert view.format == kind
        assert len(view) == len(columns)


def test_a_column_of_bytes(columns: RecordColumns) -> None:
    expected = [record.value for record in columns]
    assert list(columns.values) == expected
    assert columns.values[-1] == expected[-1]
    assert columns.values.null_count == expected.count(None)
    assert columns.values.nbytes == sum(len(value) for value in expected if value is not None)
    offsets, data = columns.values.contiguous()
    wide, same = columns.values.contiguous(wide=True)
    assert list(offsets) == list(wide)
    assert bytes(data) == bytes(same) == b"".join(value or b"" for value in expected)
    with pytest.raises(IndexError):
        columns.values[len(columns)]
    part = columns.values[3:-2]
    assert list(part) == list(part[:]) == expected[3:-2]
    assert bytes(part.contiguous()[1]) == b"".join(value or b"" for value in expected[3:-2])
    assert list(columns.values[5:2]) == []
    with pytest.raises(ValueError, match="step 1"):
        columns.values[::2]


def test_a_pickle_is_the_same_records_without_the_rest_of_the_fetch(columns: RecordColumns) -> None:
    again = pickle.loads(pickle.dumps(columns))
    assert values(again) == values(columns)
    assert (again.topic, again.partition, again.next_offset) == ("flights", 3, columns.next_offset)
    part = columns[3:5]
    assert values(pickle.loads(pickle.dumps(part))) == values(part)
    assert pickle.loads(pickle.dumps(part)).next_offset == part.next_offset
    assert (again.complete, part.complete, pickle.loads(pickle.dumps(part)).complete) == (True, False, False)
    assert (columns.compact().complete, part.compact().complete) == (True, False)
    assert len(pickle.dumps(part)) < 1_000
    assert values(part.compact()) == values(part)
    record = columns[7]
    assert pickle.loads(pickle.dumps(record)) == record
    assert len(pickle.dumps(columns[:0])) < 1_000
    assert pickle.loads(pickle.dumps(columns[:0])) == columns[:0]


def test_a_pickle_that_was_tampered_with_cannot_point_outside() -> None:
    reduced: Any = columns_of("none").__reduce__()
    rebuild, state = reduced
    for place, tampered in (
        (7, b"\x00\x00\x00\x7f" * 80),
        (8, b"\x00\x00\x00\x7f" * 80),
        (9, b"\x00\x00\x00\x7f" * 40),
        (10, b""),
    ):
        with pytest.raises(ValueError, match="outside their data"):
            rebuild(*state[:place], tampered, *state[place + 1 :])
    with pytest.raises(ValueError, match="different lengths"):
        rebuild(*state[:7], state[7][:-8], *state[8:])


@pytest.mark.parametrize("kind", [Record, RecordColumns, BytesColumn])
def test_a_record_without_columns_cannot_be_made(kind: type[Any]) -> None:
    """Its attributes would read memory that is not its own."""
    with pytest.raises(TypeError, match=r"decode only|property of columns"):
        kind()


def test_records_are_equal_by_value_and_hash_alike() -> None:
    one, other = columns_of("none"), columns_of("gzip")
    assert one == other
    assert list(one) == list(other)
    assert len(set(one) | set(other)) == 40
    assert one[0] != one[1]
    assert one != one[1:]
    assert (one[0] == "something else") is False
    assert "offset=101" in repr(one[1])
    assert "records=40" in repr(one)


def test_a_record_outlives_its_columns() -> None:
    record: Record = columns_of("zstd")[5]
    gc.collect()
    for _ in range(10):
        decode(encode([(b"x" * 100, b"y" * 100)] * 50, codec="zstd"))
    assert (record.key, record.value) == NEW[5][:2]


class TestArrow:
    def test_the_usual_columns(self, columns: RecordColumns) -> None:
        batch = columns.to_arrow()
        batch.validate(full=True)
        assert batch.num_rows == len(columns)
        records = list(columns)
        assert batch["offset"].to_pylist() == [r.offset for r in records]
        assert batch["key"].to_pylist() == [r.key for r in records]
        assert batch["value"].to_pylist() == [r.value for r in records]
        assert batch["timestamp"].cast(pa.int64()).to_pylist() == [r.timestamp_ms for r in records]
        assert batch["timestamp_type"].to_pylist() == [int(r.timestamp_type == "append") for r in records]
        assert set(batch["topic"].to_pylist()) == {"flights"}
        assert set(batch["partition"].to_pylist()) == {3}
        headers = [
            None if pairs is None else tuple((pair["key"], pair["value"]) for pair in pairs)
            for pairs in batch["headers"].to_pylist()
        ]
        assert headers == [r.headers or None for r in records]

    def test_a_slice(self, columns: RecordColumns) -> None:
        part = columns[7:33].to_arrow()
        part.validate(full=True)
        assert part.equals(columns.to_arrow().slice(7, 26))

    def test_no_records_and_no_headers(self) -> None:
        empty = decode(b"", topic="t").to_arrow()
        empty.validate(full=True)
        assert empty.num_rows == 0
        bare = decode(encode([(b"k", b"v")])).to_arrow()
        bare.validate(full=True)
        assert bare["headers"].to_pylist() == [None]

    @pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=str)
    def test_keys_and_values_in_every_layout(self, columns: RecordColumns, kind: Any) -> None:
        batch = columns.to_arrow(pa.schema([("value", kind), ("key", kind)]))
        batch.validate(full=True)
        assert batch.schema.names == ["value", "key"]
        assert batch["value"].type == kind
        assert batch["value"].to_pylist() == [r.value for r in columns]
        assert batch["key"].to_pylist() == [r.key for r in columns]

    def test_views_point_into_the_fetched_buffer_and_offsets_are_the_columns_own(self) -> None:
        data = encode([(None, b"v" * 100)] * 5)
        columns = decode(data)
        batch = columns.to_arrow(pa.schema([("offset", pa.int64()), ("value", pa.binary_view())]))
        assert batch["value"].buffers()[2].address == pa.py_buffer(data).address
        assert batch["offset"].buffers()[1].address == pa.py_buffer(columns.offsets).address

    def test_sparks_types(self, columns: RecordColumns) -> None:
        header = pa.struct([("key", pa.string()), ("value", pa.binary())])
        schema = pa.schema(
            [
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", pa.timestamp("us", "UTC")),
                ("timestamp_type", pa.int32()),
                ("headers", pa.list_(header)),
            ]
        )
        batch = columns.to_arrow(schema)
        batch.validate(full=True)
        assert batch.schema == schema
        assert batch["timestamp"].cast(pa.int64()).to_pylist() == [r.timestamp_ms * 1000 for r in columns]

    def test_text_where_it_is_text_and_a_clear_error_where_it_is_not(self) -> None:
        text = decode(encode([("grüße".encode(), b"v")]))
        assert text.to_arrow(pa.schema([("key", pa.string())]))["key"].to_pylist() == ["grüße"]
        broken = decode(encode([(b"\xff", b"v")]))
        for kind in (pa.string(), pa.large_string(), pa.string_view()):
            with pytest.raises(KohortError, match="key"):
                broken.to_arrow(pa.schema([("key", kind)]))

    @pytest.mark.parametrize("bad", [0, 5, 8])
    @pytest.mark.parametrize(
        ("column", "kind", "key", "timestamp_ms"),
        [("key", pa.string(), b"\xff", 1), ("timestamp", pa.timestamp("us", "UTC"), b"k", 1 << 60)],
    )
    def test_the_first_record_that_does_not_fit_is_named(
        self, bad: int, column: str, kind: pa.DataType, key: bytes, timestamp_ms: int
    ) -> None:
        good: Any = [(b"k", b"v", 1)] * 9
        new = [*good[:bad], (key, b"v", timestamp_ms), *good[bad + 1 :], (key, b"v", timestamp_ms)]
        columns = decode(encode(new, base_offset=100), topic="flights", partition=3)
        with pytest.raises(KohortError, match=f"'{column}' cannot be") as caught:
            columns.to_arrow(pa.schema([(column, kind)]))
        assert caught.value.place == {"topic": "flights", "partition": 3, "offset": 100 + bad}

    def test_an_unknown_column_is_refused_with_the_known_ones(self, columns: RecordColumns) -> None:
        with pytest.raises(KohortError, match=r"'valeu'.*key, value"):
            columns.to_arrow(pa.schema([("valeu", pa.binary())]))
        with pytest.raises(KohortError, match="offset"):
            columns.to_arrow(pa.schema([("offset", pa.list_(pa.int8()))]))

    @pytest.mark.parametrize("many", [pa.list_, pa.large_list])
    def test_an_unknown_field_of_headers_is_refused(self, columns: RecordColumns, many: Any) -> None:
        pair = [("key", pa.string()), ("value", pa.binary())]
        known = columns.to_arrow(pa.schema([("headers", many(pa.struct(pair)))]))["headers"].to_pylist()
        assert known == columns.to_arrow()["headers"].to_pylist()
        for records in (columns, columns[:0]):
            with pytest.raises(KohortError, match=r"'name' in headers.*key and value"):
                records.to_arrow(pa.schema([("headers", many(pa.struct([*pair, ("name", pa.string())])))]))

    def test_header_names_that_are_no_utf8_read_as_java_reads_them(self) -> None:
        new: Any = [(None, None, 0, [(b"\xff", b"1")]), (None, None, 0, [(b"\xc3", b"2"), (b"\xa9", b"3")])]
        columns = decode(encode(new))
        batch = columns.to_arrow()
        batch.validate(full=True)
        assert [[pair["key"] for pair in pairs] for pairs in batch["headers"].to_pylist()] == [["�"], ["�", "�"]]
        assert [record.headers[0][0] for record in columns] == ["�", "�"]

    @pytest.mark.parametrize(
        ("what", "most", "new"),
        [
            ("entries", 3, [("", b"")] * 4),
            ("bytes of names", 7, [("four", b""), ("more", b"")]),
            ("bytes of values", 7, [("", b"1234"), ("", b"5678")]),
            # Each of these bytes becomes the three of U+FFFD.
            ("bytes of names", 8, [(b"\xff" * 3, b"")]),
        ],
    )
    def test_headers_past_what_an_int32_offset_holds_are_refused(
        self, what: str, most: int, new: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        columns = decode(encode([(None, None, 0, new)]))
        assert columns.headers is not None
        monkeypatch.setattr(_headers, "MOST_OFFSET", most)
        with pytest.raises(OverflowError, match=f"{most + 1} {what}"):
            columns.headers  # noqa: B018
        monkeypatch.setattr(_headers, "MOST_OFFSET", most + 1)
        assert columns.headers.total == len(new)

    def test_the_batch_outlives_the_columns(self) -> None:
        batch = columns_of("zstd").to_arrow(VIEWS)
        gc.collect()
        decode(encode([(b"x" * 100, b"y" * 100)] * 50, codec="zstd"))
        assert batch["value"].to_pylist() == [value for _, value, *_ in NEW]

    def test_pandas_and_polars(self, columns: RecordColumns) -> None:
        frame = columns.to_pandas()
        assert isinstance(frame, pandas.DataFrame)
        assert frame["offset"].tolist() == list(columns.offsets)
        table = columns.to_polars()
        assert isinstance(table, polars.DataFrame)
        assert table["value"].to_list() == list(columns.values)
        assert table["offset"].to_list() == list(columns.offsets)


@settings(max_examples=100)
@given(
    new=st.lists(
        st.tuples(
            st.none() | st.binary(max_size=30),
            st.none() | st.binary(max_size=30),
            st.integers(0, 1 << 40),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
        ),
        min_size=1,
        max_size=30,
    ),
    codec=st.sampled_from(["none", "lz4"]),
    cut=st.tuples(st.integers(0, 30), st.integers(0, 30)),
)
def test_arrow_pickles_and_records_have_the_same(new: list[Any], codec: str, cut: tuple[int, int]) -> None:
    columns = decode(encode(new, codec=codec))[slice(*cut)]
    expected = new[slice(*cut)]
    for read in (columns, pickle.loads(pickle.dumps(columns)), columns.compact()):
        assert [(r.key, r.value, r.timestamp_ms, list(r.headers)) for r in read] == expected
        for schema in (None, VIEWS):
            batch = read.to_arrow(schema)
            batch.validate(full=True)
            assert batch["key"].to_pylist() == [key for key, *_ in expected]
            assert batch["value"].to_pylist() == [value for _, value, *_ in expected]


def test_encode_takes_records_and_keeps_their_offsets() -> None:
    columns = columns_of("none", "lz4")
    again = decode(encode(columns, codec="gzip"), topic="flights", partition=3)
    assert values(again) == values(columns)
    renumbered = decode(encode(columns[:5], base_offset=7))
    assert list(renumbered.offsets) == [7, 8, 9, 10, 11]


def test_what_encode_refuses() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode([])
    with pytest.raises(ValueError, match="offsets must grow"):
        encode([*columns_of("none")[5:6], *columns_of("none")[:1]])
    with pytest.raises(ValueError, match="unknown codec 'brotli'"):
        encode([(b"k", b"v")], codec="brotli")
    with pytest.raises(TypeError):
        encode([("text", b"v")])
    with pytest.raises(ValueError, match="header without a name"):
        encode([(b"k", b"v", 0, [(None, b"x")])])


def test_a_header_without_a_name_costs_no_other_record_its_batch() -> None:
    nameless: list[Any] = [("named", b"1"), (None, b"2")]
    builder = BatchBuilder()
    builder.append(b"k", b"before", 0)
    with pytest.raises(ValueError, match="header without a name"):
        builder.append(b"k", b"refused", 0, nameless)
    builder.append(b"k", b"behind", 0)
    assert [record.value for record in decode(seal(builder.finish()))] == [b"before", b"behind"]


def test_partitions_are_decoded_side_by_side() -> None:
    """Threads share the pool of blocks; each must still see its own records."""
    wrong: list[object] = []

    def work(seed: int) -> None:
        new = [(b"%d" % seed, b"%d-%d" % (seed, i)) for i in range(500)]
        for codec in ("none", "lz4", "zstd", "gzip", "snappy") * 20:
            if list(decode(encode(new, codec=codec)).values) != [value for _, value in new]:
                wrong.append((seed, codec))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("convert", "library"),
    [
        ("to_arrow", "pyarrow"),
        ("to_polars", "polars"),
        ("to_polars", "pyarrow"),
        ("to_pandas", "pandas"),
        ("to_pandas", "pyarrow"),
    ],
)
def test_a_missing_library_is_one_error_that_names_what_to_install(
    convert: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, "kohort.fastpath.arrow", raising=False)  # it may have imported the library
    with pytest.raises(KohortError, match=rf"needs {library}, which is not installed; pip install .*'kohort\[arrow\]'"):
        getattr(columns_of("none"), convert)()
