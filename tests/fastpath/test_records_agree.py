"""The two implementations agree on every batch that Hypothesis can think of, sound or mutated."""

from collections.abc import Callable
from typing import Any

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort import fastpath
from kohort.protocol import record_batch as wire
from tests.fastpath.fuzz_records import fuzz
from tests.fastpath.legacy_messages import encode_messages

payloads = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3)
records = st.lists(st.tuples(payloads, payloads, st.integers(-1, 1 << 41), headers), min_size=1, max_size=12)
codecs = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A few sound batches of any magic, one behind another."""
    data, offset = b"", draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(1, 3))):
        new, codec, magic = draw(records), draw(codecs), draw(st.sampled_from([2, 2, 2, 1, 0]))
        append = draw(st.none() | st.integers(0, 1 << 41))
        if magic == 2:
            transaction: dict[str, Any] = {
                "producer_id": draw(st.integers(-1, 3)),
                "transactional": draw(st.booleans()),
            }
            data += wire.encode(
                new,
                codec=codec,
                base_offset=offset,
                log_append_time_ms=append,
                control=draw(st.booleans()),
                **transaction,
            )
        else:
            codec = "gzip" if codec == "zstd" else codec
            data += encode_messages(new, magic=magic, codec=codec, base_offset=offset, log_append_time_ms=append)
        offset += len(new) + draw(st.integers(0, 3))
    return data


mutations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0), st.integers(0, 255)),
        st.tuples(st.just("flip"), st.integers(0), st.integers(0, 7)),
        st.tuples(st.just("cut"), st.integers(0), st.integers(1, 9)),
        st.tuples(st.just("insert"), st.integers(0), st.binary(min_size=1, max_size=9)),
    ),
    max_size=4,
)


def mutated(data: bytes, changes: list[tuple[str, int, Any]], *, sealed: bool) -> bytes:
    """`data` changed in a few places; `sealed` makes the first batch's length and checksum true again."""
    out = bytearray(data)
    for kind, place, what in changes:
        at = place % len(out) if out else 0
        if kind == "set" and out:
            out[at] = what
        elif kind == "flip" and out:
            out[at] ^= 1 << what
        elif kind == "cut":
            del out[at : at + what]
        elif kind == "insert":
            out[at:at] = what
    if sealed and len(out) >= 61 and out[16] == 2:
        out[8:12] = (len(out) - 12).to_bytes(4, "big")
        out[17:21] = crc32c.crc32c(out[21:]).to_bytes(4, "big")
    return bytes(out)


@pytest.mark.proves("B-07", "B-08", "B-09", "B-10", "B-11", "B-14", "B-17")
@settings(max_examples=600)
@given(
    data=batches(),
    changes=mutations,
    sealed=st.booleans(),
    ahead=st.integers(0, 20),
    aborted=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=3),
    on_corrupt=st.sampled_from(["raise", "skip_batch"]),
)
def test_both_read_the_same_or_refuse_the_same(
    both: Callable[..., Any],
    data: bytes,
    changes: list[tuple[str, int, Any]],
    sealed: bool,
    ahead: int,
    aborted: list[tuple[int, int]],
    on_corrupt: str,
) -> None:
    start = int.from_bytes(data[:8], "big")
    both(
        mutated(data, changes, sealed=sealed),
        topic="t",
        partition=1,
        from_offset=start + ahead if ahead else 0,
        aborted=[(producer, start + first) for producer, first in aborted],
        on_corrupt=on_corrupt,
        max_decompressed_bytes=1 << 20,
    )


@settings(max_examples=300)
@given(new=records, codec=codecs, options=st.fixed_dictionaries({"base_offset": st.integers(0, 1 << 40)}))
def test_both_write_the_same_bytes(new: list[tuple[Any, ...]], codec: str, options: dict[str, Any]) -> None:
    assert fastpath.encode(new, codec=codec, **options) == wire.encode(new, codec=codec, **options)


@settings(max_examples=200)
@given(new=records, codec=codecs)
def test_what_was_written_is_read_back(both: Callable[..., Any], new: list[tuple[Any, ...]], codec: str) -> None:
    read, next_offset, _ = both(fastpath.encode(new, codec=codec, base_offset=9))
    found = [(record.key, record.value, record.timestamp_ms, list(record.headers)) for record in read]
    assert found == new
    assert next_offset == 9 + len(new)


@pytest.mark.proves("B-07", "B-10", "B-13", "B-14")
def test_a_cut_of_the_fuzzing_that_runs_under_sanitizers() -> None:
    accepted = fuzz(6_000, seed=7)
    assert accepted is not None
    assert 0 < accepted < 6_000
