"""The metrics of a producer, under the names of Java's."""

import os
import subprocess
import sys
from typing import Any

import pytest

from kohort import AsyncProducer, Producer
from kohort.producer.producer_metrics import PRODUCER_FIGURES, ProducerMetrics
from kohort.testing import FakeBroker, jars
from kohort.testing.jdk import java
from tests.producer.test_producer_machine import ready

LIMIT_S = 60.0


def metrics(world: Any) -> ProducerMetrics:
    found: ProducerMetrics = world.core.metrics(world.now)
    return found


def test_records_batches_and_requests_are_measured() -> None:
    world = ready(nodes=1, partitions=1, batch_bytes=100_000, compression="lz4", linger_ms=10)
    began = world.now
    for _ in range(2):
        world.send(b"x" * 20_000, 0)
    buffered = metrics(world)
    assert buffered.buffer_total_bytes - buffered.buffer_available_bytes > 40_000
    world.now = began + 0.05
    world.turn()
    sent = metrics(world)
    assert (sent.record_send_total, sent.requests_in_flight, sent.records_per_request_avg) == (2, 1, 2.0)
    assert sent.record_queue_time_max_ms == pytest.approx(51, abs=2)
    assert sent.request_latency_avg_ms is None
    world.now += 0.2
    world.calm()
    seen = metrics(world)
    assert seen.request_latency_avg_ms == pytest.approx(200, abs=5)
    assert seen.compression_rate_avg is not None
    assert 0 < seen.compression_rate_avg < 0.05
    assert seen.batch_size_avg_bytes == seen.batch_size_max_bytes
    assert seen.batch_size_max_bytes is not None
    assert 0 < seen.batch_size_max_bytes < 1_000
    assert (seen.requests_in_flight, seen.record_error_total, seen.record_retry_total) == (0, 0, 0)
    assert seen.buffer_available_bytes == seen.buffer_total_bytes
    assert seen.produce_throttle_time_max_ms == 0
    assert seen.metadata_age_s is not None


def test_retries_failures_and_splits_are_counted() -> None:
    world = ready(nodes=1, partitions=1, batch_bytes=10_000)
    codes = iter([7])  # REQUEST_TIMED_OUT, then success
    world.code_of = lambda _place: next(codes, 0)
    world.send(b"again", 0)
    world.calm()
    seen = metrics(world)
    assert (seen.record_send_total, seen.record_retry_total, seen.record_error_total) == (2, 1, 0)
    world.most_bytes = 500
    for _ in range(4):
        world.send(b"x" * 200, 0)
    world.calm()
    assert metrics(world).batch_split_total == 1
    assert metrics(world).record_error_total == 0
    world.send(b"x" * 600, 0)
    world.calm()
    assert metrics(world).record_error_total == 1


def test_they_are_attributes_and_a_mapping_and_those_of_a_closed_producer() -> None:
    with FakeBroker(topics={"t": 1}) as fake:
        with Producer(fake.bootstrap, transactional_id="tx", client_id="me") as producer:
            seen = producer.metrics()
            assert (seen.client_id, seen.transactional_id, seen.closed) == ("me", "tx", False)
            assert list(seen) == list(PRODUCER_FIGURES)
            assert {name: getattr(seen, name) for name in seen} == dict(seen)
            with pytest.raises(KeyError):
                seen["client_id"]
        assert producer.metrics().closed


def test_a_producer_of_asyncio_has_them() -> None:
    import asyncio

    async def produce(bootstrap: str) -> ProducerMetrics:
        async with AsyncProducer(bootstrap) as producer:
            await (await producer.send("t", b"x"))
            return producer.metrics()

    with FakeBroker(topics={"t": 1}) as fake:
        seen = asyncio.run(produce(fake.bootstrap))
    assert (seen.record_send_total, seen.connection_count > 0, seen.request_total > 1) == (1, True, True)


def test_a_producer_that_is_not_watched_loads_no_table() -> None:
    code = (
        "import sys; from kohort import Producer; p = Producer('127.0.0.1:1'); p.close(0);"
        "print([m for m in sys.modules if m.endswith('producer_metrics')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_javas_names_are_in_its_jar() -> None:
    """Java's producer registers them in these classes, whose constants name them."""
    places = [str(jar) for jar in jars.clients(jars.DEFAULT_VERSION)]
    package = "org.apache.kafka.clients.producer.internals."
    classes = [f"{package}{name}" for name in ("SenderMetricsRegistry", "RecordAccumulator", "BufferPool")]
    classes += [f"{package}Sender", "org.apache.kafka.common.network.Selector$SelectorMetrics"]
    javap = java().with_name("javap")
    command = [str(javap), "-cp", os.pathsep.join(places), "-p", "-constants", "-c", *classes]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    text += "connection-creation-total connection-close-total request-total"  # composed of a stem and -total there
    missing = [
        one.java[1]
        for one in PRODUCER_FIGURES.values()
        if one.java is not None and one.java[1] not in text and one.java[1].removesuffix("-total") not in text
    ]
    assert missing == []
