"""KIP-714 without a broker that has it: the payload, and a scripted broker for rare responses."""

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from kohort import Consumer, TopicPartition
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.coordinator_client.metrics.metrics_table import FIGURES, ConsumerMetrics
from kohort.fastpath.compression import CODECS
from kohort.network.telemetry import otlp
from kohort.network.telemetry.telemetry_state import TelemetrySubscription
from kohort.protocol.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from kohort.protocol.apis.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Answer, Call, Drop
from tests.coordinator_client.consumer_helpers import poll_until
from tests.network.telemetry.test_telemetry_state import subscription

OFFERED: dict[int | str, tuple[int, int] | None] = {71: (0, 0), 72: (0, 0)}


# --- what is pushed


@pytest.fixture
def seen() -> ConsumerMetrics:
    consumer = Consumer("127.0.0.1:1", group="g")
    try:
        metrics = consumer.metrics()
    finally:
        consumer.close(0.1)
    lag = {TopicPartition("t", number): number for number in range(3)}
    return replace(metrics, records_consumed_total=12, commit_latency_avg_ms=2.5, records_lag=lag, records_lag_max=2)


def packed(seen: ConsumerMetrics, **how: Any) -> bytes:
    settings: dict[str, Any] = {"wants": lambda _name: True, "about": {}, "codec": 0, "most_bytes": 1 << 20} | how
    span = settings.pop("span", otlp.OtlpSpan(1_000, 61_000, None))
    return otlp.payload(seen, span, **settings)


def unpacked(data: bytes) -> dict[str, Any]:
    (resource,) = MetricsData.FromString(data).resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


CONSUMED = "org.apache.kafka.consumer.fetch.manager.records.consumed.total"


def test_a_push_has_every_figure_that_is_known_under_javas_names_and_units(seen: ConsumerMetrics) -> None:
    metrics = unpacked(packed(seen, about={"group_id": "g"}))
    known = {otlp.name_of(ConsumerMetrics, one) for one in FIGURES.values() if seen[one.name] not in (None, {})}
    assert set(metrics) == known
    latency = metrics["org.apache.kafka.consumer.coordinator.commit.latency.avg"]
    assert (latency.unit, latency.gauge.data_points[0].as_double) == ("ms", 2.5)
    consumed = metrics[CONSUMED].sum
    assert consumed.is_monotonic
    assert consumed.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    (point,) = consumed.data_points
    assert (point.as_double, point.start_time_unix_nano, point.time_unix_nano) == (12, 10**9, 61 * 10**9)
    lag = metrics["org.apache.kafka.consumer.fetch.manager.records.lag"].gauge.data_points
    assert [({one.key: one.value.string_value for one in each.attributes}, each.as_double) for each in lag] == [
        ({"topic": "t", "partition": str(number)}, number) for number in range(3)
    ]


def test_differences_are_told_from_what_was_told_before(seen: ConsumerMetrics) -> None:
    span = otlp.OtlpSpan(1_000, 61_000, otlp.counters(replace(seen, records_consumed_total=5)))
    consumed = unpacked(packed(seen, span=span))[CONSUMED].sum
    assert consumed.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    assert consumed.data_points[0].as_double == 7


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_it_is_compressed_as_records_are(codec: int, seen: ConsumerMetrics) -> None:
    plain, small = packed(seen), packed(seen, codec=codec)
    assert len(small) < len(plain)
    buffer = bytearray(len(plain))
    view = memoryview(buffer)
    written = CODECS[codec].decompress_into(memoryview(small), view)
    assert bytes(buffer[:written]) == plain


def test_what_is_too_much_loses_its_partitions_first(seen: ConsumerMetrics) -> None:
    many = replace(seen, records_lag={TopicPartition("t", number): 1 for number in range(2_000)})
    whole = packed(many)
    less = unpacked(packed(many, most_bytes=len(whole) - 1))
    assert CONSUMED in less
    assert "org.apache.kafka.consumer.fetch.manager.records.lag" not in less
    with pytest.raises(otlp.TooLarge) as refused:
        packed(many, most_bytes=10)
    assert refused.value.place["telemetry_max_bytes"] == 10


