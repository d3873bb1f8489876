"""Seek and resume: the time until the record, while the consumer waits at the end of its other partitions.

One broker has a topic of four partitions with 1,000 records each. A consumer has read all of them, and polls for 50 to
500 ms. Then one partition is moved to one of its last records, or a paused one that was moved there is resumed. The
time is that from the call to the record. Each client has its default settings: a broker holds a Fetch request for
500 ms. Each figure is the median of five alternating runs of ten moves.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from benchmarks.consume import filled, running_broker
from benchmarks.peers import PARTITIONS
from benchmarks.report import OURS, Report
from kohort import Consumer, TopicPartition

RECORDS = 1_000  # of each partition
RUNS, MOVES, SEED = 5, 10, 1
IDLE_S = (0.05, 0.5)
POLL_S = 0.1


class Client(NamedTuple):
    """Functions of a client that has all partitions assigned at their end. Each of the first three has a partition.

    `seek` also has an offset. `poll` returns the number of records that came within a time in seconds.
    """

    seek: Callable[[int, int], object]
    pause: Callable[[int], object]
    resume: Callable[[int], object]
    poll: Callable[[float], int]


@contextmanager
def kohort(bootstrap: str, topic: str) -> Iterator[Client]:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Consumer(bootstrap) as consumer:
        consumer.assign(dict.fromkeys(places, RECORDS))
        yield Client(
            lambda partition, offset: consumer.seek(places[partition], offset),
            lambda partition: consumer.pause([places[partition]]),
            lambda partition: consumer.resume([places[partition]]),
            lambda limit_s: sum(map(len, consumer.poll(limit_s))),
        )


@contextmanager
def confluent_kafka(bootstrap: str, topic: str) -> Iterator[Client]:
    from confluent_kafka import Consumer as Librdkafka
    from confluent_kafka import TopicPartition as Place

    consumer = Librdkafka({"bootstrap.servers": bootstrap, "group.id": "seek", "enable.auto.commit": False})
    consumer.assign([Place(topic, number, RECORDS) for number in range(PARTITIONS)])
    yield Client(
        lambda partition, offset: consumer.seek(Place(topic, partition, offset)),
        lambda partition: consumer.pause([Place(topic, partition)]),
        lambda partition: consumer.resume([Place(topic, partition)]),
        lambda limit_s: int(consumer.poll(limit_s) is not None),
    )
    consumer.close()


@contextmanager
def aiokafka(bootstrap: str, topic: str) -> Iterator[Client]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Place

    places = [Place(topic, number) for number in range(PARTITIONS)]
    with asyncio.Runner() as runner:

        async def started() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
            await consumer.start()
            consumer.assign(places)
            for place in places:
                consumer.seek(place, RECORDS)
            return consumer

        async def call(function: Callable[..., object], *arguments: object) -> None:
            function(*arguments)

        async def poll(limit_s: float) -> int:
            found = await consumer.getmany(timeout_ms=round(limit_s * 1000))
            return sum(map(len, found.values()))

        consumer = runner.run(started())
        yield Client(
            lambda partition, offset: runner.run(call(consumer.seek, places[partition], offset)),
            lambda partition: runner.run(call(consumer.pause, places[partition])),
            lambda partition: runner.run(call(consumer.resume, places[partition])),
            lambda limit_s: runner.run(poll(limit_s)),
        )
        runner.run(consumer.stop())


@contextmanager
def kafka_python(bootstrap: str, topic: str) -> Iterator[Client]:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Place

    places = [Place(topic, number) for number in range(PARTITIONS)]
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    consumer.assign(places)
    for place in places:
        consumer.seek(place, RECORDS)
    yield Client(
        lambda partition, offset: consumer.seek(places[partition], offset),
        lambda partition: consumer.pause(places[partition]),
        lambda partition: consumer.resume(places[partition]),
        lambda limit_s: sum(map(len, consumer.poll(timeout_ms=round(limit_s * 1000)).values())),
    )
    consumer.close()


CLIENTS = MappingProxyType(
    {OURS: kohort, "confluent-kafka": confluent_kafka, "aiokafka": aiokafka, "kafka-python": kafka_python}
)
WORKS = ("from a seek to the record", "from a resume to the record")


def run(report: Report) -> None:
    found: dict[tuple[str, str], list[float]] = {(work, client): [] for work in WORKS for client in CLIENTS}
    with running_broker() as bootstrap:
        topic = filled(bootstrap, "none", RECORDS * PARTITIONS)
        for number in range(RUNS):
            for name, client in CLIENTS.items():
                with client(bootstrap, topic) as reader:
                    for work, times_s in zip(WORKS, measured(reader, random.Random(SEED + number)), strict=True):
                        found[work, name].append(median(times_s) * 1000)
        for (work, name), medians in found.items():
            report.add(work, name, median(medians), "ms", f"{min(medians):.1f} to {max(medians):.1f}")


def measured(reader: Client, chance: random.Random) -> tuple[list[float], list[float]]:
    """The times (s) of seeks and of resumes."""
    seeks, resumes = [], []
    for number in range(MOVES):
        partition = number % PARTITIONS
        idle(reader, chance)
        offset = RECORDS - chance.randint(1, 10)
        seeks.append(timed(reader, RECORDS - offset, partial(reader.seek, partition, offset)))
        reader.pause(partition)
        reader.seek(partition, offset)
        idle(reader, chance)
        resumes.append(timed(reader, RECORDS - offset, partial(reader.resume, partition)))
    return seeks, resumes


def idle(reader: Client, chance: random.Random) -> None:
    until = time.perf_counter() + chance.uniform(*IDLE_S)
    while (rest_s := until - time.perf_counter()) > 0:
        assert not reader.poll(rest_s), "all records were read"


def timed(reader: Client, records: int, call: Callable[[], object]) -> float:
    """Seconds from the call to the first record. The others are read after that."""
    started = time.perf_counter()
    call()
    while not (read := reader.poll(POLL_S)):
        pass
    took_s = time.perf_counter() - started
    while read < records:
        read += reader.poll(POLL_S)
    return took_s
