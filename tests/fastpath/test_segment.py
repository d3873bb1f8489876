"""Log segments from disk: found through their indexes, and in spite of them."""

import struct
from pathlib import Path
from typing import Any

import pytest

from kohort import KohortError
from kohort.fastpath import Codec, CorruptRecord, UnsupportedMagic, encode, open_segment
from kohort.fastpath.batches import batches, is_sound
from kohort.protocol import record_batch as wire
from tests.fastpath.legacy_messages import encode_messages

BASE = 1_000
PER_BATCH = 10


def batch(number: int, *, codec: str = "none", **fields: Any) -> bytes:
    first = BASE + number * PER_BATCH
    new = [(b"k%d" % offset, b"v" * 50, 10_000 + offset) for offset in range(first, first + PER_BATCH)]
    return encode(new, codec=codec, base_offset=first, **fields)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "flights-eu-3"
    folder.mkdir()
    path = folder / f"{BASE:020}.log"
    path.write_bytes(b"".join(batch(number, codec=("none", "lz4", "zstd")[number % 3]) for number in range(40)))
    return path


def write_index(path: Path, entries: list[tuple[int, int]]) -> None:
    path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries) + bytes(8 * 100))


def sane_index(path: Path) -> list[tuple[int, int]]:
    found = list(batches(path.read_bytes()))
    return [(each.last_offset - BASE, each.position) for each in found[4::5]]


def test_names_say_where_it_belongs(path: Path) -> None:
    with open_segment(path) as segment:
        assert (segment.topic, segment.partition, segment.base_offset) == ("flights-eu", 3, BASE)
        assert segment.size_bytes == path.stat().st_size


@pytest.mark.parametrize("max_bytes", [1, 4_000, 1 << 20])
@pytest.mark.parametrize("from_offset", [0, BASE, BASE + 5, BASE + 205, BASE + 399, BASE + 400])
def test_records_from_any_offset_in_slices_of_any_size(path: Path, from_offset: int, max_bytes: int) -> None:
    with open_segment(path) as segment:
        slices = list(segment.read(from_offset=from_offset, max_bytes=max_bytes))
        records = [record for columns in slices for record in columns]
        assert [record.offset for record in records] == list(range(max(from_offset, BASE), BASE + 400))
        assert all(record.key == b"k%d" % record.offset for record in records)
        assert {(record.topic, record.partition) for record in records} <= {("flights-eu", 3)}
        if records:
            assert slices[-1].next_offset == BASE + 400


@pytest.mark.parametrize("offset", [0, BASE, BASE + 49, BASE + 50, BASE + 333, BASE + 399, BASE + 400])
def test_the_index_leads_where_the_walk_does(path: Path, offset: int) -> None:
    with open_segment(path) as segment:
        walked = segment.position_of(offset)
    write_index(path, sane_index(path))
    with open_segment(path) as segment:
        assert segment.position_of(offset) == walked


def test_the_index_spares_the_walk(path: Path) -> None:
    """The bytes before the indexed position are not looked at: here they are no batch at all."""
    write_index(path, sane_index(path))
    data = bytearray(path.read_bytes())
    data[0:200] = b"\xff" * 200
    path.write_bytes(bytes(data))
    with open_segment(path) as segment:
        assert next(iter(segment.read(from_offset=BASE + 300)))[0].offset == BASE + 300
        with pytest.raises(CorruptRecord):
            segment.position_of(BASE)


@pytest.mark.parametrize(
    "lie",
    [
        [(10, 7)],
        [(10, 1 << 30)],
        [(10, -5)],
        [(0, 3_000)],
        [(5, 500), (9, 100)],
    ],
    ids=["inside a batch", "past the end", "negative", "past its offset", "backwards"],
)
def test_a_false_index_is_worse_than_none_and_treated_so(path: Path, lie: list[tuple[int, int]]) -> None:
    write_index(path, lie)
    with open_segment(path) as segment:
        for offset in (BASE, BASE + 15, BASE + 399):
            found = next(iter(segment.batches(from_offset=offset)))
            assert found.base_offset <= offset <= found.last_offset