def test_only_what_is_wanted_is_in_it(seen: ConsumerMetrics) -> None:
    wants = TelemetrySubscription.reported(subscription("org.apache.kafka.consumer.coordinator.")).wants
    names = set(unpacked(packed(seen, wants=wants)))
    assert names
    assert all(name.startswith("org.apache.kafka.consumer.coordinator.") for name in names)


# --- on a scripted broker


def wanting(*wanted: str, interval_ms: int = 50, **reported: Any) -> Callable[[Call], Alter]:
    changed = {"requested_metrics": wanted, "push_interval_ms": interval_ms, **reported}
    return lambda _call: Alter(lambda response: response._replace(**changed))


def pushes(fake: FakeBroker) -> list[PushTelemetryRequest]:
    found = [call.request for call in fake.calls_of("PushTelemetry")]
    assert all(isinstance(one, PushTelemetryRequest) for one in found)
    return found  # type: ignore[return-value]


def watched(fake: FakeBroker, **settings: Any) -> Consumer:
    consumer = Consumer(fake.bootstrap, group="g", **settings)
    consumer.subscribe(["topic"])
    return consumer


def test_a_subscription_is_followed_through_changes_to_the_close() -> None:
    with FakeBroker(topics={"topic": 1}, versions=OFFERED) as fake:
        fake.control("GetTelemetrySubscriptions", wanting("*"))
        with watched(fake) as consumer:
            poll_until(consumer, lambda: len(pushes(fake)) >= 2)
            requested = len(fake.calls_of("GetTelemetrySubscriptions"))
            unknown = PushTelemetryResponse(error_code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
            fake.control("PushTelemetry", lambda _call: Answer(unknown), times=1)
            poll_until(consumer, lambda: len(fake.calls_of("GetTelemetrySubscriptions")) > requested)
            pushed = len(pushes(fake))
            poll_until(consumer, lambda: len(pushes(fake)) > pushed)
            assert consumer.assignment == {TopicPartition("topic", 0)}
        every = pushes(fake)
        assert [one.terminating for one in every] == [False] * (len(every) - 1) + [True]
        assert {one.client_instance_id for one in every} == {every[0].client_instance_id}
        again = fake.calls_of("GetTelemetrySubscriptions")[-1].request
        assert isinstance(again, GetTelemetrySubscriptionsRequest)
        assert again.client_instance_id == every[0].client_instance_id
        assert {one.compression_type for one in every} == {4}
        assert fake.faults == []


def test_a_broker_that_never_responds_holds_up_neither_member_nor_close() -> None:
    with FakeBroker(topics={"topic": 1}, versions=OFFERED) as fake:
        fake.control("GetTelemetrySubscriptions", wanting("*"))
        fake.control("PushTelemetry", lambda _call: Drop())
        consumer = watched(fake, heartbeat_interval_ms=50)
        poll_until(consumer, lambda: bool(pushes(fake)))
        beats = len(fake.calls_of("Heartbeat"))
        poll_until(consumer, lambda: len(fake.calls_of("Heartbeat")) > beats + 3)
        pushed_by, others = fake.calls_of("PushTelemetry")[0].connection, fake.calls_of("Metadata")
        assert pushed_by not in {call.connection for call in others}
        consumer.close(timeout_s=600)  # which it does not need
        assert len(fake.calls_of("LeaveGroup")) == 1
        assert len(pushes(fake)) == 1


def test_what_the_broker_refuses_for_good_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    invalid = PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
    with FakeBroker(topics={"topic": 1}, versions=OFFERED) as fake, caplog.at_level(logging.WARNING, "kohort"):
        fake.control("GetTelemetrySubscriptions", wanting("*"))
        fake.control("PushTelemetry", lambda _call: Answer(invalid))
        with watched(fake, heartbeat_interval_ms=50) as consumer:
            poll_until(consumer, lambda: "INVALID_RECORD" in caplog.text)
            beats = len(fake.calls_of("Heartbeat"))
            poll_until(consumer, lambda: len(fake.calls_of("Heartbeat")) > beats + 10)
            assert consumer.health().healthy
        assert len(pushes(fake)) == 1
    (said,) = [text for text in caplog.messages if "no metrics are pushed" in text]
    assert said.startswith("no metrics are pushed to brokers: PushTelemetry: INVALID_RECORD")


def test_what_does_not_fit_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    with FakeBroker(topics={"topic": 1}, versions=OFFERED) as fake, caplog.at_level(logging.WARNING, "kohort"):
        fake.control("GetTelemetrySubscriptions", wanting("*", telemetry_max_bytes=20))
        with watched(fake) as consumer:
            poll_until(consumer, lambda: "no metrics are pushed" in caplog.text)
            assert consumer.health().healthy
        assert pushes(fake) == []
    assert "telemetry_max_bytes=20" in caplog.text


@pytest.mark.parametrize(("offered", "push"), [(OFFERED, False), ({}, True)], ids=["switched off", "not offered"])
def test_off_or_not_offered_nothing_is_asked_and_nothing_loaded(offered: dict[int | str, Any], push: bool) -> None:
    code = f"""
import sys
from kohort import Consumer
from kohort.testing import FakeBroker
with FakeBroker(topics={{"topic": 1}}, versions={offered!r}) as fake:
    with Consumer(fake.bootstrap, group="g", enable_metrics_push={push}) as consumer:
        consumer.subscribe(["topic"])
        while not consumer.assignment:
            consumer.poll(0.1)
    print(sum("Telemetry" in call.api for call in fake.calls))
needless = ("telemetry_state", "otlp", "metrics_table", "exporting")
print([name for name in sys.modules if name.startswith("opentelemetry") or name.split(".")[-1] in needless])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "0\n[]\n"


def test_without_the_library_one_line_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otlp, "LIBRARY", "opentelemetry_that_is_not_there.proto")
    with FakeBroker(topics={"topic": 1}, versions=OFFERED) as fake, caplog.at_level(logging.WARNING, "kohort"):
        fake.control("GetTelemetrySubscriptions", wanting("*"))
        with watched(fake, heartbeat_interval_ms=50) as consumer:
            poll_until(consumer, lambda: "kohort[opentelemetry]" in caplog.text)
            beats = len(fake.calls_of("Heartbeat"))
            poll_until(consumer, lambda: len(fake.calls_of("Heartbeat")) > beats + 3)
        assert pushes(fake) == []
        assert len(fake.calls_of("GetTelemetrySubscriptions")) == 1
    assert len([text for text in caplog.messages if "kohort[opentelemetry]" in text]) == 1


def is_idle(core: ConsumerCore) -> bool:
    """True if a subscription has come and no request is in flight."""
    machine = core.telemetry._machine
    return machine is not None and machine.next_poll_at() is not None


def test_a_close_that_waits_for_its_last_push_ends_with_its_response() -> None:
    with FakeBroker(topics={"topic": 1}, versions=OFFERED) as fake:
        fake.control("GetTelemetrySubscriptions", wanting("*", interval_ms=3_600_000))
        consumer = Consumer(fake.bootstrap)
        consumer.assign([TopicPartition("topic", 0)])  # nothing but the push is to be waited for
        poll_until(consumer, lambda: consumer._session.read(lambda core: not core.telemetry.ended))
        until = time.monotonic() + 120
        while not consumer._session.read(is_idle):
            assert time.monotonic() < until
            consumer.poll(0.02)
        consumer.close()
        (last,) = pushes(fake)
        assert last.terminating
