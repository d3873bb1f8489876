"""Topics that other clients' producers wrote, in every codec: ours reads from the broker what their own consumers read.

Other layouts are those of franz-go, Sarama and older librdkafka. Their frames of codecs have other headers, several
blocks, checksums or members. Timestamps go back.
"""

import asyncio
import gzip
import os
import random
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cramjam
import crc32c
import lz4.frame
import pytest
import zstandard

from kohort import Consumer, TopicPartition
from kohort.fastpath import Codec, decode, encode
from kohort.fastpath.compression import CODECS, LEGACY_LZ4, XERIAL_MAGIC, Compression
from kohort.testing import jars
from kohort.testing.jdk import java
from tests.coordinator_client.consumer_helpers import read
from tests.fastpath.records_jvm import records_jvm
from tests.fastpath.test_records_java import expected
from tests.support.broker_selection import SelectedBroker

MakeTopic = Callable[..., str]
FIRST_MS = 1_700_000_000_000
PLAIN = b" ".join(b"value %d" % number for number in range(200))
HEADERS = [("trace", b"1"), ("empty", b""), ("null", None), ("trace", b"2")]


class New(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]


NEW = [
    New(
        (None, b"", b"key-%d" % n)[n % 3],
        (b"value %d " % n * (n % 9 + 1), None if n % 3 else b"-", b"", b"\x00\xff" * n)[n % 4],
        FIRST_MS - (n * 37) % 100,  # not in order
        HEADERS[: n % 5],
    )
    for n in range(60)
]
# kafka-python's producer takes no header without a value.
NO_NULLS = [new._replace(headers=[(name, value or b"") for name, value in new.headers]) for new in NEW]
Writer = Callable[[str, str], None]


def by_librdkafka(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Producer

    for codec in Codec:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec.name.lower(), "linger.ms": 50})
        for new in NEW:
            producer.produce(topic, new.value, new.key, codec, timestamp=new.timestamp_ms, headers=new.headers)
        assert producer.flush(120) == 0


def by_kafka_python(bootstrap: str, topic: str) -> None:
    from kafka import KafkaProducer

    for codec in Codec:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec.name.lower() if codec else None, linger_ms=50
        )
        for new in NO_NULLS:
            producer.send(topic, new.value, new.key, new.headers, codec, new.timestamp_ms)
        producer.flush(120)
        producer.close()


def by_aiokafka(bootstrap: str, topic: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def write() -> None:
        for codec in Codec:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap, compression_type=codec.name.lower() if codec else None, linger_ms=50
            )
            await producer.start()
            for new in NEW:
                await producer.send(topic, new.value, new.key, codec, new.timestamp_ms, new.headers)
            await producer.stop()

    asyncio.run(write())


def by_java(bootstrap: str, topic: str) -> None:
    lines = []
    for codec in Codec:
        lines.append(f"# {topic} {int(codec)} {codec.name.lower()}")
        for new in NEW:
            words = [_word(new.key), _word(new.value)]
            words += [word for name, value in new.headers for word in (_word(name.encode()), _word(value))]
            lines.append(" ".join((str(new.timestamp_ms), *words)))
    classpath = os.pathsep.join(map(str, jars.classpath(jars.DEFAULT_VERSION)))  # with the codecs' own jars
    subprocess.run(
        [
            str(java()),
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
            classpath,
            str(Path(__file__).with_name("JavaWriter.java")),
            bootstrap,
        ],
        input="\n".join(lines),
        text=True,
        check=True,
        capture_output=True,
        timeout=120,
    )


def _word(data: bytes | None) -> str:
    return "-" if data is None else data.hex() or "."


WRITERS: dict[str, Writer] = {
    "librdkafka": by_librdkafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "java": by_java,
}
Seen = dict[tuple[int, int], New]


def seen_by_ours(bootstrap: str, topic: str) -> Seen:
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, codec) for codec in Codec])
        return {
            (one.partition, one.offset): New(one.key, one.value, one.timestamp_ms, list(one.headers))
            for one in read(consumer, len(NEW) * len(Codec))
        }