@pytest.mark.parametrize("indexed", [False, True])
def test_the_first_offset_as_late_as_a_time(path: Path, indexed: bool) -> None:
    if indexed:
        entries = [(10_000 + BASE + at, at) for at in (49, 149, 249)]
        path.with_suffix(".timeindex").write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))
    with open_segment(path) as segment:
        for timestamp_ms, offset in ((0, BASE), (11_000, BASE), (11_001, BASE + 1), (11_205, BASE + 205)):
            assert segment.offset_for_time(timestamp_ms) == offset
        assert segment.offset_for_time(11_400) is None


@pytest.mark.parametrize("lie", [(11_001, 205), (11_001, 1 << 20), (11_001, -5)], ids=["ahead", "past", "negative"])
def test_a_false_time_index_is_treated_as_none(path: Path, lie: tuple[int, int]) -> None:
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", *lie))
    with open_segment(path) as segment:
        assert segment.offset_for_time(11_100) == BASE + 100


def test_the_time_index_spares_the_walk(path: Path) -> None:
    write_index(path, sane_index(path))
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", 11_199, 199))
    path.write_bytes(b"\xff" * 200 + path.read_bytes()[200:])
    with open_segment(path) as segment:
        assert segment.offset_for_time(11_305) == BASE + 305
        with pytest.raises(CorruptRecord):
            segment.offset_for_time(11_100)


def test_headers_without_records(path: Path) -> None:
    with open_segment(path) as segment:
        found = list(segment.batches())
        assert len(found) == 40
        assert {each.codec for each in found} == {Codec.NONE, Codec.LZ4, Codec.ZSTD}
        assert [each.base_offset for each in found] == list(range(BASE, BASE + 400, PER_BATCH))
        assert {each.record_count for each in found} == {PER_BATCH}
        assert all(segment.is_sound(each) for each in found)
        assert found[-1].position + found[-1].size_bytes == segment.size_bytes
        assert found[-1].next_offset == BASE + 400


def test_headers_of_every_magic() -> None:
    data = (
        encode_messages([(b"k", b"v", 7)] * 2, magic=0, base_offset=1)
        + encode_messages([(b"k", b"v", 7)] * 3, magic=1, codec="gzip", base_offset=3)
        + wire.encode([(b"k", b"v", 7)], base_offset=6, producer_id=4, transactional=True, log_append_time_ms=9)
    )
    found = list(batches(data))
    assert [(each.magic, each.last_offset, each.record_count) for each in found] == [
        (0, 1, 1),
        (0, 2, 1),
        (1, 5, None),
        (2, 6, 1),
    ]
    assert [each.timestamp_type for each in found] == ["none", "none", "create", "append"]
    assert (found[3].producer_id, found[3].transactional, found[3].max_timestamp_ms) == (4, True, 9)
    assert all(is_sound(data, each) for each in found)
    broken = data[:-1] + b"?"
    assert [is_sound(broken, each) for each in found] == [True, True, True, False]


def test_a_file_made_to_its_full_size_ends_where_its_zeros_begin(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(10_000))
    with open_segment(path) as segment:
        assert sum(len(columns) for columns in segment.read()) == 400


def test_a_part_of_a_batch_at_the_end_is_what_the_broker_was_writing(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])
    with open_segment(path) as segment:
        assert sum(len(columns) for columns in segment.read()) == 390


@pytest.mark.proves("B-09")
def test_a_corrupt_batch_is_raised_or_skipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))
    with open_segment(path) as segment:
        with pytest.raises(CorruptRecord) as raised:
            list(segment.read())
        assert raised.value.place == {"topic": "flights-eu", "partition": 3, "offset": BASE}
        slices = list(segment.read(on_corrupt="skip_batch"))
        assert [columns.offsets[0] for columns in slices] == [BASE + 10]
        assert [error.place["offset"] for columns in slices for error in columns.corrupt] == [BASE]


