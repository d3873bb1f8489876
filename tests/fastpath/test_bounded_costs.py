"""Decoding costs no more than what arrives: time linear in members and blocks, memory by what was checked."""

import gzip
import random
import struct
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import cramjam
import pytest

from kohort.fastpath import CorruptRecord, DecompressionLimit, decode, encode
from kohort.fastpath.compression import CODECS, XERIAL_MAGIC, Codec
from kohort.protocol import record_batch as wire

VALUE = random.Random(1).randbytes(4_000)  # no member is smaller than what it holds
PLAIN = wire.build_record(wire.NewRecord(None, VALUE), 0, 0)


def member(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def batch_of(payload: bytes, codec: Codec) -> bytes:
    return wire.build_batch(payload, count=1, attributes=int(codec))


class Counting:
    """isal's decompressor; it counts the bytes that it is handed, of which it copies what it does not use."""

    handed = 0

    def __init__(self, real: Any) -> None:
        self.real = real

    def decompress(self, source: memoryview, max_length: int) -> Any:
        Counting.handed += len(source)
        return self.real.decompress(source, max_length=max_length)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


@pytest.mark.parametrize("members", [2, 16, 17, len(PLAIN)])
def test_gzip_of_many_members_is_read_and_copied_linearly(monkeypatch: pytest.MonkeyPatch, members: int) -> None:
    from isal import igzip_lib

    real = igzip_lib.IgzipDecompressor
    monkeypatch.setattr(igzip_lib, "IgzipDecompressor", lambda flag: Counting(real(flag=flag)))
    size = -(-len(PLAIN) // members)
    payload = b"".join(member(PLAIN[at : at + size]) for at in range(0, len(PLAIN), size))
    Counting.handed = 0
    (record,) = decode(batch_of(payload, Codec.GZIP))
    assert record.value == VALUE
    assert 0 < Counting.handed <= 16 * len(payload)


@pytest.mark.parametrize("empty", [0, 20, 5_000])
def test_empty_members_cost_no_more(empty: int) -> None:
    payload = member(b"") * empty + member(PLAIN) + member(b"") * empty
    (record,) = decode(batch_of(payload, Codec.GZIP))
    assert record.value == VALUE


def test_what_many_members_hold_is_bounded_too() -> None:
    payload = member(PLAIN) * 40
    data = wire.build_batch(payload, count=40, last_offset_delta=39, attributes=int(Codec.GZIP))
    with pytest.raises(DecompressionLimit):
        decode(data, max_decompressed_bytes=20 * len(PLAIN))
    with pytest.raises(CorruptRecord, match="gzip"):
        decode(batch_of(member(b"") * 40 + b"no gzip", Codec.GZIP))


def calls_of(work: Any) -> int:
    """Calls of C functions, which is where a block's cost is."""
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "c_call"

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_snappy_of_tiny_blocks_costs_the_same_for_each() -> None:
    def costs(blocks: int) -> int:
        part = bytes(cramjam.snappy.compress_raw(b""))
        payload = XERIAL_MAGIC + bytes(8) + (struct.pack(">i", len(part)) + part) * blocks
        return calls_of(lambda: CODECS[Codec.SNAPPY].decompress_into(memoryview(payload), bytearray(64)))

    assert costs(4_000) <= 2 * costs(2_000) + 16


LEAN = """
import resource, struct, sys
from kohort.fastpath import CorruptRecord, DecompressionLimit, decode, encode
decode(encode([(b"k", b"v")], codec="gzip"))
def peak():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmPeak")) * 1024
"""


def in_a_process(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", LEAN + program], capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout.strip()


@pytest.mark.proves("B-04")
@pytest.mark.parametrize("attributes", [0, 1])
def test_a_count_reserves_little_before_its_checksum_was_compared(attributes: int) -> None:
    added = in_a_process(f"""
rest = struct.pack(">hiqqqhii", {attributes}, 0x7FFFFFFE, 0, 0, -1, -1, -1, 0x7FFFFFFF) + bytes(50 << 20)
data = struct.pack(">qiibI", 0, len(rest) + 9, -1, 2, 0) + rest
before = peak()
try:
    decode(data)
except CorruptRecord as error:
    assert "CRC" in str(error)
    print(peak() - before)
""")
    assert int(added) < 64 << 20


def test_records_beyond_the_first_guess_are_all_read() -> None:
    count = (1 << 20) + 3
    columns = decode(b"".join(encode([(None, None)] * 10_000, base_offset=at) for at in range(0, count, 10_000)))
    assert columns.offsets[-1] == len(columns) - 1 >= count - 1


@pytest.mark.proves("B-13")
def test_a_lack_of_memory_has_a_place_and_can_be_skipped() -> None:
    said = in_a_process("""
data = encode([(b"k", bytes(40 << 20))], codec="gzip", base_offset=7) + encode([(b"k", b"v")], base_offset=8)
with open("/proc/self/status") as lines:
    used = next(int(line.split()[1]) for line in lines if line.startswith("VmSize")) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), used + (24 << 20)))
try:
    decode(data, topic="t", partition=3)
except DecompressionLimit as error:
    print(dict(error.place), "memory" in str(error), [record.offset for record in
        decode(data, topic="t", partition=3, from_offset=7, on_corrupt="skip_batch")])
""")
    assert said == "{'topic': 't', 'partition': 3, 'offset': 7} True [8]"


def test_aborted_transactions_of_a_response_cost_the_same_for_each() -> None:
    """A batch begins after all of them. If each took time for those behind it, they would take minutes."""
    read = in_a_process("""
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
print(len(decode(encode([(b"k", b"v")]), aborted=[(producer, 0) for producer in range(1_000_000)])))
""")
    assert read == "1"


@pytest.mark.skipif(find_spec("_testcapi") is None, reason="this Python has no module of its own tests")
def test_any_allocation_may_fail() -> None:
    said = in_a_process("""
import _testcapi
data = encode([(b"k", b"v")]) + encode([(b"k", b"v")], base_offset=1)
whole = 0
for number in range(200):
    _testcapi.set_nomemory(number, number + 1)
    try:
        whole += len(decode(data, on_corrupt="skip_batch")) == 2
    except (MemoryError, CorruptRecord):
        pass
    finally:
        _testcapi.remove_mem_hooks()
print(whole > 0)
""")
    assert said == "True"
