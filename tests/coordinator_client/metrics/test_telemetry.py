"""KIP-714 without a broker that has it: the machine, the payload, and a scripted broker for rare responses."""

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from kohort import Consumer, TopicPartition
from kohort.coordinator_client.consumer_core import ConsumerCore
from kohort.coordinator_client.metrics import otlp
from kohort.coordinator_client.metrics.metrics_table import FIGURES, ConsumerMetrics
from kohort.coordinator_client.metrics.telemetry_state import (
    DEFAULT_INTERVAL_S,
    NO_CLIENT_INSTANCE_ID,
    SHORTEST_S,
    Push,
    Telemetry,
    TelemetryRequest,
    TelemetrySubscription,
)
from kohort.fastpath.compression import CODECS
from kohort.protocol.apis.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kohort.protocol.apis.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kohort.protocol.errors import ErrorCode
from kohort.testing import FakeBroker
from kohort.testing.fake_broker import Alter, Answer, Call, Drop
from tests.coordinator_client.consumer_helpers import poll_until

ME = UUID(int=7)
OFFERED: dict[int | str, tuple[int, int] | None] = {71: (0, 0), 72: (0, 0)}


def subscription(
    *wanted: str,
    number: int = 1,
    error: int = 0,
    codecs: tuple[int, ...] = (),
    interval_ms: int = 10_000,
    most_bytes: int = 1 << 20,
    delta: bool = False,
    client: UUID = ME,
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        error_code=error,
        client_instance_id=client,
        subscription_id=number,
        accepted_compression_types=codecs,
        push_interval_ms=interval_ms,
        telemetry_max_bytes=most_bytes,
        delta_temporality=delta,
        requested_metrics=wanted,
    )


def subscribed(*wanted: str, chance: float = 0.5, **reported: Any) -> Telemetry:
    """A machine that received this subscription at 100.0."""
    machine = Telemetry(lambda: chance)
    assert machine.next_request(100.0) == TelemetryRequest(NO_CLIENT_INSTANCE_ID)
    machine.subscription(subscription(*wanted, **reported), 100.0)
    return machine


def push_of(owed: TelemetryRequest | Push | None) -> Push:
    assert isinstance(owed, Push)
    return owed


@pytest.mark.parametrize(("chance", "due"), [(0.0, 105.0), (0.5, 110.0), (0.99, 114.9)])
def test_the_first_push_waits_for_a_random_part_of_the_interval(chance: float, due: float) -> None:
    machine = subscribed("*", chance=chance)
    assert machine.next_poll_at() == pytest.approx(due)
    assert machine.next_request(due - 0.1) is None
    push = push_of(machine.next_request(due + 0.001))
    assert (push.client, push.subscribed.number, push.last) == (ME, 1, False)
    assert machine.next_request(due + 1) is None  # one at a time
    machine.pushed(0, due + 1)
    assert machine.next_poll_at() == pytest.approx(due + 11)
    assert isinstance(machine.next_request(due + 11.001), Push)


def test_who_is_asked_for_nothing_asks_again_under_its_id() -> None:
    machine = subscribed()
    assert machine.next_poll_at() == 110.0
    assert machine.next_request(109.9) is None
    assert machine.next_request(110.0) == TelemetryRequest(ME)
    machine.subscription(subscription("org.", client=NO_CLIENT_INSTANCE_ID, number=2), 110.0)
    assert push_of(machine.next_request(130.0)).client == ME


def reported_codes() -> list[str]:
    return ["UNKNOWN_SUBSCRIPTION_ID", "UNSUPPORTED_COMPRESSION_TYPE"]


@pytest.mark.parametrize("name", reported_codes())
def test_a_changed_subscription_is_requested_at_once_and_pushed_at_its_interval(name: str) -> None:
    machine = subscribed("*")
    assert machine.next_request(110.0) is not None
    assert not machine.pushed(ErrorCode[name], 110.5)
    assert machine.next_request(110.5) == TelemetryRequest(ME)
    machine.subscription(subscription("*", number=2), 110.6)
    assert machine.next_request(120.0) is None  # however often the broker says so, there is one push an interval
    assert push_of(machine.next_request(120.5)).subscribed.number == 2


@pytest.mark.parametrize("name", ["TELEMETRY_TOO_LARGE", "THROTTLING_QUOTA_EXCEEDED"])
def test_what_is_too_much_waits_for_the_interval_and_is_sent_again(name: str) -> None:
    machine = subscribed("*")
    assert machine.next_request(110.0) is not None
    machine.pushed(ErrorCode[name], 110.5)
    assert (machine.next_request(120.0), machine.next_poll_at()) == (None, 120.5)
    assert machine.next_request(120.5) == TelemetryRequest(ME)


@pytest.mark.parametrize("name", ["INVALID_REQUEST", "INVALID_RECORD", "UNSUPPORTED_VERSION", "UNKNOWN_SERVER_ERROR"])
def test_an_error_that_would_come_again_ends_it(name: str) -> None:
    machine = subscribed("*")
    assert machine.next_request(110.0) is not None
    machine.pushed(ErrorCode[name], 110.5)
    assert machine.stopped == f"PushTelemetry: {name}"
    assert (machine.next_request(1e9), machine.next_poll_at()) == (None, None)
    refused = Telemetry(lambda: 0.0)
    assert refused.next_request(1.0) == TelemetryRequest(NO_CLIENT_INSTANCE_ID)
    refused.subscription(subscription(error=ErrorCode[name]), 1.0)
    assert refused.stopped == f"GetTelemetrySubscriptions: {name}"


