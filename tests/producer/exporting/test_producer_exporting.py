"""A producer's metrics as Prometheus and OpenTelemetry get them."""

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kohort import Producer
from kohort.network.exporting.readings import opentelemetry_name, prometheus_name
from kohort.producer.exporting.opentelemetry import ProducerInstruments
from kohort.producer.exporting.prometheus import ProducerCollector
from kohort.producer.producer_metrics import ProducerMetrics
from kohort.testing import FakeBroker

LIMIT_S = 60.0
FIGURES = ProducerMetrics.figures


def scraped(registry: CollectorRegistry) -> dict[str, list[tuple[dict[str, str], float]]]:
    return {
        sample.name: [(one.labels, one.value) for one in family.samples if one.name == sample.name]
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def observed(reader: InMemoryMetricReader) -> dict[str, Any]:
    data = reader.get_metrics_data()
    return {
        metric.name: (metric.unit, [_seen(point) for point in metric.data.data_points])
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.data.data_points
    }


def _seen(point: Any) -> tuple[dict[str, Any], float]:
    return dict(point.attributes), point.value


def test_both_exporters_have_the_values_of_metrics_and_forget_a_closed_producer() -> None:
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    with FakeBroker({"t": 1}) as fake:
        with (
            Producer(fake.bootstrap, client_id="app") as plain,
            Producer(fake.bootstrap, client_id="app", transactional_id="tx") as other,
        ):
            collector = ProducerCollector(plain)
            registry.register(collector)
            collector.add(other)
            ProducerInstruments(MeterProvider([reader]).get_meter("test"), plain).add(other)
            for _ in range(3):
                plain.send("t", b"x").result(LIMIT_S)
            lines, points, seen = scraped(registry), observed(reader), plain.metrics()
        assert scraped(registry) == {}
        assert observed(reader) == {}
    names = [{"client_id": "app", "transactional_id": id_, "producer": n} for id_, n in (("", "1"), ("tx", "2"))]
    assert lines["kohort_producer_record_send_total"] == [(names[0], 3.0), (names[1], 0.0)]
    assert seen.request_latency_max_ms is not None
    assert lines["kohort_producer_request_latency_max_seconds"] == [(names[0], seen.request_latency_max_ms / 1000)]
    attributes = {"messaging.system": "kafka", "messaging.client.id": "app"}
    assert points["kohort.producer.record_send"] == (
        "1",
        [
            (attributes | {"kohort.producer": 1}, 3),
            (attributes | {"kohort.producer": 2, "kohort.transactional_id": "tx"}, 0),
        ],
    )
    known = {one for one in FIGURES.values() if seen[one.name] is not None}
    assert {prometheus_name(ProducerMetrics, one) for one in known} == {name.removesuffix("_total") for name in lines}
    assert {opentelemetry_name(ProducerMetrics, one) for one in known} == set(points)


def test_names_are_distinct() -> None:
    for name in (prometheus_name, opentelemetry_name):
        assert len({name(ProducerMetrics, one) for one in FIGURES.values()}) == len(FIGURES)
