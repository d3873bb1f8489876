"""False fields in a batch: each is a CorruptRecord with its place, by both implementations, and the position stays."""

import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from kohort.fastpath import CorruptRecord, DecompressionLimit, UnsupportedCodec, UnsupportedMagic
from kohort.fastpath import decode as decode_columns
from kohort.fastpath.compression import CODECS, codec_of
from kohort.protocol import record_batch as wire
from kohort.protocol.record_format import VARINT
from tests.fastpath.legacy_messages import build_message, encode_messages

ONE = wire.build_record(wire.NewRecord(b"k", b"v", headers=(("h", b"x"),)), 0, 0)
GOOD = wire.build_batch(ONE, count=1, base_offset=5)


def varint(value: int) -> bytes:
    return bytes(VARINT.build(value))


def batch(payload: bytes, **fields: Any) -> bytes:
    return wire.build_batch(payload, **{"count": 1, "base_offset": 5} | fields)


def record(body: bytes, *, length: int | None = None) -> bytes:
    return varint(len(body) if length is None else length) + body


def zstd_claiming(size: int, content: bytes) -> bytes:
    """A frame of one raw block whose header says that it holds `size` bytes (RFC 8878, 3.1.1)."""
    header = b"\x28\xb5\x2f\xfd" + b"\xc0\x00" + size.to_bytes(8, "little")
    return header + (len(content) << 3 | 1).to_bytes(3, "little") + content


# attributes, timestamp delta, offset delta; then key, value, headers
HEAD = b"\x00\x00\x00"
LIES = {
    "a varint of six bytes": batch(b"\x80\x80\x80\x80\x80\x01" + ONE[1:]),
    "a varint of more bits than its type": batch(record(HEAD + b"\xff\xff\xff\xff\x7f" + b"\x00\x00")),
    "a varlong of eleven bytes": batch(record(b"\x00" + b"\x80" * 10 + b"\x01" + b"\x00\x01\x01\x00")),
    "a varint cut by the end of the batch": batch(b"\x80"),
    "a varint cut by the end of its record": batch(record(b"\x00\x00\x00\x01\x01\x80")),
    "a record longer than the batch": batch(record(ONE[1:], length=len(ONE))),
    "a record of negative length": batch(record(ONE[1:], length=-1)),
    "a record of no bytes": batch(record(b"")),
    "a record longer than its fields": batch(record(ONE[1:] + b"\x00")),
    "a key longer than its record": batch(record(HEAD + varint(9) + b"k" + varint(-1) + b"\x00")),
    "a key of 2 GiB": batch(record(HEAD + varint(0x7FFFFFFF) + b"k" + varint(-1) + b"\x00")),
    "a value longer than its record": batch(record(HEAD + varint(-1) + varint(9) + b"v\x00")),
    "no value at all": batch(record(HEAD + varint(3) + b"key")),
    "a negative header count": batch(record(HEAD + b"\x01\x01" + varint(-1))),
    "2^31 headers": batch(record(HEAD + b"\x01\x01" + varint(0x7FFFFFFF))),
    "more headers than there are": batch(record(HEAD + b"\x01\x01" + varint(2) + varint(0) + varint(-1))),
    "a header key of negative length": batch(record(HEAD + b"\x01\x01" + varint(1) + varint(-1) + varint(-1))),
    "a header key past the end": batch(record(HEAD + b"\x01\x01" + varint(1) + varint(9) + varint(-1))),
    "a header value past the end": batch(record(HEAD + b"\x01\x01" + varint(1) + varint(0) + varint(9))),
    "fewer records than counted": batch(ONE, count=2),
    "more records than counted": batch(ONE + wire.build_record(wire.NewRecord(None, None), 0, 1), last_offset_delta=1),
    "2^31 records": batch(ONE, count=0x7FFFFFFF, last_offset_delta=0x7FFFFFFE),
    "a negative count": batch(ONE, count=-1),
    "records where none are counted": batch(ONE, count=0),
    "a negative last offset delta": batch(ONE, last_offset_delta=-1),
    "an offset delta past the last": batch(wire.build_record(wire.NewRecord(None, None), 0, 1)),
    "an offset delta below zero": batch(wire.build_record(wire.NewRecord(None, None), 0, -1), last_offset_delta=5),
    "offset deltas that repeat": batch(ONE + ONE, count=2, last_offset_delta=1),
    "offsets past the end of an int64": batch(ONE, base_offset=(1 << 63) - 1),
    "a checksum that does not match": GOOD[:-1] + b"?",
    "attributes changed under the checksum": GOOD[:22] + b"\x08" + GOOD[23:],
    "a batch shorter than its header": GOOD[:8] + (40).to_bytes(4, "big") + GOOD[12:52],
    "a batch shorter than any header": GOOD[:8] + (13).to_bytes(4, "big") + GOOD[12:],
    "a batch of negative length": GOOD[:8] + b"\xff\xff\xff\xff" + GOOD[12:],
    "a magic below zero": GOOD[:16] + b"\xff" + GOOD[17:],
    "gzip that is not": batch(b"not gzip", attributes=1),
    "snappy that is not": batch(b"\xff\xff\xff\xff\xff\xff", attributes=2),
    "xerial snappy that is cut": batch(b"\x82SNAPPY\x00" + b"\x00" * 8 + b"\x00\x00\x10\x00abc", attributes=2),
    "xerial snappy without its header's end": batch(b"\x82SNAPPY\x00", attributes=2),
    "lz4 that is not": batch(b"not lz4", attributes=3),
    "zstd that is not": batch(b"not zstd", attributes=4),
    "zstd that claims a pebibyte": batch(zstd_claiming(1 << 50, ONE), attributes=4),
    "no payload to decompress": batch(b"", attributes=3),
}
for _codec in (1, 2, 3, 4):
    _packed = CODECS[_codec].compress(ONE * 20, None)
    LIES[f"codec {_codec} cut short"] = batch(_packed[:-3], attributes=_codec, count=20, last_offset_delta=19)
    LIES[f"codec {_codec} in another's clothes"] = batch(_packed, attributes=_codec % 4 + 1)


