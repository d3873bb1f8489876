"""Batches out of columns are, byte for byte, those made of the same rows one by one; both twins are tested."""

from collections.abc import Callable
from typing import Any

import numpy
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.fastpath import Codec, encode
from kohort.fastpath._encode import BatchBuilder, seal
from kohort.fastpath._rows import BytesRows, lay_out, spread
from kohort.protocol import record_batch as twin
from tests.fastpath import changing_rows

nullable = st.one_of(st.none(), st.binary(max_size=200))
stamps = st.integers(-1, 1 << 60)
rows = st.lists(st.tuples(nullable, nullable, stamps), min_size=1, max_size=40)
NO_LIMIT = 1 << 30


def column(values: list[bytes | None], kind: pa.DataType, before: int = 0) -> BytesRows:
    """The values as a slice of a longer array, so that offsets and bitmap do not begin at 0."""
    array = pa.array([b"not seen"] * before + values, kind).slice(before)
    validity, offsets, data = array.buffers()
    wide = kind == pa.large_binary()
    return BytesRows(offsets, data, validity, wide=wide, first=array.offset, count=len(array))


def stamps_of(new: list[tuple[bytes | None, bytes | None, int]]) -> memoryview:
    return memoryview(b"".join(stamp.to_bytes(8, "little", signed=True) for *_, stamp in new)).cast("q")


@settings(max_examples=200)
@given(new=rows, before=st.integers(0, 9), wide=st.booleans(), codec=st.sampled_from(list(Codec)))
def test_columns_become_what_their_rows_become(
    new: list[tuple[bytes | None, bytes | None, int]], before: int, wide: bool, codec: Codec
) -> None:
    kind = pa.large_binary() if wide else pa.binary()
    keys, values = column([key for key, *_ in new], kind, before), column([value for _, value, _ in new], kind, before)
    body, following = lay_out(keys, values, stamps_of(new), 0, None, 0, len(new), NO_LIMIT, codec)
    assert following == len(new)
    sealed = seal(body, producer_id=3, producer_epoch=1, base_sequence=9, transactional=True)
    fields: dict[str, Any] = {"producer_id": 3, "producer_epoch": 1, "base_sequence": 9, "transactional": True}
    assert sealed == encode(new, codec=codec, **fields)
    if not codec:
        assert sealed == twin.encode(new, codec=codec, **fields)


@settings(max_examples=100)
@given(new=rows, limit=st.integers(1, 600))
def test_a_limit_cuts_between_rows_and_one_row_always_comes(
    new: list[tuple[bytes | None, bytes | None, int]], limit: int
) -> None:
    keys, values = column([key for key, *_ in new], pa.binary()), column([value for _, value, _ in new], pa.binary())
    order = list(reversed(range(len(new))))
    places = memoryview(b"".join(place.to_bytes(8, "little") for place in order)).cast("q")
    at, made = 0, []
    while at < len(new):
        body, following = lay_out(keys, values, stamps_of(new), 0, places, at, len(new), limit)
        made.append(seal(body))
        assert made[-1] == encode([new[order[place]] for place in range(at, following)])
        assert len(body) <= limit or following == at + 1
        if following < len(new):
            longer = encode([new[order[place]] for place in range(at, following + 1)])
            assert len(longer) - 61 > limit
        at = following


def test_a_missing_column_is_nulls_and_a_missing_timestamp_is_the_one_for_all() -> None:
    values = column([b"a", b"b"], pa.binary())
    body, _ = lay_out(None, values, None, 77, None, 0, 2, NO_LIMIT)
    assert seal(body) == encode([(None, b"a", 77), (None, b"b", 77)])
    body, _ = lay_out(values, None, None, 77, None, 1, 2, NO_LIMIT)
    assert seal(body) == encode([(b"b", None, 77)])


@pytest.mark.parametrize(
    ("places", "stop", "wrong"),
    [([0, 2], 2, "row 2, of 2"), ([0, -1], 2, "row -1, of 2"), ([0], 2, "fewer places"), (None, 3, "fewer rows")],
)
def test_places_that_are_no_rows_are_refused(places: list[int] | None, stop: int, wrong: str) -> None:
    values = column([b"a", b"b"], pa.binary())
    order = None if places is None else b"".join(place.to_bytes(8, "little", signed=True) for place in places)
    with pytest.raises(ValueError, match=wrong):
        lay_out(None, values, None, 0, order, 0, stop, NO_LIMIT)


def test_a_builder_takes_records_until_one_cannot_be_taken_and_keeps_the_others() -> None:
    builder = BatchBuilder()
    sizes = [builder.append(b"k", b"v" * n, n, {"h": b"x"}) for n in range(3)]
    assert sizes == sorted(set(sizes))
    refused: list[Callable[[], int]] = [
        lambda: builder.append("text", b"", 0),  # type: ignore[arg-type]
        lambda: builder.append(b"k", b"", 0, [("name", 5)]),  # type: ignore[list-item]
    ]
    for append in refused:
        with pytest.raises(TypeError):
            append()
    assert (builder.count, builder.size) == (3, sizes[-1])
    assert seal(builder.finish()) == encode([(b"k", b"v" * n, n, [("h", b"x")]) for n in range(3)])
    with pytest.raises(ValueError, match="at least one"):
        BatchBuilder().finish()


class TestBuffersOfOthers:
    """Buffers that their owner writes to meanwhile: the call ends in an error or in rows."""

    @pytest.mark.parametrize("case", changing_rows.cases())
    def test_another_thread_writes_to_them(self, case: str) -> None:
        outcomes = changing_rows.hammer(*changing_rows.cases()[case], seconds=0.3)
        assert outcomes
        assert set(outcomes) <= {"done", "RuntimeError", "ValueError"}

    @pytest.mark.parametrize("last", [1 << 24, -5, 0])
    def test_offsets_that_went_bad_since_they_were_checked(self, last: int) -> None:
        offsets: Any = numpy.arange(11, dtype="int64")
        rows = BytesRows(offsets, bytes(10), count=10, wide=True)
        offsets[-1] = last
        with pytest.raises(RuntimeError, match="changed while they were read"):
            lay_out(None, rows, None, 0, None, 0, 10, NO_LIMIT)
        with pytest.raises(RuntimeError, match="changed while they were read"):
            spread(rows, 3, "murmur2", 0, 0, 10)
