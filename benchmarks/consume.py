"""Consuming a topic, in every codec, with 100-byte and 1,000-byte values.

All clients run in one run on one broker, with topics of 4 partitions, each with its best settings (`peers.py`). Values
are words, so that they can be compressed. They are written in batches of 256 KiB.
"""

import os
import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks import peers
from benchmarks.report import OURS, Report
from kohort.producer.producer_settings import CompressionType

PARTITIONS = peers.PARTITIONS
CODECS: tuple[CompressionType, ...] = ("none", "lz4", "zstd", "snappy", "gzip")
RECORDS = 2_000_000
VALUE_BYTES = 100
SIZES = {VALUE_BYTES: RECORDS, 1000: 400_000}  # value bytes -> records
TIMES = 3
DISTINCT = 20_000  # values of words
SLOW = 10  # the part of the records that kafka-python is given; its rate does not depend on how many there are


def run(report: Report) -> None:
    with running_broker() as bootstrap:
        for size, count in SIZES.items():
            for codec in CODECS:
                _table(report, bootstrap, codec, size, count)


def _table(report: Report, bootstrap: str, codec: CompressionType, size: int, count: int) -> None:
    topic = words(bootstrap, codec, count, size)
    work = f"consume {size} B, {codec}"
    clients: list[tuple[str, Callable[[str, str, int], int], int, int]] = [
        (OURS, peers.columns, count, TIMES),
        ("confluent-kafka", peers.confluent, count, 2),
        ("aiokafka", peers.aiokafka, count // 2, 2),
        ("kafka-python", peers.kafka_python, count // SLOW, 1),
    ]
    if codec == "none":
        clients.append(("raw socket, nothing decoded", peers.raw_socket, count, TIMES))
    for client, consume, some, times in clients:
        wall, cpu = _fastest(consume, bootstrap, topic, some, times)
        report.add(work, client, some / wall, "records/s")
        report.add(f"{work}, per CPU second", client, some / cpu, "records/s")
        if client != OURS and client in ("confluent-kafka", "aiokafka"):
            report.add(f"{work}, record by record, per CPU second", client, some / cpu, "records/s")
    wall, cpu = _fastest(peers.records, bootstrap, topic, count, TIMES)
    report.add(f"{work}, record by record, per CPU second", OURS, count / cpu, "records/s")


@contextmanager
def running_broker() -> Iterator[str]:
    """KOHORT_BOOTSTRAP if set, else a broker of our own."""
    if given := os.environ.get("KOHORT_BOOTSTRAP"):
        yield given
        return
    from kohort.testing import RealBroker
    from kohort.testing.real_broker import OPTIMIZING

    with RealBroker(jvm_options=OPTIMIZING) as broker:
        yield broker.bootstrap


def filled(
    bootstrap: str, codec: CompressionType, records: int = RECORDS, size: int = VALUE_BYTES, distinct: int = 1
) -> str:
    """A topic with so many records, spread evenly, of 1,000 keys and `distinct` values, written by librdkafka."""
    from confluent_kafka import Producer

    from kohort.testing.topics import create_topic

    topic = f"bench-{codec}-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    values = [os.urandom(size // 2).hex().encode() for _ in range(distinct)]
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % distinct], b"key-%06d" % (number % 1000), number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()
    return topic


def words(bootstrap: str, codec: CompressionType, records: int, size: int) -> str:
    """A topic with so many records of so many bytes of text, spread evenly, written by our own producer."""
    import pyarrow as pa

    from kohort import Producer
    from kohort.testing.topics import create_topic

    topic = f"bench-{codec}-{size}-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    each = records // PARTITIONS
    values = pa.array(texts(size), pa.binary())
    keys = pa.array([b"key-%06d" % (number % 1000) for number in range(DISTINCT)], pa.binary())
    table = pa.table({"key": keys, "value": values})
    with Producer(bootstrap, compression=codec) as producer:
        for number in range(PARTITIONS):
            for at in range(0, each, len(table)):
                producer.send_arrow(topic, table.slice(0, each - at), partition=number)
    return topic


def texts(size: int) -> list[bytes]:
    """Values of so many bytes, made of words."""
    dice = random.Random(1)
    some = [dice.randbytes(dice.randint(2, 6)).hex().encode() for _ in range(400)]
    text = b" ".join(dice.choices(some, k=DISTINCT * size // 8 + size))
    return [text[at : at + size] for at in range(0, DISTINCT * size, size)]


def _fastest(
    consume: Callable[[str, str, int], int], bootstrap: str, topic: str, count: int, times: int
) -> tuple[float, float]:
    """(wall, CPU) seconds, each of the fastest of so many runs."""
    best = (float("inf"), float("inf"))
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        got = consume(bootstrap, topic, count)
        took = (time.perf_counter() - wall, time.process_time() - cpu)
        if got < count:
            raise AssertionError(f"{consume.__name__} read {got} of {count}")
        best = (min(best[0], took[0]), min(best[1], took[1]))
    return best