@pytest.mark.proves("B-07", "B-08", "B-09", "B-10", "B-11", "B-14")
@pytest.mark.parametrize("lie", LIES)
def test_a_false_length_is_refused_with_its_place(decode: Callable[..., Any], lie: str) -> None:
    with pytest.raises(CorruptRecord) as raised:
        decode(LIES[lie], topic="t", partition=3)
    offset = int.from_bytes(LIES[lie][:8], "big")
    assert raised.value.place == {"topic": "t", "partition": 3, "offset": offset}


LEGACY = encode_messages([(b"k", b"v", 7)], magic=1, base_offset=5)
LEGACY_LIES = {
    "a checksum that does not match": LEGACY[:-1] + b"?",
    "a key longer than the message": build_message(1, 5, b"k" * 9, b"v", timestamp=1).replace(
        b"\x00\x00\x00\x09kkkkkkkkk", b"\x00\x00\x00\x99kkkkkkkkk"
    ),
    "a wrapper of null": build_message(1, 5, None, None, timestamp=1, attributes=1),
    "a wrapper of nothing": build_message(1, 5, None, CODECS[1].compress(b"", None), timestamp=1, attributes=1),
    "a wrapper that ends inside a message": build_message(
        1, 5, None, CODECS[1].compress(LEGACY[:-1], None), timestamp=1, attributes=1
    ),
    "a wrapper of another magic": build_message(0, 5, None, CODECS[1].compress(LEGACY, None), attributes=1),
    "a wrapper in a wrapper": build_message(
        1,
        5,
        None,
        CODECS[1].compress(encode_messages([(b"k", b"v", 7)], magic=1, codec="gzip"), None),
        timestamp=1,
        attributes=1,
    ),
    "a wrapper whose offset is not its last": build_message(
        0, 9, None, CODECS[1].compress(encode_messages([(b"k", b"v")], magic=0), None), attributes=1
    ),
    "a wrapper before the log's start": build_message(
        1, 1, None, CODECS[1].compress(LEGACY, None), timestamp=1, attributes=1
    ),
    "offsets that repeat": build_message(
        1, 5, None, CODECS[1].compress(LEGACY + LEGACY, None), timestamp=1, attributes=1
    ),
}


