"""Responses of 1 MiB that claim far more, and the cost of decoding one in a fresh process."""

import gzip
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy

from kohort.fastpath.compression import CODECS, Codec
from kohort.protocol import record_batch as wire
from kohort.protocol.record_format import VARINT
from kohort.testing.fake_broker import Alter, Call, FakeBroker

MIB = 1 << 20
CEILING_BYTES = 3 << 30  # of address space: where a reader without a cap is stopped

# Reads bytes on standard input and prints the peak that decoding them adds, and what came of it.
MEASURE = """
import resource, signal, sys
{loads}
class StillAtIt(Exception): pass
def over(*_): raise StillAtIt
def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

data = sys.stdin.buffer.read()
resource.setrlimit(resource.RLIMIT_AS, ({ceiling}, {ceiling}))
signal.signal(signal.SIGXCPU, over)
resource.setrlimit(resource.RLIMIT_CPU, (30, 60))  # the first warns, the second kills
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")  # the peak is counted from here
before = status("VmRSS")
try:
    outcome = read(data)
except BaseException as error:
    outcome = type(error).__name__
print(status("VmHWM") - before, outcome)
"""

OURS = """
from kohort.fastpath import decode, encode
for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    decode(encode([(b"k", b"v")], codec=codec))  # loads what decoding needs
def read(data):
    columns = decode(data)
    return f"{len(columns)} records, next {columns.next_offset}, complete {columns.complete}"
"""
PEER = """
from {module} import MemoryRecords
def read(data):
    count, records = 0, MemoryRecords(data)
    while (batch := records.next_batch()) is not None:
        for record in batch:
            count += 1
    return f"{count} records"
"""
READERS = {
    "kohort": OURS,
    "aiokafka": PEER.replace("{module}", "aiokafka.record.memory_records"),
    "kafka-python": PEER.replace("{module}", "kafka.record.memory_records"),
}
# What comes of a broker's address instead: librdkafka decodes nothing that it has not fetched. The peak is that of a
# whole consumer, its own threads and buffers among it.
CONSUMERS = {
    "kohort, a consumer": """
import time
from kohort import Consumer
def read(data):
    with Consumer(data.decode(), auto_offset_reset="earliest", bootstrap_timeout_ms=5000) as consumer:
        consumer.assign([("hostile", 0)])
        count, until = 0, time.monotonic() + {seconds}
        while time.monotonic() < until:
            count += sum(map(len, consumer.poll(0.2)))
    return f"{count} records"
""",
    "confluent-kafka, a consumer": """
import time
from confluent_kafka import Consumer, TopicPartition
def read(data):
    consumer = Consumer({"bootstrap.servers": data.decode(), "group.id": "g", "fetch.queue.backoff.ms": 1})
    consumer.assign([TopicPartition("hostile", 0, 0)])
    count, errors, until = 0, set(), time.monotonic() + {seconds}
    while time.monotonic() < until:
        for message in consumer.consume(10_000, 0.2):
            if message.error():
                errors.add(message.error().name())
            else:
                count += 1
    return " ".join([f"{count} records", *sorted(errors)])
""",
}
WATCHED_S = 6


@contextmanager
def served(data: bytes) -> Iterator[bytes]:
    """The address of a broker whose topic `hostile` begins with `data`."""

    def first(call: Call) -> Alter | None:
        topics = call.request.topics  # type: ignore[attr-defined]
        return Alter(hostile) if topics and topics[0].partitions[0].fetch_offset == 0 else None

    def hostile(response: Any) -> Any:
        (topic,) = response.responses
        (found,) = topic.partitions
        found = found._replace(records=data, high_watermark=1 << 40, last_stable_offset=1 << 40)
        return response._replace(responses=(topic._replace(partitions=(found,)),))

    with FakeBroker(topics={"hostile": 1}) as broker:
        broker.control("Fetch", first)
        yield broker.bootstrap.encode()


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


