"""Polls, commits and rebalances as OpenTelemetry's own SDK gets them, linked with the spans that records name."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from kohort import AsyncConsumer, Consumer, TopicPartition
from kohort.common import KohortError
from kohort.coordinator_client.consumer_settings import GroupProtocol
from kohort.coordinator_client.errors import NoOffset
from kohort.coordinator_client.exporting.spans import MOST_LINKS, ConsumerSpans, links_of
from kohort.fastpath import RecordColumns
from kohort.network.errors import CommitFailed
from kohort.testing import FakeBroker
from tests.coordinator_client.consumer_helpers import numbers, poll_until, produce, read
from tests.support.broker_selection import SelectedBroker

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01".encode()


class Reported:
    """A tracer, and the calls that it received."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = provider.get_tracer("tests")

    def spans(self, prefix: str = "") -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith(prefix)]

    def one(self, prefix: str) -> ReadableSpan:
        (span,) = self.spans(prefix)
        return span


@pytest.fixture
def reported() -> Reported:
    return Reported()


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def lasted(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time, span.end_time


def written(broker: FakeBroker, *headers: list[tuple[str, bytes]], partition: int = 0) -> None:
    broker.produce("t", partition, [(None, b"v", None, one) for one in headers])


def test_a_poll_that_brings_records_is_a_span_linked_with_those_that_they_name(reported: Reported) -> None:
    other = f"00-{TRACE}-{'1' * 16}-01".encode()
    with FakeBroker(topics={"t": 2}) as broker, Consumer(broker.bootstrap, client_id="app", group="g") as consumer:
        written(
            broker, [("traceparent", PARENT)], [], [("TraceParent", other), ("x", b"\xff")], [("traceparent", PARENT)]
        )
        ConsumerSpans(reported.tracer, consumer)
        consumer.assign([])
        assert consumer.poll(0.01) == []
        consumer.assign({TopicPartition("t", 0): 0})
        with reported.tracer.start_as_current_span("loop") as loop:
            records = read(consumer, 4)
        span = reported.one("poll")
        assert span.name == "poll t"
        assert span.kind is SpanKind.CLIENT
        assert facts(span) == {
            "messaging.system": "kafka",
            "messaging.client.id": "app",
            "messaging.consumer.group.name": "g",
            "messaging.operation.name": "poll",
            "messaging.operation.type": "receive",
            "messaging.destination.name": "t",
            "messaging.destination.partition.id": "0",
            "messaging.batch.message_count": 4,
        }
        assert span.parent == loop.get_span_context()  # and not that of the records' producer
        assert [f"{link.context.span_id:016x}" for link in span.links] == [SPAN, "1" * 16]
        assert {f"{link.context.trace_id:032x}" for link in span.links} == {TRACE}
        assert span.status.status_code is StatusCode.UNSET
        began, ended = lasted(span)
        assert began <= ended
        assert [len(links_of(record)) for record in records] == [1, 0, 1, 1]
        (link,) = links_of(records[2])
        assert dict(link.attributes or {}) == {
            "messaging.destination.name": "t",
            "messaging.destination.partition.id": "0",
            "messaging.kafka.offset": 2,
        }


@pytest.mark.parametrize(
    "header", [b"", b"00-zz-zz-01", PARENT[:-3], b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01", b"\xff"]
)
def test_a_header_that_names_no_span_links_nothing(header: bytes, reported: Reported) -> None:
    with FakeBroker(topics={"t": 1}) as broker, Consumer(broker.bootstrap) as consumer:
        written(broker, [("traceparent", header)])
        ConsumerSpans(reported.tracer, consumer)
        consumer.assign({TopicPartition("t", 0): 0})
        (record,) = read(consumer, 1)
        assert links_of(record) == []
        span = reported.one("poll")
        assert not span.links
        assert facts(span)["messaging.kafka.offset"] == 0
        assert "messaging.consumer.group.name" not in facts(span)


def test_links_are_as_many_as_an_sdk_keeps_and_each_span_is_linked_once(reported: Reported) -> None:
    parents = [f"00-{TRACE}-{number:016x}-01".encode() for number in range(1, MOST_LINKS + 50)]
    with FakeBroker(topics={"t": 1}) as broker, Consumer(broker.bootstrap) as consumer:
        written(broker, *([("traceparent", one)] for one in parents))
        ConsumerSpans(reported.tracer, consumer)
        consumer.assign({TopicPartition("t", 0): 0})
        read(consumer, len(parents))
        assert [link.context.span_id for link in reported.one("poll").links] == list(range(1, MOST_LINKS + 1))


def test_records_of_several_topics_are_one_span_that_names_none(reported: Reported) -> None:
    with FakeBroker(topics={"t": 1, "u": 1}) as broker, Consumer(broker.bootstrap) as consumer:
        written(broker, [])
        broker.produce("u", 0, [(None, b"v")])
        spans = ConsumerSpans(reported.tracer, consumer)
        consumer.assign({TopicPartition("t", 0): 0, TopicPartition("u", 0): 0})
        slices: list[RecordColumns] = []
        while len(slices) < 2:
            slices += consumer.poll(0.2)
        before = len(reported.spans("poll"))
        spans.poll_began(0.0)
        spans.poll_brought(slices)
        span = reported.spans("poll")[before]
        assert span.name == "poll"
        assert "messaging.destination.name" not in facts(span)
        assert "messaging.destination.partition.id" not in facts(span)
        assert facts(span)["messaging.batch.message_count"] == 2


def test_a_poll_that_raises_is_a_span_that_failed(reported: Reported) -> None:
    with (
        FakeBroker(topics={"t": 1}) as broker,
        Consumer(broker.bootstrap, group="g", auto_offset_reset="none") as consumer,
    ):
        ConsumerSpans(reported.tracer, consumer)
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(NoOffset):
            poll_until(consumer, lambda: False)
        span = reported.one("poll")
        assert span.name == "poll t"
        assert span.status.status_code is StatusCode.ERROR
        assert facts(span)["error.type"] == "NoOffset"
        consumer.wakeup()
        with pytest.raises(KohortError):
            consumer.poll(5)
        assert len(reported.spans("poll")) == 1  # a wake-up of a poll is no error to record


def test_each_commit_is_a_span_where_it_was_made(reported: Reported) -> None:
    with FakeBroker(topics={"t": 2}) as broker, Consumer(broker.bootstrap, group="g", client_id="app") as consumer:
        consumer.assign({TopicPartition("t", 0): 0, TopicPartition("t", 1): 0})
        consumer.commit({TopicPartition("t", 0): 1})  # before spans were requested
        ConsumerSpans(reported.tracer, consumer)
        with reported.tracer.start_as_current_span("process t") as process:
            consumer.commit({TopicPartition("t", 0): 2})
        span = reported.one("commit")
        assert span.name == "commit t"
        assert span.kind is SpanKind.CLIENT
        assert span.parent == process.get_span_context()
        assert facts(span) == {
            "messaging.system": "kafka",
            "messaging.client.id": "app",
            "messaging.consumer.group.name": "g",
            "messaging.operation.name": "commit",
            "messaging.operation.type": "settle",
            "messaging.destination.name": "t",
            "messaging.destination.partition.id": "0",
            "messaging.kafka.offset": 2,
            "kohort.generation": -1,
        }
        began, ended = lasted(span)
        assert began <= ended
        done: list[Exception | None] = []
        consumer.commit_async(
            {TopicPartition("t", 1): 3, TopicPartition("t", 0): 3}, lambda _to, error: done.append(error)
        )
        poll_until(consumer, lambda: bool(done))
        later = reported.spans("commit")[1]
        assert later.parent is None
        assert "messaging.destination.partition.id" not in facts(later)
        with pytest.raises(KohortError):
            consumer.commit({TopicPartition("none", 0): 1}, timeout_s=0.5)
        failed = reported.spans("commit")[2]
        assert failed.name == "commit none"
        assert failed.status.status_code is StatusCode.ERROR
        assert failed.status.description
        assert facts(failed)["error.type"]
    assert len(reported.spans("commit")) == 3


def test_a_commit_of_a_partition_that_is_gone_failed_without_being_sent(reported: Reported) -> None:
    with FakeBroker(topics={"t": 1}) as broker, Consumer(broker.bootstrap, group="g") as consumer:
        ConsumerSpans(reported.tracer, consumer)
        consumer.subscribe(["t"])
        poll_until(consumer, lambda: len(consumer.assignment) == 1)
        with pytest.raises(CommitFailed):
            consumer.commit({TopicPartition("other", 0): 1})
        span = reported.one("commit")
        began, ended = lasted(span)
        assert began == ended
        assert facts(span)["error.type"] == "CommitFailed"


def test_a_rebalance_is_a_trace_of_its_own_with_phases_as_events(reported: Reported) -> None:
    with FakeBroker(topics={"t": 2}) as broker, Consumer(broker.bootstrap, group="g", client_id="app") as consumer:
        ConsumerSpans(reported.tracer, consumer)
        consumer.subscribe(["t"])
        with reported.tracer.start_as_current_span("loop"):
            poll_until(consumer, lambda: len(consumer.assignment) == 2 and bool(reported.spans("rebalance")))
        span = reported.one("rebalance")
        assert span.name == "rebalance g"
        assert span.parent is None
        assert span.kind is SpanKind.INTERNAL
        found = facts(span)
        assert found["messaging.system"] == "kafka"
        assert found["messaging.consumer.group.name"] == "g"
        assert "joined the group" in found["kohort.rebalance.cause"]
        assert found["kohort.rebalance.outcome"] == "stable"
        assert found["kohort.rebalance.assignor"] == "range"
        assert found["kohort.rebalance.leader"] is True
        assert found["kohort.rebalance.attempts"] >= 1
        assert found["kohort.rebalance.added"] == 2
        assert found["kohort.rebalance.lost"] == 0
        assert found["kohort.generation"] >= 1
        (rebalance,) = consumer.timeline()
        assert [event.name for event in span.events] == [phase.state.name.lower() for phase in rebalance.phases]
        assert {"joining", "syncing", "assigning"} <= {event.name for event in span.events}
        began, ended = lasted(span)
        times = [event.timestamp for event in span.events]
        assert times == sorted(times)
        assert began <= times[0]
        assert times[-1] <= ended
        durations = [dict(event.attributes or {})["kohort.phase.duration_s"] for event in span.events]
        assert sum(one for one in durations if isinstance(one, float)) == pytest.approx((ended - began) / 1e9, abs=1e-3)
        consumer.enforce_rebalance("for the test")
        poll_until(consumer, lambda: len(reported.spans("rebalance")) == 2)
        assert "for the test" in facts(reported.spans("rebalance")[1])["kohort.rebalance.cause"]


def test_what_was_before_is_not_reported_and_the_last_commit_is(reported: Reported) -> None:
    with FakeBroker(topics={"t": 1}) as broker:
        consumer = Consumer(broker.bootstrap, group="g", enable_auto_commit=True, auto_offset_reset="earliest")
        try:
            written(broker, [])
            consumer.subscribe(["t"])
            read(consumer, 1)
            ConsumerSpans(reported.tracer, consumer)
            assert consumer.poll(0.01) == []
            assert reported.spans() == []
        finally:
            consumer.close()
        assert facts(reported.one("commit"))["messaging.kafka.offset"] == 1


def test_the_asynchronous_consumer_is_reported_too(reported: Reported) -> None:
    async def read_one(broker: FakeBroker) -> None:
        async with AsyncConsumer(broker.bootstrap, group="g") as consumer:
            ConsumerSpans(reported.tracer, consumer)
            consumer.assign({TopicPartition("t", 0): 0})
            with reported.tracer.start_as_current_span("loop"):
                while not await consumer.poll(1.0):
                    pass
                await consumer.commit()

    with FakeBroker(topics={"t": 1}) as broker:
        written(broker, [("traceparent", PARENT)])
        asyncio.run(asyncio.wait_for(read_one(broker), 40))
    loop = reported.one("loop")
    for prefix in ("poll", "commit"):
        span = reported.one(prefix)
        assert span.parent == loop.context
    assert len(reported.one("poll").links) == 1


@pytest.mark.broker
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_on_a_real_broker_with_headers_of_another_producer(
    protocol: GroupProtocol, reported: Reported, broker: SelectedBroker, topic: str, unique: Callable[[str], str]
) -> None:
    from confluent_kafka import Producer

    if protocol == "consumer" and int(broker.version.partition(".")[0]) < 4:
        pytest.skip("needs a broker that speaks KIP-848")
    writer = Producer({"bootstrap.servers": broker.bootstrap})
    writer.produce(topic, b"1", partition=0, headers={"traceparent": PARENT, "tracestate": b"k=v"})
    assert writer.flush(120) == 0
    produce(broker.bootstrap, topic, numbers(2, 1), partition=1)
    group = unique("group")
    with Consumer(broker.bootstrap, group=group, protocol=protocol, auto_offset_reset="earliest") as consumer:
        ConsumerSpans(reported.tracer, consumer)
        consumer.subscribe([topic])
        read(consumer, 2)
        consumer.commit()
        links = [link for span in reported.spans(f"poll {topic}") for link in span.links]
        assert [f"{link.context.trace_id:032x}-{link.context.span_id:016x}" for link in links] == [f"{TRACE}-{SPAN}"]
        assert links[0].context.trace_state["k"] == "v"
        assert reported.one(f"commit {topic}").status.status_code is StatusCode.UNSET
        assert reported.spans(f"rebalance {group}")[0].events
