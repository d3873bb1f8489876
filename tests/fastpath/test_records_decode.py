"""Decoding sound batches of every magic and codec: each record, where to go on, and what is not returned."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.fastpath import compression
from kohort.protocol import record_batch as wire
from kohort.protocol.record_format import CONTROL_KEY
from tests.fastpath.legacy_messages import build_message, encode_messages

GZIP = compression.CODECS[compression.Codec.GZIP]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = [
    (None if i % 3 == 0 else b"key %d" % i, None if i % 5 == 0 else b"value %d " % i * (i % 7), 1_700_000_000_000 + i)
    for i in range(50)
]
HEADERS = (("trace", b"\x00\x01"), ("trace", None), ("", b""), ("naïve", b"x"))


@pytest.mark.proves("B-12")
@pytest.mark.parametrize(
    ("magic", "codec"),
    [(magic, codec) for magic in (0, 1, 2) for codec in CODECS if codec != "zstd" or magic == 2],  # KIP-110
)
def test_every_magic_and_codec_gives_the_same_records(decode: Callable[..., Any], magic: int, codec: str) -> None:
    write = wire.encode if magic == 2 else lambda records, **options: encode_messages(records, magic=magic, **options)
    read = decode(write(RECORDS, codec=codec, base_offset=7), topic="t", partition=3)
    assert [record.offset for record in read.records] == list(range(7, 57))
    assert [(record.key, record.value) for record in read.records] == [(key, value) for key, value, _ in RECORDS]
    expected = [-1 if magic == 0 else timestamp for _, _, timestamp in RECORDS]
    assert [record.timestamp_ms for record in read.records] == expected
    assert {record.timestamp_type for record in read.records} == {"none" if magic == 0 else "create"}
    assert {(record.topic, record.partition) for record in read.records} == {("t", 3)}
    assert read.next_offset == 57


@pytest.mark.parametrize("codec", CODECS)
def test_headers_keep_their_order_their_repeats_and_their_nulls(decode: Callable[..., Any], codec: str) -> None:
    read = decode(wire.encode([(b"k", b"v", 1, HEADERS), (b"k", b"v", 1)], codec=codec))
    assert [record.headers for record in read.records] == [HEADERS, ()]


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_log_append_time_is_every_records_time(decode: Callable[..., Any], magic: int, codec: str) -> None:
    options: dict[str, Any] = {"codec": codec, "log_append_time_ms": 99}
    data = wire.encode(RECORDS, **options) if magic == 2 else encode_messages(RECORDS, magic=1, **options)
    read = decode(data)
    assert {record.timestamp_ms for record in read.records} == {99}
    assert {record.timestamp_type for record in read.records} == {"append"}


def test_a_wrapper_of_offset_zero_leaves_its_inner_offsets_alone(decode: Callable[..., Any]) -> None:
    """Some versions of librdkafka produced them so."""
    inner = b"".join(build_message(1, i, None, b"v", timestamp=5) for i in range(4))
    wrapper = build_message(1, 0, None, GZIP.compress(inner, None), timestamp=5, attributes=1)
    assert [record.offset for record in decode(wrapper).records] == [0, 1, 2, 3]


def test_a_compacted_wrapper_counts_its_offsets_back_from_the_last(decode: Callable[..., Any]) -> None:
    inner = b"".join(build_message(1, i, None, b"v", timestamp=5) for i in (1, 4))
    wrapper = build_message(1, 104, None, GZIP.compress(inner, None), timestamp=5, attributes=1)
    read = decode(wrapper)
    assert [record.offset for record in read.records] == [101, 104]
    assert read.next_offset == 105


@pytest.mark.proves("B-08")
@pytest.mark.parametrize("cut", [1, 11, 12, 16, 17, 60, 61, 90])
def test_a_part_of_a_batch_at_the_end_is_left_for_the_next_fetch(decode: Callable[..., Any], cut: int) -> None:
    whole, rest = wire.encode(RECORDS), wire.encode(RECORDS, base_offset=50)
    read = decode(whole + rest[:cut])
    assert len(read.records) == 50
    assert read.next_offset == 50


@pytest.mark.proves("B-08", "B-16")
def test_nothing_to_read_moves_nothing(decode: Callable[..., Any]) -> None:
    assert decode(b"", from_offset=12) == ((), 12, ())
    assert decode(wire.encode(RECORDS)[:-1], from_offset=12) == ((), 12, ())


@pytest.mark.proves("B-11")
@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_records_before_the_position_are_not_returned(decode: Callable[..., Any], magic: int, codec: str) -> None:
    options: dict[str, Any] = {"codec": codec, "base_offset": 100}
    data = wire.encode(RECORDS, **options) if magic == 2 else encode_messages(RECORDS, magic=magic, **options)
    read = decode(data, from_offset=120)
    assert [record.offset for record in read.records] == list(range(120, 150))
    assert [record.key for record in read.records] == [key for key, _, _ in RECORDS[20:]]
    assert decode(data, from_offset=150) == ((), 150, ())


@pytest.mark.proves("B-16")
@pytest.mark.parametrize("codec", [0, 1, 4])
def test_empty_and_compacted_batches_move_the_position(codec: int, decode: Callable[..., Any]) -> None:
    empty = wire.build_batch(b"", base_offset=10, last_offset_delta=9, count=0, attributes=codec)
    gap = wire.build_batch(
        wire.build_record(wire.NewRecord(b"k", b"v"), 0, 3), base_offset=20, last_offset_delta=9, count=1
    )
    read = decode(empty + gap, from_offset=10)
    assert [record.offset for record in read.records] == [23]
    assert read.next_offset == 30


def marker(producer_id: int, offset: int, *, commit: bool) -> bytes:
    """The control batch that ends a transaction."""
    key = CONTROL_KEY.build({"version": 0, "type": 1 if commit else 0})
    value = b"\x00\x00" + b"\x00" * 4
    return wire.encode([(key, value, 0)], base_offset=offset, producer_id=producer_id, transactional=True, control=True)


def transactional(producer_id: int, offset: int, count: int = 2) -> bytes:
    records = [(None, b"%d" % (offset + i), 0) for i in range(count)]
    return wire.encode(records, base_offset=offset, producer_id=producer_id, transactional=True)


@pytest.mark.proves("B-16")
def test_control_batches_are_never_returned_and_move_the_position(decode: Callable[..., Any]) -> None:
    read = decode(transactional(7, 0) + marker(7, 2, commit=True))
    assert [record.value for record in read.records] == [b"0", b"1"]
    assert read.next_offset == 3


@pytest.mark.proves("B-16", "B-17")
def test_aborted_transactions_are_left_out_up_to_their_marker(decode: Callable[..., Any]) -> None:
    data = (
        transactional(7, 0)  # aborted
        + transactional(8, 2)  # committed
        + wire.encode([(None, b"4", 0)], base_offset=4, producer_id=7)  # not transactional
        + marker(7, 5, commit=False)
        + transactional(7, 6)  # the same producer's next transaction, committed
        + marker(8, 8, commit=True)
        + marker(7, 9, commit=True)
    )
    read = decode(data, aborted=[(7, 0)])
    assert [record.value for record in read.records] == [b"2", b"3", b"4", b"6", b"7"]
    assert read.next_offset == 10


@pytest.mark.proves("B-16", "B-17")
def test_an_aborted_transaction_without_a_marker_hides_its_producer_to_the_end(decode: Callable[..., Any]) -> None:
    read = decode(transactional(7, 0) + transactional(8, 2) + transactional(7, 4), aborted=[(7, 0)])
    assert [record.value for record in read.records] == [b"2", b"3"]
    assert read.next_offset == 6


@pytest.mark.proves("B-17")
def test_a_marker_before_the_position_still_ends_its_transaction(decode: Callable[..., Any]) -> None:
    data = transactional(7, 0) + marker(7, 2, commit=False) + transactional(7, 3) + marker(7, 5, commit=True)
    read = decode(data, aborted=[(7, 0)], from_offset=3)
    assert [record.value for record in read.records] == [b"3", b"4"]


@pytest.mark.proves("B-17")
def test_two_aborted_transactions_of_one_producer_in_any_order(decode: Callable[..., Any]) -> None:
    data = (
        transactional(7, 0)
        + marker(7, 2, commit=False)
        + transactional(7, 3)
        + marker(7, 5, commit=False)
        + transactional(7, 6)
        + marker(7, 8, commit=True)
    )
    read = decode(data, aborted=[(7, 3), (7, 0)])
    assert [record.value for record in read.records] == [b"6", b"7"]


def test_read_uncommitted_returns_what_was_aborted(decode: Callable[..., Any]) -> None:
    assert len(decode(transactional(7, 0) + marker(7, 2, commit=False)).records) == 2


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_contiguous_buffer_will_do(decode: Callable[..., Any], kind: Callable[[bytes], Any]) -> None:
    assert len(decode(kind(wire.encode(RECORDS))).records) == 50


def test_timestamps_wrap_as_javas_longs_do(decode: Callable[..., Any]) -> None:
    record = wire.build_record(wire.NewRecord(None, b"v"), 10, 0)
    batch = wire.build_batch(record, count=1, base_timestamp=(1 << 63) - 1)
    assert decode(batch).records[0].timestamp_ms == -(1 << 63) + 9
