"""Consuming 2,000,000 records of 100 bytes, and how soon the first record comes: kohort and three other clients.

One broker, one topic of 4 partitions, everything in one run. What each client hands over is read as its users would:
kohort's columns are counted and their values' bytes are summed, the peers' messages have key, value and timestamp read.
"""

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.report import OURS, Report
from kohort import Consumer, TopicPartition

RECORDS = 2_000_000
VALUE_BYTES = 100
PARTITIONS = 4
TIMES = 3
KAFKA_PYTHON_RECORDS = 400_000  # it needs 10 s for all of them; its rate does not depend on how many there are


def run(report: Report) -> None:
    with running_broker() as bootstrap:
        for codec in ("none", "lz4"):
            topic = filled(bootstrap, codec)
            work = f"consume {RECORDS:,} x {VALUE_BYTES} B, {codec}"
            for who, consume, count in (
                (OURS, _kohort, RECORDS),
                ("confluent-kafka", _confluent, RECORDS),
                ("aiokafka", _aiokafka, RECORDS),
                ("kafka-python", _kafka_python, KAFKA_PYTHON_RECORDS),
            ):
                wall, cpu = _fastest(consume, bootstrap, topic, count)
                report.add(work, who, count / wall, "records/s")
                report.add(f"{work}, per CPU second", who, count / cpu, "records/s")
        _startup(report, bootstrap)


@contextmanager
def running_broker() -> Iterator[str]:
    """KOHORT_BOOTSTRAP if set, else a broker of our own."""
    if given := os.environ.get("KOHORT_BOOTSTRAP"):
        yield given
        return
    from kohort.testing import RealBroker

    with RealBroker() as broker:
        yield broker.bootstrap


def filled(bootstrap: str, codec: str, records: int = RECORDS, size: int = VALUE_BYTES, distinct: int = 1) -> str:
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


def _fastest(consume: Callable[[str, str, int], int], bootstrap: str, topic: str, count: int) -> tuple[float, float]:
    """(wall, CPU) seconds of the fastest of TIMES runs."""
    best = (float("inf"), float("inf"))
    for _ in range(TIMES):
        wall, cpu = time.perf_counter(), time.process_time()
        got = consume(bootstrap, topic, count)
        took = (time.perf_counter() - wall, time.process_time() - cpu)
        if got < count:
            raise AssertionError(f"{consume.__name__} read {got} of {count}")
        best = min(best, took)
    return best


def _kohort(bootstrap: str, topic: str, count: int) -> int:
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    read = value_bytes = 0
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        for columns in consumer:
            read += len(columns)
            value_bytes += columns.values.nbytes
            if read >= count:
                break
    assert value_bytes == read * VALUE_BYTES, (value_bytes, read)
    return read


def _confluent(bootstrap: str, topic: str, count: int) -> int:
    from confluent_kafka import Consumer as Peer
    from confluent_kafka import TopicPartition as PeerPartition

    consumer = Peer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{uuid.uuid4().hex}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([PeerPartition(topic, number, 0) for number in range(PARTITIONS)])
    read = 0
    while read < count:
        for message in consumer.consume(10_000, 1.0):
            message.key(), message.value(), message.timestamp()
            read += 1
    consumer.close()
    return read


def _aiokafka(bootstrap: str, topic: str, count: int) -> int:
    import asyncio

    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as PeerPartition

    async def consume() -> int:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest",
            max_partition_fetch_bytes=8 << 20, fetch_max_bytes=16 << 20,
        )  # fmt: skip
        await consumer.start()
        try:
            consumer.assign([PeerPartition(topic, number) for number in range(PARTITIONS)])
            await consumer.seek_to_beginning()
            read = 0
            while read < count:
                for records in (await consumer.getmany(timeout_ms=1000, max_records=10_000)).values():
                    for record in records:
                        record.key, record.value, record.timestamp  # noqa: B018 -- reading is the work
                    read += len(records)
            return read
        finally:
            await consumer.stop()

    return asyncio.run(consume())


def _kafka_python(bootstrap: str, topic: str, count: int) -> int:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as PeerPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest",
        max_partition_fetch_bytes=8 << 20, fetch_max_bytes=16 << 20,
    )  # fmt: skip
    consumer.assign([PeerPartition(topic, number) for number in range(PARTITIONS)])
    consumer.seek_to_beginning()
    read = 0
    while read < count:
        for records in consumer.poll(timeout_ms=1000, max_records=10_000).values():
            for record in records:
                record.key, record.value, record.timestamp  # noqa: B018 -- reading is the work
            read += len(records)
    consumer.close()
    return read


# --- import, join, first record: each in a fresh interpreter

_FIRST_RECORD = {
    OURS: """
from kohort import Consumer
with Consumer(B, group=G, assignors=["range"], auto_offset_reset="earliest") as consumer:
    consumer.subscribe([T])
    first = next(iter(consumer))[0].value
    done()
""",
    "confluent-kafka": """
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": B, "group.id": G, "auto.offset.reset": "earliest"})
consumer.subscribe([T])
while (message := consumer.poll(1.0)) is None: pass
first = message.value()
done()
consumer.close()
""",
    "aiokafka": """
import asyncio
from aiokafka import AIOKafkaConsumer
async def main():
    consumer = AIOKafkaConsumer(T, bootstrap_servers=B, group_id=G, auto_offset_reset="earliest")
    await consumer.start()
    (await consumer.getone()).value
    done()
    await consumer.stop()
asyncio.run(main())
""",
    "kafka-python": """
from kafka import KafkaConsumer
consumer = KafkaConsumer(T, bootstrap_servers=B, group_id=G, auto_offset_reset="earliest")
next(consumer).value
done()
consumer.close()
""",
}
_PROLOGUE = """
import sys, time
start = time.perf_counter()
B, T, G = sys.argv[1:4]
def done(): print(time.perf_counter() - start, flush=True)
"""


def _startup(report: Report, bootstrap: str) -> None:
    from confluent_kafka import Producer

    from kohort.testing.topics import create_topic

    topic = f"bench-start-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, topic, partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"first")
    producer.flush()
    for who, program in _FIRST_RECORD.items():
        seconds = min(_first_record(program, bootstrap, topic) for _ in range(5))
        report.add("import + join + first record", who, seconds, "s")


def _first_record(program: str, bootstrap: str, topic: str) -> float:
    group = f"bench-{uuid.uuid4().hex}"
    command = [sys.executable, "-c", _PROLOGUE + program, bootstrap, topic, group]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return float(out.split()[0])
