"""Against Kafka's own MemoryRecords: what it writes, ours reads; what either refuses, the other refuses.

`make test` runs a cut; `python -m tests.fastpath.test_records_java 200000` runs that many and prints the table of
differences. Each difference must be one of DIFFERENCES, with its reason, or the run fails.
"""

import random
import struct
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import pytest

from kohort import fastpath
from kohort.fastpath.compression import CODECS
from kohort.protocol import record_batch as wire
from kohort.protocol.record_format import VARINT
from tests.fastpath.records_jvm import RecordsJvm, records_jvm


class Difference(NamedTuple):
    """A difference that is meant: the refusing side, a part of its reason, and why it is right."""

    refused_by: str
    reason: str
    why: str


DIFFERENCES = (
    Difference(
        "ours",
        "offset deltas must grow and stay within the batch's last offset delta",
        "Java's reader takes any delta; offsets out of order or past the batch would break positions (B-11)",
    ),
    Difference(
        "ours",
        "its offsets are below those of the batch before",
        "Java's reader takes batches in any order; in a log they are sorted (B-11)",
    ),
    Difference(
        "ours",
        "out of range",
        "Java's reader takes negative offsets and a last offset below the first; a log has neither (B-11)",
    ),
    Difference(
        "ours",
        "offsets of messages must grow",
        "Java's reader takes inner messages of magic 0 and 1 in any order; in a log they are sorted (B-11)",
    ),
    Difference(
        "ours",
        "offset is not its last inner message's",
        "Java's reader takes a wrapper of magic 0 at any offset; the next fetch would have a wrong offset",
    ),
    Difference(
        "ours",
        "a varint is longer than its type",
        "Java drops the bits of a fifth (tenth) byte that its type cannot hold; ours reads no other number for them",
    ),
    Difference(
        "ours",
        "xerial snappy block longer than the payload",
        "snappy-java takes a block that is cut short for the end, as long as no record is missing",
    ),
    *(
        Difference("ours", reason, f"Java's {codec} stream is not read to its own end once the records are there")
        for codec, reason in (("gzip", "incomplete gzip stream"), ("lz4", "lz4: truncated frame"))
    ),
    *(
        Difference("ours", reason, f"Java's {codec} stream stops at the frame's end and looks at no bytes behind it")
        for codec, reason in (
            ("gzip", "Invalid gzip/zlib wrapper found"),
            ("lz4", "ERROR_frameType_unknown"),
            ("zstd", "Unknown frame descriptor"),
        )
    ),
)

COUNTS_NOTHING = Difference(
    "ours",
    "bytes behind a count of 0",
    "Java's reader looks at none of the bytes of a batch that counts no records; ours refuses them",
)


def expected(decoded: Any) -> bytes:
    """`decoded` in the oracle's form."""
    parts = [b"\x00"]
    for record in decoded:
        kind = {"create": 0, "append": 1, "none": -1}[record.timestamp_type]
        parts.append(struct.pack(">bqqb", 1, record.offset, record.timestamp_ms, kind))
        parts += (_sized(record.key), _sized(record.value), struct.pack(">i", len(record.headers)))
        for name, value in record.headers:
            parts += (_sized(name.encode()), _sized(value))
    return b"".join(parts)


def _sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def difference(jvm: RecordsJvm, data: bytes) -> Difference | None:
    """None where both agree in every value or both refuse; a Difference that is meant; AssertionError for any other."""
    theirs = jvm.read(data)
    refusal = theirs[1:].decode() if theirs[0] else None
    try:
        ours = fastpath.decode(data, max_decompressed_bytes=1 << 28)
    except fastpath.CorruptRecord as error:
        return None if refusal is not None else _meant("ours", str(error), data)
    if refusal is not None:
        return _meant("theirs", refusal, data)
    assert theirs[:-9] == expected(ours), f"different records: {data.hex()}"
    (next_offset,) = struct.unpack(">q", theirs[-8:])
    assert ours.next_offset == max(next_offset, 0), f"different next offset: {data.hex()}"
    return None


def _meant(refused_by: str, reason: str, data: bytes) -> Difference:
    for known in DIFFERENCES:
        if known.refused_by == refused_by and known.reason in reason:
            return known
    if refused_by == "ours" and _counts_nothing(data):
        return COUNTS_NOTHING
    raise AssertionError(f"only {refused_by} refuses: {reason}: {data.hex()}")


def _counts_nothing(data: bytes) -> bool:
    """True if a batch of magic 2 in `data` claims to hold no records, and holds bytes."""
    while len(data) > 61:
        size = 12 + int.from_bytes(data[8:12], "big")
        if data[16] == 2 and data[57:61] == bytes(4) and size > 61:
            return True
        data = data[size:]
    return False


def cases(jvm: RecordsJvm, count: int, seed: int) -> Iterator[bytes]:
    """Half as Kafka's builder wrote them, half mutated: on the wire, under a sealed checksum, or inside the codec."""
    chance = random.Random(seed)
    for number in range(count):
        magic = chance.choice((2, 2, 2, 1, 0))
        codec = chance.choice((0, 0, 1, 2, 3, 4) if magic == 2 else (0, 1, 2, 3))
        data = b""
        offset = chance.randrange(1 << 40)
        for _ in range(chance.choice((1, 1, 3))):
            data += jvm.write(magic, codec, chance.random() < 0.2, offset, chance.getrandbits(62))
            offset += 100
        if number % 2:
            data = _mutated(data, magic, chance)
        yield data