@pytest.mark.proves("B-09", "B-12", "B-14")
@pytest.mark.parametrize("lie", LEGACY_LIES)
def test_a_false_length_in_an_old_message_is_refused_with_its_place(decode: Callable[..., Any], lie: str) -> None:
    with pytest.raises(CorruptRecord) as raised:
        decode(LEGACY_LIES[lie], topic="t", partition=3)
    assert raised.value.place == {"topic": "t", "partition": 3, "offset": int.from_bytes(LEGACY_LIES[lie][:8], "big")}


def test_a_message_longer_than_its_fields(decode: Callable[..., Any]) -> None:
    body = LEGACY[16:] + b"!"
    import zlib

    message = LEGACY[:8] + (len(body) + 4).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    with pytest.raises(CorruptRecord, match="longer than its fields"):
        decode(message)


@pytest.mark.proves("B-12")
@pytest.mark.parametrize("magic", [3, 127])
def test_a_newer_magic_is_unsupported_and_never_guessed(decode: Callable[..., Any], magic: int) -> None:
    with pytest.raises(UnsupportedMagic) as raised:
        decode(GOOD[:16] + bytes([magic]) + GOOD[17:], topic="t", partition=3)
    assert raised.value.place == {"topic": "t", "partition": 3, "offset": 5}


@pytest.mark.proves("B-14")
@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(decode: Callable[..., Any], codec: int) -> None:
    with pytest.raises(UnsupportedCodec):
        decode(batch(ONE, attributes=codec))
    with pytest.raises(UnsupportedCodec):
        decode(build_message(1, 5, None, b"v", timestamp=1, attributes=codec))


@pytest.mark.proves("B-11")
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_batch_behind_the_one_before_is_refused(decode: Callable[..., Any], magic: int) -> None:
    records = [(b"k", b"v", 1)] * 3
    if magic == 2:
        first, second = wire.encode(records, base_offset=10), wire.encode(records, base_offset=12)
    else:
        first, second = (encode_messages(records, magic=magic, base_offset=offset, codec="gzip") for offset in (10, 12))
    with pytest.raises(CorruptRecord, match="below those"):
        decode(first + second)


@pytest.mark.proves("B-13")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_bomb_stops_at_the_limit(decode: Callable[..., Any], magic: int, codec: str) -> None:
    records = [(None, bytes(100_000), 1)] * 20
    write = wire.encode if magic == 2 else lambda *a, **o: encode_messages(*a, magic=magic, **o)
    if magic < 2 and codec == "zstd":
        codec = "gzip"
    data = write(records, codec=codec)
    assert len(decode(data, max_decompressed_bytes=2_100_000).records) == 20
    with pytest.raises(DecompressionLimit) as raised:
        decode(data, max_decompressed_bytes=1_000_000, topic="t")
    assert raised.value.place["topic"] == "t"