@pytest.mark.parametrize("name", ["THROTTLING_QUOTA_EXCEEDED", *reported_codes()])
def test_a_broker_without_a_result_gets_no_requests_in_a_spin(name: str) -> None:
    machine = Telemetry(lambda: 0.0)
    assert machine.next_request(100.0) == TelemetryRequest(NO_CLIENT_INSTANCE_ID)
    machine.subscription(subscription(error=ErrorCode[name]), 100.0)
    assert machine.next_request(100.0 + DEFAULT_INTERVAL_S - 1) is None
    assert machine.next_request(100.0 + DEFAULT_INTERVAL_S) == TelemetryRequest(NO_CLIENT_INSTANCE_ID)


def test_no_response_is_no_reason_to_hurry() -> None:
    machine = subscribed("*")
    assert machine.next_request(110.0) is not None
    machine.unanswered(140.0)
    assert machine.next_request(149.9) is None
    assert machine.next_request(150.0) == TelemetryRequest(ME)


def test_a_close_pushes_once_more_and_never_again() -> None:
    machine = subscribed("*")
    machine.close()
    assert push_of(machine.next_request(101.0)).last  # though the interval is not over
    machine.pushed(ErrorCode.THROTTLING_QUOTA_EXCEEDED, 101.1)
    assert machine.stopped == "closed"
    assert machine.next_request(1e9) is None


def test_a_close_in_the_middle_of_a_push_pushes_the_last_behind_it() -> None:
    machine = subscribed("*")
    assert not push_of(machine.next_request(110.0)).last
    machine.close()
    assert machine.next_request(110.0) is None
    machine.pushed(0, 110.1)
    assert push_of(machine.next_request(110.1)).last


def test_a_close_of_who_pushes_nothing_is_quiet() -> None:
    for machine in (Telemetry(lambda: 0.0), subscribed()):
        machine.close()
        assert machine.next_request(1.0) is None
        assert machine.stopped == "closed"


def test_nonsense_of_a_broker_is_taken_as_the_usual() -> None:
    reported = TelemetrySubscription.reported(subscription("*", interval_ms=-1, most_bytes=0, codecs=(99, -3)))
    assert (reported.interval_s, reported.most_bytes, reported.codec) == (DEFAULT_INTERVAL_S, 1 << 20, 0)
    assert TelemetrySubscription.reported(subscription("*", interval_ms=1)).interval_s == SHORTEST_S
    machine = subscribed("*", client=NO_CLIENT_INSTANCE_ID)
    assert machine.stopped == "the broker gives no id"


def test_the_first_codec_that_we_have_is_the_brokers_first() -> None:
    assert TelemetrySubscription.reported(subscription("*", codecs=(9, 3, 4))).codec == 3
    assert TelemetrySubscription.reported(subscription("*", codecs=(0, 4))).codec == 4


@pytest.mark.parametrize(
    ("wanted", "name", "wants"),
    [
        (("*",), "a.b", True),
        (("",), "a.b", True),
        (("a.",), "a.b", True),
        (("a.b", "c."), "c.d", True),
        (("a.bc",), "a.b", False),
        ((), "a.b", False),
    ],
)
def test_names_are_wanted_by_prefix(wanted: tuple[str, ...], name: str, wants: bool) -> None:
    assert TelemetrySubscription.reported(subscription(*wanted)).wants(name) is wants


def test_a_million_requested_metrics_are_looked_up_and_not_gone_through() -> None:
    class Counted(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    reported = TelemetrySubscription.reported(
        subscription(*[Counted(f"org.apache.kafka.{number}") for number in range(10_000)], "", "é")
    )
    reported = reported._replace(wanted=reported.wanted - {""})
    Counted.compared = 0
    assert not reported.wants("org.apache.kafka.consumer.fetch.manager.records.lag.max")
    assert reported.wants("org.apache.kafka.77.more")
    assert Counted.compared < 100


@pytest.mark.parametrize("interval_ms", [0, -1, -(2**31), 1, 2**31 - 1])
def test_no_interval_of_a_broker_makes_a_spin_or_an_error(interval_ms: int) -> None:
    machine = subscribed("*", interval_ms=interval_ms, most_bytes=-(2**31), codecs=(-128, 127))
    due = machine.next_poll_at()
    assert due is not None
    assert 100.0 + SHORTEST_S / 2 <= due <= 100.0 + 1.5 * (2**31 / 1000)
    pushed = machine.next_request(due)
    assert isinstance(pushed, Push)
    machine.pushed(0, due)
    after = machine.next_poll_at()
    assert after is not None
    assert after >= due + SHORTEST_S


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
    known = {otlp.name_of(one) for one in FIGURES.values() if seen[one.name] not in (None, {})}
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
needless = ("telemetry", "figures", "exporting")
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