def _mutated(data: bytes, magic: int, chance: random.Random) -> bytes:
    how = chance.choice(("wire", "sealed", "sealed", "inside", "inside"))
    if how == "inside" and magic == 2:
        return _inside(data, chance)
    out = _scratched(data, chance)
    return _sealed(out) if how != "wire" and len(out) >= 61 and out[16] == 2 else bytes(out)


def _scratched(data: bytes, chance: random.Random) -> bytearray:
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(out) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            out[at : at + 1] = bytes((chance.choice((0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256))),))
        elif kind == 1:
            del out[at : at + chance.randrange(1, 5)]
        elif kind == 2:
            out[at:at] = chance.randbytes(chance.randrange(1, 5))
        elif at < len(out):
            out[at] ^= 1 << chance.randrange(8)
    return out


def _sealed(out: bytearray) -> bytes:
    """One batch of all the bytes, its length and checksum true."""
    out[8:12] = (len(out) - 12).to_bytes(4, "big")
    out[17:21] = crc32c.crc32c(out[21:]).to_bytes(4, "big")
    return bytes(out)


def _inside(data: bytes, chance: random.Random) -> bytes:
    """The first batch with its records scratched before they are compressed again."""
    size = 12 + int.from_bytes(data[8:12], "big")
    header, payload = data[:61], memoryview(data)[61:size]
    codec = header[22] & 7
    if codec:
        target = bytearray(1 << 16)
        payload = memoryview(target)[: CODECS[codec].decompress_into(payload, target)]
    scratched = bytes(_scratched(bytes(payload), chance))
    return _sealed(bytearray(header + (CODECS[codec].compress(scratched, None) if codec else scratched)))


def run(count: int, seed: int) -> Counter[Difference]:
    """The number of times that each meant difference was met."""
    jvm = records_jvm()
    met: Counter[Difference] = Counter()
    for number, data in enumerate(cases(jvm, count, seed)):
        if (found := difference(jvm, data)) is not None:
            met[found] += 1
        if number % 20_000 == 19_999:
            print(f"  {number + 1} batches", flush=True)
    return met


@pytest.mark.proves("B-07", "B-08", "B-09", "B-10", "B-12", "B-14")
def test_a_cut_of_the_differential() -> None:
    met = run(3_000, seed=1)
    assert sum(met.values()) < 300  # or the mutations would mostly exercise what is meant to differ


def test_every_difference_is_in_the_table_that_users_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "records.md").read_text()
    for known in (*DIFFERENCES, COUNTS_NOTHING):
        assert f"| {known.reason} | {known.why} |" in page


@pytest.mark.proves("B-07")
def test_more_bits_than_a_varint_has_are_the_one_thing_that_chance_seldom_finds() -> None:
    body = b"\x00\x00\x00\x80\x80\x80\x80\x10\x01\x00"  # the key's size, in bits 32 and up
    data = wire.build_batch(bytes(VARINT.build(len(body))) + body, count=1)
    found = difference(records_jvm(), data)
    assert found is not None
    assert found.reason == "a varint is longer than its type"


@pytest.mark.proves("B-12")
@pytest.mark.parametrize(
    ("codec", "level"),
    [
        *((codec, None) for codec in ("none", "gzip", "snappy", "lz4", "zstd")),
        *(("gzip", level) for level in (0, 9)),
        *(("lz4", level) for level in (0, 9, 22)),
        *(("zstd", level) for level in (-5, 19)),
    ],
)
def test_kafka_reads_what_ours_writes(codec: str, level: int | None) -> None:
    headers = [("h", b"x"), ("n", None), ("ü", b"")]
    records = [(b"k%d" % i, None if i % 7 == 0 else b"v" * i, 1_000 + i, headers[: i % 4]) for i in range(2_000)]
    data = fastpath.encode(records, codec=codec, level=level, base_offset=11)
    theirs = records_jvm().read(data)
    assert theirs[:-9] == expected(fastpath.decode(data))
    assert struct.unpack(">q", theirs[-8:]) == (2_011,)


@pytest.mark.parametrize(("codec", "least", "most"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", -5, 19)])
def test_a_codec_with_levels_compresses_more_at_a_higher_one(codec: str, least: int, most: int) -> None:
    numbers = random.Random(1)
    records = [(None, b"value %d of many" % numbers.randrange(1_000)) for _ in range(10_000)]
    low, high = (len(fastpath.encode(records, codec=codec, level=level)) for level in (least, most))
    assert high < low


if __name__ == "__main__":
    requested = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    tally = run(requested, seed=int(sys.argv[2]) if len(sys.argv) > 2 else 2)
    print(f"{requested} batches, {sum(tally.values())} meant differences, no other")
    for known in (*DIFFERENCES, COUNTS_NOTHING):
        print(f"  {tally[known]:>6}  only {known.refused_by} refuse: {known.reason}\n          {known.why}")
