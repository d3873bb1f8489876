"""Producers that are not kohort's fill the topic: Kafka's Java one, and librdkafka where it is installed.

Both partition by murmur2 of the key, so that all records of an aircraft are in one partition.
"""

import importlib.util
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

from kohort.cli.demo import DemoFailed
from kohort.cli.demo.flights import FlightEvent
from kohort.common.named_tuple import NamedTuple
from kohort.testing import jars
from kohort.testing.jdk import java

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PROGRESS_EVERY = 100_000
FLUSH_TIMEOUT_S = 60.0
_SOURCE = Path(__file__).with_name("FlightProducer.java")
_NULL = "\\N"


class FilledChunk(NamedTuple):
    """Records in a row, all by one producer with one codec."""

    producer: str
    codec: str
    records: int


def installed() -> tuple[str, ...]:
    """Names of the producers at hand. Java's is always there, because the broker needs Java too."""
    return ("java", "librdkafka") if importlib.util.find_spec("confluent_kafka") else ("java",)


def chunks(total: int, producers: Sequence[str]) -> tuple[FilledChunk, ...]:
    """Split `total` records over every pair of producer and codec, as evenly as whole numbers allow."""
    pairs = [(producer, codec) for codec in CODECS for producer in producers]
    size, over = divmod(total, len(pairs))
    return tuple(FilledChunk(*pair, size + (index < over)) for index, pair in enumerate(pairs))


def fill(
    bootstrap: str,
    topic: str,
    events: Iterable[FlightEvent],
    plan: Sequence[FilledChunk],
    on_progress: Callable[[str], None],
) -> float:
    """Write the plan's records, producer by producer. Returns the time until the last acknowledgement.

    Raises DemoFailed if a producer fails, or acknowledges another number of records than it was given.
    """
    started = time.monotonic()
    numbered = enumerate(events, 1)

    def records(mine: Iterable[FilledChunk]) -> Iterator[tuple[str, FlightEvent]]:
        for chunk in mine:
            for number, event in islice(numbered, chunk.records):
                yield chunk.codec, event
                if number % PROGRESS_EVERY == 0:
                    on_progress(f"  writing ({chunk.producer}, {chunk.codec}): {number:,}")

    for name in dict.fromkeys(chunk.producer for chunk in plan):
        mine = [chunk for chunk in plan if chunk.producer == name and chunk.records]
        acknowledged = WRITERS[name](bootstrap, topic, records(mine))
        if acknowledged != (wanted := {chunk.codec: chunk.records for chunk in mine}):
            raise DemoFailed(f"it acknowledged {acknowledged} of {wanted}", producer=name)
    return time.monotonic() - started


def write_by_java(bootstrap: str, topic: str, records: Iterable[tuple[str, FlightEvent]]) -> dict[str, int]:
    """Write (codec, event) pairs by a JVM that reads a pipe. Returns the acknowledged records by codec."""
    classpath = os.pathsep.join(str(jar) for jar in jars.clients())
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    # One source file needs no build: java compiles it in memory. C1 only, because the program lives for seconds.
    options = ("-Xmx512m", "-XX:TieredStopAtLevel=1", quiet, "-cp", classpath, str(_SOURCE))
    command, pipe = (str(java()), *options, bootstrap, topic), subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, encoding="utf-8")
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):  # it has ended, and its errors say why
            for codec, event in records:
                cells = (event.key, event.value, *(text for _, text in event.headers))
                texts = (_NULL if text is None else text for text in cells)
                process.stdin.write("\t".join((codec, str(event.timestamp_ms), *texts)) + "\n")
        out, errors = process.communicate()
    finally:
        process.kill()
        process.communicate()
    if process.returncode:
        lines = [line for line in errors.splitlines() if line.strip()]
        cause = [line for line in lines if line.startswith("Caused by:")] or lines[:1] or ["it printed no error"]
        hint = "this is a JRE; install the JDK of its version (`apt-get install openjdk-17-jdk-headless` for 17)"
        raise DemoFailed(
            f"the Java program could not produce: {cause[-1].removeprefix('Caused by: ')}",
            hint=hint if "jdk.compiler" in errors else None,
            producer="java",
            bootstrap=bootstrap,
        )
    return {codec: int(count) for codec, count in map(str.split, out.splitlines())}


def write_by_librdkafka(bootstrap: str, topic: str, records: Iterable[tuple[str, FlightEvent]]) -> dict[str, int]:
    """Write (codec, event) pairs by confluent-kafka. Returns the acknowledged records by codec."""
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": bootstrap,
        "partitioner": "murmur2_random",
        "enable.idempotence": True,
        "linger.ms": 20,
        "queue.buffering.max.messages": 1_000_000,
        "message.timeout.ms": 60_000,
    }
    producers = {codec: Producer(settings | {"compression.type": codec}) for codec in CODECS}
    acknowledged, errors = Counter[str](), list[str]()

    def delivered(codec: str, error: object, _message: object) -> None:
        if error is None:
            acknowledged[codec] += 1
        else:
            errors.append(str(error))

    for codec, event in records:
        about = {"timestamp": event.timestamp_ms, "headers": list(event.headers)}
        producers[codec].produce(topic, event.value, event.key, on_delivery=partial(delivered, codec), **about)
        producers[codec].poll(0)
    left = sum(producer.flush(FLUSH_TIMEOUT_S) for producer in producers.values())
    if left or errors:
        errors.append(f"records were not acknowledged within {FLUSH_TIMEOUT_S:g} s")
        raise DemoFailed(errors[0], producer="librdkafka", records=left or len(errors) - 1)
    return dict(acknowledged)


WRITERS = {"java": write_by_java, "librdkafka": write_by_librdkafka}