@pytest.mark.proves("B-13")
def test_a_frame_gets_no_memory_for_claiming_that_it_needs_it(decode: Callable[..., Any]) -> None:
    honest = batch(zstd_claiming(len(ONE), ONE), attributes=4)
    assert len(decode(honest).records) == 1
    data = batch(zstd_claiming(1 << 31, ONE), attributes=4)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord):
            decode(data, max_decompressed_bytes=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.proves("B-13")
@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_several_frames_one_after_another_are_read_as_one(decode: Callable[..., Any], codec: str) -> None:
    pack = CODECS[codec_of(codec)].compress
    payload = [wire.build_record(wire.NewRecord(None, bytes(50_000)), 0, delta) for delta in range(4)]
    data = batch(
        b"".join(pack(part, None) for part in payload), attributes=codec_of(codec), count=4, last_offset_delta=3
    )
    assert len(decode(data).records) == 4


@pytest.mark.proves("B-09")
def test_the_sound_batches_before_a_corrupt_one_are_kept_in_the_error() -> None:
    data = wire.encode([(b"k", b"v", 1)] * 3, base_offset=2) + GOOD[:-1] + b"?"
    with pytest.raises(CorruptRecord) as raised:
        decode_columns(data, topic="t", partition=3)
    before = raised.value.decoded
    assert before is not None
    assert [record.offset for record in before] == [2, 3, 4]
    assert before.next_offset == 5
    assert before.complete is False
    assert pickle.loads(pickle.dumps(raised.value)).place == raised.value.place


@pytest.mark.proves("B-09")
class TestSkipBatch:
    def test_a_corrupt_batch_in_the_middle_is_skipped_and_reported(self, decode: Callable[..., Any]) -> None:
        first, last = wire.encode([(b"k", b"1", 1)] * 5), wire.encode([(b"k", b"2", 1)], base_offset=6)
        read = decode(first + GOOD[:-1] + b"?" + last, on_corrupt="skip_batch", topic="t", partition=3)
        assert [record.offset for record in read.records] == [0, 1, 2, 3, 4, 6]
        assert read.next_offset == 7
        assert [error.place for error in read.corrupt] == [{"topic": "t", "partition": 3, "offset": 5}]
        assert pickle.loads(pickle.dumps(read.corrupt[0])).resumed_at == read.corrupt[0].resumed_at == 6

    def test_before_the_position_it_was_reported_already(self, decode: Callable[..., Any]) -> None:
        data = GOOD[:-1] + b"?" + wire.encode([(b"k", b"2", 1)] * 3, base_offset=6)
        for from_offset, reported in ((5, 1), (6, 0), (7, 0)):
            read = decode(data, from_offset=from_offset, on_corrupt="skip_batch")
            assert (read.next_offset, len(read.corrupt)) == (9, reported)

    @pytest.mark.proves("B-09")
    def test_two_before_the_position_do_not_move_it(self, decode: Callable[..., Any]) -> None:
        """The header of the first one is wrong, so the second one, which is corrupt, does not confirm its end."""
        first, second, sound = (bytearray(wire.encode([(b"k", b"v")] * 3, base_offset=at)) for at in (0, 3, 6))
        first[23:27] = (7).to_bytes(4, "big")
        second[-1] ^= 1
        for from_offset, corrupt in ((0, 2), (6, 0), (7, 0)):
            read = decode(first + second + sound, from_offset=from_offset, on_corrupt="skip_batch", aborted=[(7, 6)])
            assert [record.offset for record in read.records] == list(range(max(from_offset, 6), 9))
            assert (read.next_offset, len(read.corrupt)) == (9, corrupt)

    @pytest.mark.proves("B-09")
    @pytest.mark.parametrize("cut", [8, 87])
    def test_a_buffer_that_ends_before_the_position_is_an_error(self, decode: Callable[..., Any], cut: int) -> None:
        """Else an equal request would follow, again and again."""
        first, second = (bytearray(wire.encode([(b"k", b"v")] * 3, base_offset=at)) for at in (0, 3))
        first[23:27] = (7).to_bytes(4, "big")
        with pytest.raises(CorruptRecord) as raised:
            decode(first + second[:cut], from_offset=3, on_corrupt="skip_batch")
        assert raised.value.place["offset"] == 0
        assert decode(first + second, from_offset=3, on_corrupt="skip_batch").next_offset == 6

    @pytest.mark.proves("B-17")
    def test_decoding_ends_behind_what_may_be_the_marker_of_an_aborted_transaction(
        self, decode: Callable[..., Any]
    ) -> None:
        """Only another response tells which records behind it are aborted."""
        aborted, committed = (
            wire.encode([(b"k", b"v")] * 3, base_offset=at, producer_id=7, transactional=True) for at in (0, 4)
        )
        marker = wire.encode([(bytes(4), bytes(6))], base_offset=3, producer_id=7, transactional=True, control=True)
        data = aborted[:-1] + b"?" + marker[:-1] + b"?" + committed

        def read(records: bytes, from_offset: int, *transactions: tuple[int, int]) -> tuple[list[int], int, int]:
            read = decode(records, from_offset=from_offset, on_corrupt="skip_batch", aborted=transactions)
            return [record.offset for record in read.records], read.next_offset, len(read.corrupt)

        assert read(data, 0, (7, 0)) == ([], 3, 1)
        assert read(data, 3, (7, 0)) == ([], 4, 1)
        assert read(aborted + data[len(aborted) :], 0, (7, 0)) == ([], 4, 1)
        assert read(data, 4) == ([4, 5, 6], 7, 0)
        assert read(data, 4, (7, 0)) == ([], 7, 0)  # a false list, but reading goes on
        assert read(data, 0) == ([4, 5, 6], 7, 2)
        assert read(data, 0, (8, 4)) == ([4, 5, 6], 7, 2)

    @pytest.mark.parametrize(("high_watermark", "resumed_at"), [(15, 15), (16, 16 - 1), (14, 6), (5, 6), (-1, 6)])
    def test_alone_at_the_end_it_is_passed_whole_only_within_the_log(
        self, decode: Callable[..., Any], high_watermark: int, resumed_at: int
    ) -> None:
        bad = wire.encode([(b"k", b"v", 1)] * 10, base_offset=5)[:-1] + b"?"
        read = decode(bad, from_offset=5, on_corrupt="skip_batch", high_watermark=high_watermark)
        assert read.next_offset == resumed_at
        assert [error.resumed_at for error in read.corrupt] == [resumed_at]

    @pytest.mark.parametrize(("base_offset", "next_offset"), [(4, 14), (5, 15), (6, 6), (15, 6), (90, 6)])
    def test_alone_and_ahead_of_the_position_it_moves_it_by_one(
        self, decode: Callable[..., Any], base_offset: int, next_offset: int
    ) -> None:
        """Its base offset has no checksum, so it may be before the records that a jump would pass."""
        bad = wire.encode([(b"k", b"v", 1)] * 10, base_offset=base_offset)[:-1] + b"?"
        assert decode(bad, from_offset=5, on_corrupt="skip_batch", high_watermark=100).next_offset == next_offset

    def test_what_follows_confirms_its_end_even_if_cut(self, decode: Callable[..., Any]) -> None:
        bad = wire.encode([(b"k", b"v", 1)] * 10, base_offset=5)[:-1] + b"?"
        following = wire.encode([(b"k", b"v", 1)], base_offset=15)
        for cut in (8, 12, 40, len(following)):
            read = decode(bad + following[:cut], from_offset=5, on_corrupt="skip_batch")
            assert read.corrupt[0].resumed_at == 15
        assert decode(bad + following[:7], from_offset=5, on_corrupt="skip_batch").next_offset == 6

    def test_a_base_offset_far_away_moves_the_position_by_one(self, decode: Callable[..., Any]) -> None:
        bad = wire.encode([(b"k", b"v", 1)] * 10)
        bad = (1 << 62).to_bytes(8, "big") + bad[8:-1] + b"?"
        for high_watermark in (-1, 0, 20):
            read = decode(bad, on_corrupt="skip_batch", high_watermark=high_watermark)
            assert (read.next_offset, len(read.corrupt)) == (1, 1)

    def test_a_sound_batch_behind_it_decides_against_any_claim(self, decode: Callable[..., Any]) -> None:
        bad = (1 << 62).to_bytes(8, "big") + GOOD[8:-1] + b"?"
        following = wire.encode([(b"k", b"v", 1)], base_offset=7)
        read = decode(bad + following, from_offset=5, on_corrupt="skip_batch", high_watermark=8)
        assert [record.offset for record in read.records] == [7]
        assert (read.next_offset, read.corrupt[0].resumed_at) == (8, 7)

    def test_a_position_behind_the_corrupt_batch_stays(self, decode: Callable[..., Any]) -> None:
        """A log segment is read from its start, at any position."""
        batches = [wire.encode([(b"k", b"v", 1)] * 5, base_offset=at) for at in (0, 5, 10)]
        segment = batches[0][:-1] + b"?" + batches[1] + batches[2]
        read = decode(segment, from_offset=12, on_corrupt="skip_batch")
        assert [record.offset for record in read.records] == [12, 13, 14]

    def test_a_lying_last_offset_delta_cannot_make_a_reader_jump(self, decode: Callable[..., Any]) -> None:
        lying = GOOD[:23] + b"\x7f\xff\xff\xff" + GOOD[27:]
        assert decode(lying, from_offset=5, on_corrupt="skip_batch", high_watermark=1 << 40).next_offset == 6

    def test_the_least_count_there_is(self, decode: Callable[..., Any]) -> None:
        """Found under the sanitizer: one less than it overflows."""
        lying = batch(ONE, count=-(1 << 31), last_offset_delta=0x7FFFFFFF)
        skipped = decode(lying[:-1] + b"?", from_offset=5, on_corrupt="skip_batch", high_watermark=1 << 40)
        assert skipped.next_offset == 6

    def test_a_position_at_the_end_of_all_offsets_does_not_overflow(self, decode: Callable[..., Any]) -> None:
        last = (1 << 63) - 1
        assert decode(GOOD[:-1] + b"?", from_offset=last, on_corrupt="skip_batch").next_offset == last

    def test_what_has_no_true_length_cannot_be_skipped(self, decode: Callable[..., Any]) -> None:
        with pytest.raises(CorruptRecord):
            decode(LIES["a batch shorter than any header"], on_corrupt="skip_batch")

    def test_another_policy_is_refused(self) -> None:
        with pytest.raises(ValueError, match="skip_batch"):
            decode_columns(GOOD, on_corrupt="ignore")  # type: ignore[arg-type]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_sound_batch_far_behind_the_high_watermark_is_corrupt(decode: Callable[..., Any], magic: int) -> None:
    """The base offset is outside of the checksum. A log may grow between two reads, but not by so much."""
    records = [(b"k", b"v", 1)] * 3
    for base_offset, sound in ((100 + (1 << 31) - 4, True), (100 + (1 << 31), False)):
        if magic == 2:
            data = wire.encode(records, base_offset=base_offset)
        else:
            data = encode_messages(records, base_offset=base_offset, magic=magic)
        if sound:
            assert len(decode(data, high_watermark=100).records) == 3
        else:
            with pytest.raises(CorruptRecord, match="high watermark"):
                decode(data, high_watermark=100)
        assert len(decode(data).records) == 3  # nothing is known to compare with


@pytest.mark.parametrize("limit", [0, -1, 1 << 31])
def test_a_limit_that_offsets_of_32_bits_cannot_reach_is_refused(decode: Callable[..., Any], limit: int) -> None:
    with pytest.raises(ValueError, match="max_decompressed_bytes must be between 1 and 2147483647"):
        decode(GOOD, max_decompressed_bytes=limit)
    assert len(decode(GOOD, max_decompressed_bytes=(1 << 31) - 1).records) == 1
