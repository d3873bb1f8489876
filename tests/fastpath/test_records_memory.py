"""The memory limit of a hostile response of 1 MiB: the cap and 16 MiB, measured in a process of its own."""

import tracemalloc

import pytest

from kohort.fastpath import decode, encode
from kohort.protocol import record_batch as wire
from tests.fastpath.hostile_batches import HOSTILE, MIB, measured, small_records

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
