"""The memory limit of a hostile response of 1 MiB: the cap and 16 MiB, measured in a process of its own."""

import gzip
import tracemalloc
from collections.abc import Callable

import pytest

from kohort.fastpath import decode, encode
from kohort.protocol import record_batch as wire
from tests.fastpath.hostile_batches import HOSTILE, MIB, measured, small_records
from tests.fastpath.legacy_messages import encode_messages

CAP_BYTES = 64 * MIB


@pytest.mark.proves("B-13")
@pytest.mark.parametrize("name", HOSTILE)
def test_no_hostile_response_costs_more_than_the_cap_and_16_mib(name: str) -> None:
    data = HOSTILE[name]()
    peak, outcome = measured(data)
    assert peak < CAP_BYTES + 16 * MIB, f"{peak / MIB:.0f} MiB for {len(data) / MIB:.2f} MiB: {outcome}"


@pytest.mark.proves("B-13")
def test_what_does_not_fit_one_call_is_decoded_by_the_next() -> None:
    """All of it in order, although no call holds more than the cap."""
    data = b"".join(
        wire.encode([(b"%d" % (i * 10 + k), bytes(50_000), 0) for k in range(10)], codec="zstd", base_offset=i * 10)
        for i in range(8)
    )
    position, keys, calls, complete = 3, [], 0, False
    while not complete:
        columns = decode(data, from_offset=position, max_decompressed_bytes=1_200_000)
        assert columns.next_offset > position
        keys += list(columns.keys)
        position, complete, calls = columns.next_offset, columns.complete, calls + 1
    assert keys == [b"%d" % i for i in range(3, 80)]
    assert position == 80
    assert calls == 4


@pytest.mark.proves("B-13")
def test_a_batch_with_more_records_than_there_is_room_for_comes_in_parts() -> None:
    data = small_records(1_000_000)
    position, total, complete = 0, 0, False
    while not complete:
        columns = decode(data, from_offset=position, max_decompressed_bytes=11_000_000)
        assert len(columns) < 300_000
        assert list(columns.offsets[:2]) == [(1 << 20) + total, (1 << 20) + total + 1]
        position, total, complete = columns.next_offset, total + len(columns), columns.complete
    assert total == 1_000_000
    assert position == (1 << 20) + 1_000_001


def small_batches() -> bytes:
    return b"".join(encode([(None, None)] * 10_000, base_offset=at) for at in range(0, 300_000, 10_000))


def small_messages() -> bytes:
    message = encode_messages([(None, None, 1)], magic=1)  # its checksum does not cover the offset
    return b"".join(at.to_bytes(8, "big") + message[8:] for at in range(300_000))


@pytest.mark.proves("B-13")
@pytest.mark.parametrize(
    ("data", "most"),
    [
        (small_batches, (9 * MIB) // 36),
        (lambda: encode([(None, None)] * 300_000), (8 * MIB) // 36),
        (small_messages, MIB // 36 + 1),
    ],
    ids=["batches", "a batch", "messages"],
)
def test_the_columns_of_small_records_count_without_a_codec_too(data: Callable[[], bytes], most: int) -> None:
    records, position, complete = data(), 0, False
    while not complete:
        columns = decode(records, from_offset=position, max_decompressed_bytes=MIB)
        assert 0 < len(columns) <= most
        assert (columns.offsets[0], columns.offsets[-1]) == (position, columns.next_offset - 1)
        position, complete = columns.next_offset, columns.complete
    assert position == 300_000


@pytest.mark.proves("B-13")
def test_a_compressed_batch_waits_for_room_beside_columns_without_a_codec() -> None:
    data = small_batches() + wire.encode([(None, bytes(3 * MIB), 1)], codec="zstd", base_offset=300_000)
    for limit, calls in ((14, 1), (13, 2)):  # 10.3 MiB of columns
        parts = [decode(data, max_decompressed_bytes=limit * MIB)]
        if not parts[0].complete:
            parts.append(decode(data, from_offset=parts[0].next_offset, max_decompressed_bytes=limit * MIB))
        assert [len(part) for part in parts] == ([300_001] if calls == 1 else [300_000, 1])
        assert parts[-1].complete


@pytest.mark.proves("B-13")
def test_a_batch_larger_than_its_frame_says_gets_no_memory_beside_the_others() -> None:
    """The size in gzip is that of the last member, which is empty here."""
    record = wire.build_record(wire.NewRecord(None, bytes(15 * MIB)), 0, 0)
    payload = gzip.compress(record, 1) + gzip.compress(b"")
    data = b"".join(wire.build_batch(payload, base_offset=at, count=1, attributes=1) for at in range(2))
    tracemalloc.start()
    try:
        first = decode(data, max_decompressed_bytes=16 * MIB)
        assert tracemalloc.get_traced_memory()[1] < (16 + 8) * MIB
    finally:
        tracemalloc.stop()
    assert (list(first.offsets), first.complete) == ([0], False)
    second = decode(data, from_offset=1, max_decompressed_bytes=16 * MIB)
    assert (list(second.offsets), second.complete) == ([1], True)


def test_a_slice_of_one_record_takes_little_memory() -> None:
    data = encode([(None, b"v")], base_offset=0, timestamp_ms=1)
    decode(data)
    tracemalloc.start()
    try:
        kept = [decode(data) for _ in range(100)]
        taken, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 100 * 4096  # each has five columns
    assert len(kept) == 100
