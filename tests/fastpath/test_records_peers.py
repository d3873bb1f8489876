"""Batches between ours and the other Python clients' own record code, both ways."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from aiokafka.record import default_records as aiokafka_v2
from aiokafka.record import legacy_records as aiokafka_legacy
from aiokafka.record import memory_records as aiokafka_memory
from kafka.record import memory_records as kafka_memory

from kohort.fastpath import Codec, encode

HEADERS = [("a", b"1"), ("b", None), ("a", b"")]
NEW = [
    (
        None if i % 3 == 0 else b"k%d" % i,
        None if i % 5 == 0 else b"v" * (i * 3),
        1_700_000_000_000 + i,
        HEADERS[: i % 4],
    )
    for i in range(60)
]


def by_kafka_python(magic: int, codec: int) -> bytes:
    builder = kafka_memory.MemoryRecordsBuilder(magic, codec, 1 << 20, offset=10)
    for key, value, timestamp, headers in NEW:
        builder.append(timestamp, key, value, headers if magic == 2 else [])
    builder.close()
    return bytes(builder.buffer())


def by_aiokafka(magic: int, codec: int) -> bytes:
    if magic == 2:
        builder = aiokafka_v2.DefaultRecordBatchBuilder(
            magic=2,
            compression_type=codec,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=1 << 20,
        )
    else:
        builder = aiokafka_legacy.LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset, (key, value, timestamp, headers) in enumerate(NEW):
        builder.append(offset, timestamp, key, value, headers if magic == 2 else [])
    return bytes(builder.build())


class Peer(NamedTuple):
    """Another client's builder, and the codecs that it can write here."""

    build: Callable[[int, int], bytes]
    codecs: tuple[Codec, ...]


PEERS = {
    # Neither writes the odd lz4 of magic 0; Kafka's own builder does, in test_records_java.
    "kafka-python": Peer(by_kafka_python, tuple(Codec)),
    "aiokafka": Peer(by_aiokafka, tuple(Codec)),
}
CASES = [
    (name, magic, codec)
    for name, peer in PEERS.items()
    for magic in (0, 1, 2)
    for codec in peer.codecs
    if (codec != Codec.ZSTD or magic == 2) and (magic, codec) != (0, Codec.LZ4)
]


@pytest.mark.proves("B-12")
@pytest.mark.parametrize(("name", "magic", "codec"), CASES)
def test_what_they_write_ours_reads(decode: Callable[..., Any], name: str, magic: int, codec: Codec) -> None:
    read = decode(PEERS[name].build(magic, codec))
    assert [(record.key, record.value) for record in read.records] == [(key, value) for key, value, *_ in NEW]
    expected = [-1 if magic == 0 else timestamp for *_, timestamp, _ in NEW]
    assert [record.timestamp_ms for record in read.records] == expected
    assert [list(record.headers) for record in read.records] == [headers if magic == 2 else [] for *_, headers in NEW]
    offsets = [record.offset for record in read.records]
    assert offsets == list(range(offsets[0], offsets[0] + len(NEW)))
    assert read.next_offset == offsets[-1] + 1


def read_by_kafka_python(data: bytes) -> Iterator[Any]:
    records = kafka_memory.MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        yield from batch


def read_by_aiokafka(data: bytes) -> Iterator[Any]:
    records = aiokafka_memory.MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        yield from batch


READERS = {"kafka-python": read_by_kafka_python, "aiokafka": read_by_aiokafka}


@pytest.mark.parametrize(("name", "codec"), [(name, codec) for name, peer in PEERS.items() for codec in peer.codecs])
def test_what_ours_writes_they_read(name: str, codec: Codec) -> None:
    data = encode(NEW, codec=codec, base_offset=1_000) + encode(NEW, codec=codec, base_offset=1_060)
    read = list(READERS[name](data))
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in read] == NEW + NEW
    assert [record.offset for record in read] == list(range(1_000, 1_120))