def gzip_members(count: int) -> bytes:
    """A batch of gzip in `count` members that hold nothing."""
    return wire.build_batch(gzip.compress(b"", mtime=0) * count, attributes=Codec.GZIP, count=1)


def snappy_blocks(count: int) -> bytes:
    """A batch of snappy in `count` blocks that hold nothing."""
    payload = b"\x82SNAPPY\x00" + bytes(8) + b"\x00\x00\x00\x01\x00" * count
    return wire.build_batch(payload, attributes=Codec.SNAPPY, count=1)


def compressed_claims_of_records(size: int) -> bytes:
    """One batch with a codec that counts 2^31 records, under a checksum that does not match."""
    sound = wire.build_batch(bytes(size), attributes=Codec.GZIP, count=0x7FFFFFFF, last_offset_delta=0x7FFFFFFE)
    return sound[:-1] + b"?"


def headers(count: int) -> bytes:
    """One record of `count` headers, each with an empty name and no value: two bytes on the wire."""
    return record_of_headers(count, b"\0\1" * count)


def claims_of_headers(size: int) -> bytes:
    """One record that counts 2^30 headers and has none."""
    return record_of_headers(1 << 30, bytes(size))


def record_of_headers(count: int, data: bytes) -> bytes:
    """A batch of one record, without a key and a value, that counts `count` headers and has `data` in their place."""
    record = b"\0\0\0\1\1" + VARINT.build(count) + data
    return wire.build_batch(VARINT.build(len(record)) + record, count=1)


def far_away(sound: bytes) -> bytes:
    """A batch whose base offset, which no checksum covers, is 2^62, and whose records are corrupt."""
    return (1 << 62).to_bytes(8, "big") + sound[8:-1] + b"?"


def small_hostile_batches() -> list[bytes]:
    """Of a size for a fuzzer to change."""
    return [
        gzip_members(40),
        snappy_blocks(40),
        compressed_claims_of_records(100),
        far_away(wire.encode([(b"k", b"v", 1)] * 3)),
        headers(40),
        claims_of_headers(40),
        wire.build_batch(b"\xff\xff\xff\xff\x0f" + bytes(40), attributes=Codec.SNAPPY, count=1),
        small_records(40),
    ]


HOSTILE = {
    "gzip of 50,000 members": lambda: gzip_members(MIB // 20),
    "snappy of 200,000 blocks": lambda: snappy_blocks(MIB // 5),
    "compressed claims of records": lambda: compressed_claims_of_records(MIB),
    "zeros in gzip": lambda: zeros(Codec.GZIP),
    "zeros in snappy": lambda: zeros(Codec.SNAPPY),
    "zeros in lz4": lambda: zeros(Codec.LZ4),
    "zeros in zstd": lambda: zeros(Codec.ZSTD),
    "sound batches below the cap": lambda: sound_batches_below_the_cap(Codec.ZSTD),
    "six million small records": lambda: small_records(6_000_000),
    "half a million headers": lambda: headers(MIB // 2),
    "claims of headers": lambda: claims_of_headers(MIB - 100),
    "claims of records": claims_of_records,
    "claims of size": claims_of_size,
}


def measured(data: bytes, who: str = "kohort") -> tuple[int, str]:
    """Peak bytes that decoding adds to a fresh process (the ceiling where it dies), and what came of it. `data` is a
    broker's address for `CONSUMERS`."""
    program = MEASURE.replace("{loads}", (READERS | CONSUMERS)[who]).replace("{ceiling}", str(CEILING_BYTES))
    program = program.replace("{seconds}", str(WATCHED_S))
    run = subprocess.run([sys.executable, "-c", program], input=data, capture_output=True, check=False)
    if run.returncode < 0:
        return CEILING_BYTES, f"died of {signal.Signals(-run.returncode).name}"
    if run.returncode:
        raise AssertionError(run.stderr.decode())
    peak, _, outcome = run.stdout.decode().strip().partition(" ")
    return int(peak), outcome