def seen_by_librdkafka(bootstrap: str, topic: str) -> Seen:
    from confluent_kafka import Consumer as Peer
    from confluent_kafka import TopicPartition as PeerPartition

    peer = Peer({"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False})
    peer.assign([PeerPartition(topic, codec, 0) for codec in Codec])
    seen: Seen = {}
    limit = time.monotonic() + 120
    while len(seen) < len(NEW) * len(Codec) and time.monotonic() < limit:
        for one in peer.consume(1_000, 1.0):
            new = New(one.key(), one.value(), one.timestamp()[1], list(one.headers() or []))
            seen[one.partition(), one.offset()] = new
    peer.close()
    return seen


def seen_by_aiokafka(bootstrap: str, topic: str) -> Seen:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as PeerPartition

    async def consume() -> Seen:
        peer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
        await peer.start()
        peer.assign([PeerPartition(topic, codec) for codec in Codec])
        seen: Seen = {}
        limit = time.monotonic() + 120
        while len(seen) < len(NEW) * len(Codec) and time.monotonic() < limit:
            for records in (await peer.getmany(timeout_ms=1_000)).values():
                for one in records:
                    seen[one.partition, one.offset] = New(one.key, one.value, one.timestamp, list(one.headers))
        await peer.stop()
        return seen

    return asyncio.run(consume())


@pytest.mark.broker
@pytest.mark.proves("B-12")
@pytest.mark.parametrize("writer", WRITERS)
def test_ours_reads_what_their_own_consumers_read(broker: SelectedBroker, make_topic: MakeTopic, writer: str) -> None:
    topic = make_topic(len(Codec))
    WRITERS[writer](broker.bootstrap, topic)
    ours = seen_by_ours(broker.bootstrap, topic)
    written = NO_NULLS if writer == "kafka-python" else NEW
    assert ours == {(codec, offset): new for codec in Codec for offset, new in enumerate(written)}
    assert ours == seen_by_librdkafka(broker.bootstrap, topic)
    assert ours == seen_by_aiokafka(broker.bootstrap, topic)


def xerial(data: bytes, block_bytes: int = 100) -> bytes:
    parts = (data[at : at + block_bytes] for at in range(0, len(data), block_bytes))
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in parts]
    versions = (1).to_bytes(4, "big") * 2
    return XERIAL_MAGIC + versions + b"".join(len(block).to_bytes(4, "big") + block for block in blocks)


def lz4_frame(data: bytes, **options: Any) -> bytes:
    return bytes(lz4.frame.compress(data, block_linked=False, store_size=False, **options))


def zstd(data: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


LAYOUTS: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "snappy, raw": (Codec.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    "snappy, xerial, many blocks": (Codec.SNAPPY, xerial),
    "lz4, 64 KiB blocks, no size": (Codec.LZ4, lz4_frame),
    "lz4, 4 MiB blocks": (Codec.LZ4, lambda data: lz4_frame(data, block_size=7)),
    "lz4, block checksums": (Codec.LZ4, lambda data: lz4_frame(data, block_checksum=True)),
    "lz4, content checksum, best": (Codec.LZ4, lambda d: lz4_frame(d, content_checksum=True, compression_level=12)),
    "zstd, no size": (Codec.ZSTD, lambda data: zstd(data, write_content_size=False)),
    "zstd, checksum": (Codec.ZSTD, lambda data: zstd(data, write_checksum=True, level=19)),
    "zstd, two frames": (Codec.ZSTD, lambda data: zstd(data[:500]) + zstd(data[500:])),
    "gzip, best, with a name": (Codec.GZIP, lambda data: _named(gzip.compress(data, 9))),
    "gzip, stored": (Codec.GZIP, lambda data: gzip.compress(data, 0)),
    "gzip, two members": (Codec.GZIP, lambda data: gzip.compress(data[:500]) + gzip.compress(data[500:])),
}


def _named(plain: bytes) -> bytes:
    """With a file's name in the header, as RFC 1952 allows."""
    return plain[:3] + bytes([plain[3] | 0x08]) + plain[4:10] + b"records\0" + plain[10:]


@pytest.mark.proves("B-12")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_frames_as_yet_other_clients_write_them(layout: str) -> None:
    codec, compress = LAYOUTS[layout]
    plain = encode(NEW, base_offset=500)
    data = bytearray(plain[:61] + compress(plain[61:]))
    data[22] |= codec
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = crc32c.crc32c(data[21:]).to_bytes(4, "big")
    columns = decode(bytes(data))
    assert [New(one.key, one.value, one.timestamp_ms, list(one.headers)) for one in columns] == NEW
    assert records_jvm().read(bytes(data))[:-9] == expected(columns)


def test_zstd_frames_of_a_kept_context_are_whole_and_have_zstds_own_level() -> None:
    numbers = random.Random(1)
    for count in (10_000, 1, 100):
        plain = b" ".join(b"value %d" % numbers.randrange(1000) for _ in range(count))
        packed = CODECS[Codec.ZSTD].compress(memoryview(plain), None)
        assert bytes(cramjam.zstd.decompress(packed)) == plain
        assert packed == CODECS[Codec.ZSTD].compress(plain, None)
        at_level_3 = len(CODECS[Codec.ZSTD].compress(plain, 3))  # perhaps of another release of zstd
        assert abs(len(packed) - at_level_3) <= 8 + at_level_3 // 50


UNCOMMON: dict[str, tuple[Compression, bytes]] = {
    "lz4, Kafka's clients": (CODECS[Codec.LZ4], CODECS[Codec.LZ4].compress(PLAIN, None)),
    "lz4, magic 0": (LEGACY_LZ4, lz4_frame(PLAIN)),
    "gzip, members": (CODECS[Codec.GZIP], b"".join(map(gzip.compress, re.findall(b".{1,50}", PLAIN)))),
}


@pytest.mark.parametrize("layout", [*LAYOUTS, *UNCOMMON])
def test_cramjam_writes_into_no_memoryview_which_it_refuses_without_a_gil(
    monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    def guarded(real: Callable[..., int]) -> Callable[..., int]:
        def into(source: Any, target: Any, **options: Any) -> int:
            assert not isinstance(target, memoryview)
            return real(source, target, **options)

        return into

    for library in (cramjam.gzip, cramjam.snappy, cramjam.lz4, cramjam.zstd):
        for name in [name for name in dir(library) if name.startswith("decompress") and name.endswith("_into")]:
            monkeypatch.setattr(library, name, guarded(getattr(library, name)))
    if layout in LAYOUTS:
        codec, compress = LAYOUTS[layout]
        compression, packed = CODECS[codec], compress(PLAIN)
    else:
        compression, packed = UNCOMMON[layout]
    target = bytearray(len(PLAIN))
    assert compression.decompress_into(memoryview(packed), target) == len(PLAIN)
    assert target == PLAIN
