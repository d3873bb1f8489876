"""Polls and commits of a share consumer as OpenTelemetry's own SDK gets them."""

import asyncio
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from kohort import AsyncShareConsumer
from kohort.network.errors import IllegalState
from kohort.protocol.errors import ErrorCode
from kohort.share_consumer.spans import ShareConsumerSpans
from kohort.testing import FakeBroker
from tests.coordinator_client.exporting.test_spans import PARENT, SPAN, Reported, facts
from tests.share_consumer.test_share_consumer import GROUP, PATIENCE_S, TOPIC, member, next_batch

COMMON = {"messaging.system": "kafka", "messaging.client.id": "me", "messaging.consumer.group.name": GROUP}


@pytest.fixture
def fake() -> Any:
    with FakeBroker(topics={TOPIC: 1}) as broker:
        broker.configure_group(GROUP, {"share.auto.offset.reset": "earliest"})
        yield broker


def produce(fake: FakeBroker) -> None:
    fake.produce(TOPIC, 0, [(None, b"v", None, [("traceparent", PARENT)]), (None, b"w", None, [])])


def test_polls_with_records_and_commits_are_spans(fake: FakeBroker) -> None:
    reported = Reported()
    with member(fake, client_id="me") as consumer:
        ShareConsumerSpans(reported.tracer, consumer)
        assert consumer.poll(0) == []
        produce(fake)
        with reported.tracer.start_as_current_span("loop") as loop:
            batch = next_batch(consumer)
            consumer.acknowledge(batch, "release")
            assert consumer.commit() == {}
        again = next_batch(consumer)
        fake.fail_share_write(GROUP, TOPIC, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        consumer.acknowledge(again)
        assert consumer.commit()
    first, second = reported.spans("poll")
    assert (first.name, first.kind) == (f"poll {TOPIC}", SpanKind.CLIENT)
    assert facts(first) == COMMON | {
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.destination.name": TOPIC,
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 2,
        "kohort.delivery_count": 1,
    }
    assert first.parent == loop.get_span_context()
    assert [f"{link.context.span_id:016x}" for link in first.links] == [SPAN]
    assert facts(second)["kohort.delivery_count"] == 2
    good, bad = reported.spans("commit")
    assert facts(good) == COMMON | {
        "messaging.operation.name": "commit",
        "messaging.operation.type": "settle",
        "kohort.failed_acknowledgements": 0,
    }
    assert good.status.status_code is StatusCode.UNSET
    assert (facts(bad)["kohort.failed_acknowledgements"], facts(bad)["error.type"]) == (2, "BrokerError")
    assert bad.status.status_code is StatusCode.ERROR


def test_a_poll_that_fails_is_a_span_and_a_wakeup_is_none(fake: FakeBroker) -> None:
    from kohort.network.errors import WakeupError

    reported = Reported()
    produce(fake)
    with member(fake, acknowledgement_mode="explicit") as consumer:
        ShareConsumerSpans(reported.tracer, consumer)
        batch = next_batch(consumer)
        with pytest.raises(IllegalState):
            consumer.poll(0)
        consumer.acknowledge(batch)
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(0)
    _records, failed = reported.spans("poll")
    assert facts(failed)["error.type"] == "IllegalState"


def test_calls_of_tasks_are_spans(fake: FakeBroker) -> None:
    reported = Reported()
    produce(fake)

    async def main() -> None:
        async with AsyncShareConsumer(fake.bootstrap, group=GROUP) as consumer:
            ShareConsumerSpans(reported.tracer, consumer)
            consumer.subscribe([TOPIC])
            async for _batch in consumer:
                break
            assert await consumer.commit(PATIENCE_S) == {}

    asyncio.run(main())
    assert [span.name for span in reported.spans()] == [f"poll {TOPIC}", "commit"]
