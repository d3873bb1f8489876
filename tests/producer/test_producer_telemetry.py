"""A producer's metrics, pushed to a scripted broker (KIP-714)."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from kohort import AsyncProducer, Producer
from kohort.network.errors import OperationTimeout
from kohort.network.telemetry import otlp
from kohort.producer import ProducerClosed, ProducerFenced
from kohort.producer.producer_metrics import ProducerMetrics
from kohort.protocol.errors import BrokerError
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Call, Drop

OFFERED: dict[int | str, tuple[int, int] | None] = {71: (0, 0), 72: (0, 0)}
LIMIT_S = 60.0
SENT = "org.apache.kafka.producer.record.send.total"


@pytest.fixture
def fake() -> Any:
    with FakeBroker(topics={"t": 1}, versions=OFFERED) as fake:
        yield fake


def wanting(*wanted: str, interval_ms: int = 50) -> Callable[[Call], Alter]:
    changed = {"requested_metrics": wanted, "push_interval_ms": interval_ms, "accepted_compression_types": ()}
    return lambda _call: Alter(lambda response: response._replace(**changed))


def pushes(fake: FakeBroker) -> list[Any]:
    return [call.request for call in fake.calls_of("PushTelemetry")]


def values(push: Any) -> dict[str, float]:
    (resource,) = MetricsData.FromString(push.metrics).resource_metrics
    return {
        metric.name: point.as_double
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in (*metric.sum.data_points, *metric.gauge.data_points)
    }


def send_until(producer: Producer, reached: Callable[[], bool]) -> None:
    """Send one record after another. The time-out of the test ends it."""
    while not reached():
        producer.send("t", b"x").result(LIMIT_S)


def test_a_broker_that_requests_them_gets_javas_names_and_a_last_push(fake: FakeBroker) -> None:
    fake.control("GetTelemetrySubscriptions", wanting("*"))
    with Producer(fake.bootstrap, transactional_id="tx") as producer:
        with producer.transaction():
            send_until(producer, lambda: len(pushes(fake)) >= 2)
        table = producer.metrics()
    every = pushes(fake)
    assert [one.terminating for one in every] == [False] * (len(every) - 1) + [True]
    last = values(every[-1])
    assert sum(values(one)[SENT] for one in every) == table.record_send_total > 0  # the broker requests differences
    assert last["org.apache.kafka.producer.request.latency.avg"] > 0
    known = {
        otlp.name_of(ProducerMetrics, one) for one in ProducerMetrics.figures.values() if table[one.name] is not None
    }
    assert set(last) == known
    (resource,) = MetricsData.FromString(every[-1].metrics).resource_metrics
    labels = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert labels == {"transactional_id": "tx"}
    assert len({call.connection for call in fake.calls_of("PushTelemetry")}) == 1
    assert not {call.connection for call in fake.calls_of("PushTelemetry")} & {
        call.connection for call in fake.calls_of("Produce")
    }
    assert fake.faults == []


def test_a_producer_of_asyncio_pushes_them_too(fake: FakeBroker) -> None:
    fake.control("GetTelemetrySubscriptions", wanting(SENT))

    async def produce() -> None:
        async with AsyncProducer(fake.bootstrap) as producer:
            while not pushes(fake):
                await (await producer.send("t", b"x"))

    asyncio.run(produce())
    assert pushes(fake)[-1].terminating
    assert set(values(pushes(fake)[-1])) == {SENT}


def test_a_producer_without_records_goes_on_pushing(fake: FakeBroker) -> None:
    third = threading.Event()

    def count(call: Call) -> Alter:
        if len(pushes(fake)) >= 3:
            third.set()
        return Alter(lambda response: response)

    fake.control("GetTelemetrySubscriptions", wanting("*"))
    fake.control("PushTelemetry", count)
    with Producer(fake.bootstrap) as producer:
        producer.send("t", b"x").result(LIMIT_S)
        assert third.wait(LIMIT_S)


def test_a_close_that_took_its_time_pushes_no_more(fake: FakeBroker) -> None:
    fake.control("GetTelemetrySubscriptions", wanting("*", interval_ms=600_000))
    producer = Producer(fake.bootstrap)
    send_until(producer, lambda: producer._driver.lock.run(lambda: not producer._driver.core.telemetry.ended))
    send_until(producer, lambda: fake.calls_of("GetTelemetrySubscriptions") != [])
    producer.send("t", b"x").result(LIMIT_S)
    fake.control("Produce", lambda _call: Drop())
    producer.send("t", b"x")
    with pytest.raises(OperationTimeout):
        producer.close(0.2)
    assert pushes(fake) == []


def test_a_broker_that_never_responds_holds_up_neither_records_nor_close(fake: FakeBroker) -> None:
    fake.control("GetTelemetrySubscriptions", wanting("*"))
    fake.control("PushTelemetry", lambda _call: Drop())
    producer = Producer(fake.bootstrap)
    send_until(producer, lambda: bool(pushes(fake)))
    producer.close(600)  # which it does not need
    assert len(pushes(fake)) == 1
    with pytest.raises(ProducerClosed):
        producer.send("t", b"x")


def test_what_flush_raises_is_raised_after_the_last_push(fake: FakeBroker) -> None:
    fake.control("GetTelemetrySubscriptions", wanting("*", interval_ms=3_600_000))
    producer = Producer(fake.bootstrap)
    send_until(producer, lambda: producer._handle.read(lambda core: _waits(core.telemetry)))
    invalid = 87  # INVALID_RECORD
    fake.control("Produce", lambda _call: Alter(lambda response: _refused(response, invalid)))
    producer.send("t", b"x")
    with pytest.raises(BrokerError, match="INVALID_RECORD"):
        producer.close(LIMIT_S)
    (push,) = pushes(fake)
    assert push.terminating
    assert values(push)["org.apache.kafka.producer.record.error.total"] == 1
    producer.close()


def _waits(reporter: Any) -> bool:
    """True if a subscription has come, and its first push is far away."""
    return reporter._machine is not None and reporter._machine.next_poll_at() is not None


def _refused(response: Any, code: int) -> Any:
    return response._replace(
        responses=tuple(
            topic._replace(
                partition_responses=tuple(one._replace(error_code=code) for one in topic.partition_responses)
            )
            for topic in response.responses
        )
    )


def test_a_fenced_producer_closes_at_once(fake: FakeBroker) -> None:
    fake.control("GetTelemetrySubscriptions", wanting("*", interval_ms=3_600_000))
    old = Producer(fake.bootstrap, transactional_id="tx")
    with old.transaction():
        send_until(old, lambda: old._handle.read(lambda core: _waits(core.telemetry)))
    with Producer(fake.bootstrap, transactional_id="tx") as new:
        new.begin()
        with pytest.raises(ProducerFenced), old.transaction():
            old.send("t", b"x")
        old.close(600)
        new.abort()


@pytest.mark.parametrize(("offered", "push"), [(OFFERED, False), ({}, True)], ids=["switched off", "not offered"])
def test_off_or_not_offered_nothing_is_requested_and_nothing_loaded(offered: dict[int | str, Any], push: bool) -> None:
    code = f"""
import sys
from kohort import Producer
from kohort.testing import FakeBroker
with FakeBroker(topics={{"t": 1}}, versions={offered!r}) as fake:
    with Producer(fake.bootstrap, enable_metrics_push={push}) as producer:
        producer.send("t", b"x").result(60)
    print(sum("Telemetry" in call.api for call in fake.calls))
needless = ("telemetry_state", "otlp", "producer_metrics", "exporting")
print([name for name in sys.modules if name.startswith("opentelemetry") or name.split(".")[-1] in needless])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "0\n[]\n"
