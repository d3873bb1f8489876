"""What a hostile answer of 1 MiB may cost: the cap and 16 MiB, measured in a process of its own."""

import subprocess
import sys

import numpy
import pytest

from kohort.fastpath import decode
from kohort.fastpath.compression import CODECS, Codec
from kohort.protocol import record_batch as wire

MIB = 1 << 20
CAP_BYTES = 64 * MIB

# Reads bytes on standard input and prints the peak that decoding them adds, and what came of it.
MEASURE = """
import resource, sys
from kohort.fastpath import CorruptRecord, decode, encode
from kohort.fastpath.compression import CODECS

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

data = sys.stdin.buffer.read()
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    decode(encode([(b"k", b"v")], codec=codec))  # loads what decoding needs
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")  # the peak is counted from here
before = status("VmRSS")
try:
    columns = decode(data)
    outcome = f"{len(columns)} records, next {columns.next_offset}, complete {columns.complete}"
except CorruptRecord as error:
    outcome = type(error).__name__
print(status("VmHWM") - before, outcome)
"""


def zeros(codec: Codec) -> bytes:
    """One batch of as many zeros as 1 MiB can hold: 1 GiB and more, but for snappy and lz4."""
    size = {Codec.GZIP: 1000 * MIB, Codec.SNAPPY: 20 * MIB, Codec.LZ4: 240 * MIB, Codec.ZSTD: 1024 * MIB}[codec]
    if codec == Codec.SNAPPY:
        payload = b"\x82SNAPPY\x00" + bytes(8)
        block = CODECS[codec].compress(bytes(5 * MIB), None)
        payload += (len(block).to_bytes(4, "big") + block) * 4
    else:
        payload = CODECS[codec].compress(bytes(8 * MIB), None) * (size // (8 * MIB))
    return wire.build_batch(payload, attributes=codec, count=1000, last_offset_delta=999)


def sound_batches_below_the_cap(codec: Codec) -> bytes:
    """A row of batches, each sound and each 60 MiB when decompressed."""
    payload = CODECS[codec].compress(wire.build_record(wire.NewRecord(None, bytes(60 * MIB)), 0, 0), None)
    return b"".join(
        wire.build_batch(payload, attributes=codec, base_offset=i, count=1) for i in range(MIB // (len(payload) + 61))
    )


def small_records(count: int) -> bytes:
    """One sound batch of records of ten bytes, for which columns take nearly four times as much."""
    deltas = (numpy.arange(count, dtype=numpy.uint32) + (1 << 20)) * 2
    records = numpy.zeros((count, 10), numpy.uint8)
    records[:, 0] = 18  # zigzag of nine
    for place in range(4):
        records[:, 3 + place] = (deltas >> (7 * place)) & 0x7F | (0x80 if place < 3 else 0)
    records[:, 7:9] = 1  # no key, no value
    payload = CODECS[Codec.ZSTD].compress(records.tobytes(), 12)
    return wire.build_batch(payload, attributes=Codec.ZSTD, count=count, last_offset_delta=(1 << 20) + count)


def claims_of_records() -> bytes:
    """Empty batches that claim 2^31 records each."""
    return wire.build_batch(b"", count=0x7FFFFFFF, last_offset_delta=0x7FFFFFFE) * (MIB // 61)


def claims_of_size() -> bytes:
    """Snappy that says it becomes 4 GiB."""
    return wire.build_batch(b"\xff\xff\xff\xff\x0f" + bytes(MIB - 100), attributes=Codec.SNAPPY, count=1)


HOSTILE = {
    "zeros in gzip": lambda: zeros(Codec.GZIP),
    "zeros in snappy": lambda: zeros(Codec.SNAPPY),
    "zeros in lz4": lambda: zeros(Codec.LZ4),
    "zeros in zstd": lambda: zeros(Codec.ZSTD),
    "sound batches below the cap": lambda: sound_batches_below_the_cap(Codec.ZSTD),
    "six million small records": lambda: small_records(6_000_000),
    "claims of records": claims_of_records,
    "claims of size": claims_of_size,
}


def measured(data: bytes) -> tuple[int, str]:
    """Peak bytes that decoding adds to a fresh process, and what came of it."""
    run = subprocess.run([sys.executable, "-c", MEASURE], input=data, capture_output=True, check=True)
    peak, _, outcome = run.stdout.decode().strip().partition(" ")
    return int(peak), outcome


@pytest.mark.proves("B-13")
@pytest.mark.parametrize("name", HOSTILE)
def test_no_hostile_answer_costs_more_than_the_cap_and_16_mib(name: str) -> None:
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


if __name__ == "__main__":
    for title, make in HOSTILE.items():
        hostile = make()
        high, came = measured(hostile)
        print(f"{title:<30} {len(hostile) / MIB:>6.2f} MiB -> {high / MIB:>6.1f} MiB  {came}")
