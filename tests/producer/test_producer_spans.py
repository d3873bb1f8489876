"""Spans of sent records: their headers, outcomes, parents, and the links of consumers to them."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from kohort import AsyncProducer, Consumer, Producer, TopicPartition
from kohort.coordinator_client.exporting.spans import links_of
from kohort.fastpath import Record
from kohort.producer import RecordTooLarge
from kohort.producer._open_batch import Delivery
from kohort.producer.spans import ProducerSpans
from kohort.protocol.apis.produce import ProduceResponse
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter
from tests.interrupts import Interrupt, elsewhere, every_point_within
from tests.interrupts import Tracer as Interrupted

LIMIT_S = 60.0
INVALID_RECORD = 87


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker(topics={"t": 1}) as broker:
        yield broker


@pytest.fixture
def seen() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracer(seen: InMemorySpanExporter) -> Tracer:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(seen))
    return provider.get_tracer("test")


def records(fake: FakeBroker, count: int) -> list[Record]:
    found: list[Record] = []
    with Consumer(fake.bootstrap) as consumer:
        consumer.assign({TopicPartition("t", 0): 0})
        while len(found) < count:
            found += [record for columns in consumer.poll(1.0) for record in columns]
    return found


def ended(seen: InMemorySpanExporter) -> list[ReadableSpan]:
    return list(seen.get_finished_spans())


def context_of(span: ReadableSpan) -> Any:
    assert span.context is not None
    return span.context


def test_a_record_has_a_span_to_which_its_consumer_links(
    fake: FakeBroker, seen: InMemorySpanExporter, tracer: Tracer
) -> None:
    with Producer(fake.bootstrap, client_id="me") as producer:
        ProducerSpans(tracer, producer)
        with tracer.start_as_current_span("request"):
            producer.send("t", b"1", headers={"a": b"x", "traceparent": b"of another"})
            producer.send("t", None, b"k")
        producer.flush(LIMIT_S)
        request, first, second = ended(seen)
    assert (first.name, first.kind, first.status.status_code) == ("send t", SpanKind.PRODUCER, StatusCode.UNSET)
    assert first.attributes == {
        "messaging.system": "kafka",
        "messaging.client.id": "me",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }
    assert second.attributes is not None
    assert second.attributes["messaging.kafka.message.tombstone"] is True
    assert second.attributes["messaging.kafka.offset"] == 1
    assert first.parent is not None
    assert first.parent.span_id == context_of(request).span_id
    one, two = records(fake, 2)
    assert [name for name, _ in one.headers] == ["a", "traceparent"]
    for record, span in ((one, first), (two, second)):
        (link,) = links_of(record)
        assert (link.context.trace_id, link.context.span_id) == (context_of(span).trace_id, context_of(span).span_id)


def test_the_error_of_a_record_is_that_of_its_span(
    fake: FakeBroker, seen: InMemorySpanExporter, tracer: Tracer
) -> None:
    def refused(response: ProduceResponse) -> ProduceResponse:
        (topic,) = response.responses
        (one,) = topic.partition_responses
        return ProduceResponse(
            responses=(topic._replace(partition_responses=(one._replace(error_code=INVALID_RECORD, base_offset=-1),)),)
        )

    with Producer(fake.bootstrap, max_request_bytes=1_000, batch_bytes=1_000) as producer:
        ProducerSpans(tracer, producer)
        with pytest.raises(RecordTooLarge):
            producer.send("t", b"x" * 2_000)
        fake.control("Produce", lambda _call: Alter(refused), times=1)
        delivery = producer.send("t", b"x")
        assert delivery.exception(LIMIT_S) is not None
        assert len(ended(seen)) == 1
        producer.poll()  # sees the outcome
        too_large, failed = ended(seen)
        producer.send("t", b"y", partition=0).result(LIMIT_S)
    assert (too_large.status.status_code, failed.status.status_code) == (StatusCode.ERROR, StatusCode.ERROR)
    assert too_large.attributes is not None
    assert failed.attributes is not None
    assert (too_large.attributes["error.type"], failed.attributes["error.type"]) == ("RecordTooLarge", "BrokerError")
    assert "messaging.kafka.offset" not in failed.attributes
    assert len(ended(seen)) == 3  # close() sees the rest


@pytest.mark.parametrize("headers", [{1: b"x"}, {None: b"x"}, {"\ud800": b"x"}, [("a", b"x", b"y")], 5, "ab"])
def test_wrong_headers_raise_the_error_of_a_producer_without_spans(
    headers: Any, fake: FakeBroker, seen: InMemorySpanExporter, tracer: Tracer
) -> None:
    with Producer(fake.bootstrap) as plain, Producer(fake.bootstrap) as producer:
        with pytest.raises((TypeError, ValueError)) as expected:
            plain.send("t", b"1", headers=headers)
        ProducerSpans(tracer, producer)
        with pytest.raises(expected.type) as raised:
            producer.send("t", b"1", headers=headers)
        assert str(raised.value) == str(expected.value)
        (span,) = ended(seen)
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, str(expected.value))


def test_names_in_bytes_are_replaced_by_those_of_the_span_too(
    fake: FakeBroker, seen: InMemorySpanExporter, tracer: Tracer
) -> None:
    names: list[Any] = [b"traceparent", bytearray(b"traceparent"), b"a"]
    with Producer(fake.bootstrap) as producer:
        ProducerSpans(tracer, producer)
        producer.send("t", b"1", headers=[(name, b"x") for name in names])
        producer.flush(LIMIT_S)
    (record,) = records(fake, 1)
    assert [name for name, _ in record.headers] == ["a", "traceparent"]
    assert links_of(record)[0].context.span_id == context_of(ended(seen)[0]).span_id


def test_failures_are_still_raised_by_flush(fake: FakeBroker, tracer: Tracer) -> None:
    """Spans look at outcomes, and do not take them from the caller."""
    with Producer(fake.bootstrap, delivery_timeout_ms=1_000, request_timeout_ms=500, linger_ms=0) as producer:
        ProducerSpans(tracer, producer)
        producer.send("t", b"1").result(LIMIT_S)
        fake.stop_node(1)
        producer.send("t", b"2")
        with pytest.raises(Exception, match="not acknowledged"):
            producer.flush(LIMIT_S)


def test_spans_end_in_asyncio_and_with_a_partitioner(
    fake: FakeBroker, seen: InMemorySpanExporter, tracer: Tracer
) -> None:
    async def produce() -> None:
        async with AsyncProducer(fake.bootstrap, partitioner=lambda *_: 0) as producer:
            ProducerSpans(tracer, producer)
            await (await producer.send("t", b"1"))
            await asyncio.sleep(0)
            assert len(ended(seen)) == 1
            await producer.send("t", b"2")

    asyncio.run(produce())
    assert [span.attributes["messaging.kafka.offset"] for span in ended(seen) if span.attributes] == [0, 1]


def test_rows_with_headers_have_spans_and_others_none(
    fake: FakeBroker, seen: InMemorySpanExporter, tracer: Tracer
) -> None:
    with Producer(fake.bootstrap) as producer:
        ProducerSpans(tracer, producer)
        producer.send_arrow("t", pa.table({"value": [b"1", b"2"]})).result(LIMIT_S)
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        headers = pa.array([[{"key": "a", "value": b"b"}]], kind)
        producer.send_arrow("t", pa.table({"value": [b"3"], "headers": headers})).result(LIMIT_S)
    assert len(ended(seen)) == 1
    assert [len(record.headers) for record in records(fake, 3)] == [0, 0, 2]


def test_rows_with_headers_of_a_task_have_spans_too(
    fake: FakeBroker, seen: InMemorySpanExporter, tracer: Tracer
) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    table = pa.table({"value": [b"1"], "headers": pa.array([[{"key": "a", "value": b"b"}]], kind)})

    async def produce() -> None:
        async with AsyncProducer(fake.bootstrap) as producer:
            ProducerSpans(tracer, producer)
            with tracer.start_as_current_span("request"):
                await (await producer.send_arrow("t", table))

    asyncio.run(produce())
    sent, request = sorted(ended(seen), key=lambda span: span.name, reverse=True)
    assert (sent.name, request.name) == ("send t", "request")
    assert sent.parent is not None
    assert sent.parent.span_id == context_of(request).span_id
    (record,) = records(fake, 1)
    assert [name for name, _ in record.headers] == ["a", "traceparent"]


def test_spans_keep_no_producer_alive(fake: FakeBroker, tracer: Tracer) -> None:
    producer = Producer(fake.bootstrap)
    spans = ProducerSpans(tracer, producer)
    producer.send("t", b"1").result(LIMIT_S)
    producer.close()
    gc.collect()
    gc.disable()
    try:
        gone = weakref.ref(producer)
        del producer
        assert gone() is None
    finally:
        gc.enable()
    assert spans is not None


class LateDelivery:
    """A delivery that is settled once `is_done` is set."""

    def __init__(self, delivery: Delivery, *, is_done: bool) -> None:
        self.batch, self.index, self.is_done = delivery.batch, delivery.index, is_done

    def done(self) -> bool:
        return self.is_done


def test_an_interrupt_loses_no_span(fake: FakeBroker, seen: InMemorySpanExporter, tracer: Tracer) -> None:
    with Producer(fake.bootstrap) as producer:
        delivery = producer.send("t", b"1")
        delivery.result(LIMIT_S)
        spans = ProducerSpans(tracer, producer)

        def script(interrupted: Interrupted) -> None:
            seen.clear()
            waiting: list[Any] = [LateDelivery(delivery, is_done=index % 2 == 1) for index in range(5)]
            spans._unsettled.extend((one, tracer.start_span(str(index))) for index, one in enumerate(waiting))
            with suppress(Interrupt), interrupted.on():
                spans.look()
            for one in waiting:
                one.is_done = True
            elsewhere(spans.look)
            assert sorted(span.name for span in ended(seen)) == list("01234")
            assert not spans._unsettled

        every_point_within(script)