def test_where_the_next_batch_cannot_be_found(path: Path) -> None:
    path.write_bytes(batch(0) + b"\x00" * 8 + b"\x00\x00\x00\x05" + b"\xff" * 100)
    with open_segment(path) as segment, pytest.raises(CorruptRecord, match="shorter than any header"):
        list(segment.batches())
    path.write_bytes(batch(0) + batch(1)[:16] + b"\x09" + batch(1)[17:])
    with open_segment(path) as segment, pytest.raises(UnsupportedMagic, match="magic 9"):
        list(segment.batches())


def test_aborted_transactions_are_left_out_whatever_segment_tells_of_them(path: Path) -> None:
    transaction: dict[str, Any] = {"producer_id": 7, "transactional": True}
    abort = encode(
        [(b"\x00\x00\x00\x00", b"\x00" * 6)], base_offset=BASE + 20, control=True, producer_id=7, transactional=True
    )
    later = encode([(b"k", b"kept")], base_offset=BASE + 21, producer_id=7, transactional=True)
    path.write_bytes(batch(0, **transaction) + batch(1) + abort + later)
    (path.parent / f"{BASE + 5_000:020}.log").write_bytes(b"")
    line = struct.pack(">hqqqq", 0, 7, BASE, BASE + 20, BASE + 21)
    for reported_in in (BASE, BASE + 5_000):
        index = path.parent / f"{reported_in:020}.txnindex"
        index.write_bytes(line)
        with open_segment(path) as segment:
            assert segment.aborted() == ((7, BASE, BASE + 20),)
            for max_bytes in (1, 1 << 20):
                read = segment.read(isolation="read_committed", max_bytes=max_bytes)
                offsets = [offset for columns in read for offset in columns.offsets]
                assert offsets == [*range(BASE + 10, BASE + 20), BASE + 21]
            assert sum(len(columns) for columns in segment.read()) == 21
        index.unlink()


@pytest.mark.proves("B-09", "B-17")
@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
def test_records_behind_a_corrupt_marker_of_an_aborted_transaction_are_read(path: Path, max_bytes: int) -> None:
    transaction: dict[str, Any] = {"producer_id": 7, "transactional": True}
    abort = encode([(bytes(4), bytes(6))], base_offset=BASE + 10, control=True, **transaction)
    committed = encode([(b"k", b"kept")], base_offset=BASE + 11, **transaction)
    path.write_bytes(batch(0, **transaction) + abort[:-1] + b"?" + committed + batch(2) + batch(3)[:-1] + b"?")
    path.with_suffix(".txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, BASE, BASE + 10, BASE + 11))
    with open_segment(path) as segment:
        read = list(segment.read(isolation="read_committed", on_corrupt="skip_batch", max_bytes=max_bytes))
    assert [offset for columns in read for offset in columns.offsets] == [BASE + 11, *range(BASE + 20, BASE + 30)]
    assert [error.place["offset"] for columns in read for error in columns.corrupt] == [BASE + 10, BASE + 30]


def test_columns_outlive_their_segment(path: Path) -> None:
    with open_segment(path) as segment:
        columns = next(iter(segment.read()))
    assert columns[0].key == b"k1000"


def test_an_empty_segment(path: Path) -> None:
    path.write_bytes(b"")
    with open_segment(path) as segment:
        assert list(segment.read()) == list(segment.batches()) == []
        assert segment.offset_for_time(0) is None


def test_what_is_no_segment(tmp_path: Path) -> None:
    with pytest.raises(KohortError, match="first offset"):
        open_segment(tmp_path / "notes.txt")
    with pytest.raises(KohortError, match="No such file") as raised:
        open_segment(tmp_path / "00000000000000000000.log")
    assert raised.value.place["path"] == str(tmp_path / "00000000000000000000.log")
