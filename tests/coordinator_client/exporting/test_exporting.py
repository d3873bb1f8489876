"""Figures as Prometheus and OpenTelemetry get them: by their own libraries, from consumers that read a real broker."""

import gc
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kohort import Consumer, TopicPartition
from kohort.coordinator_client.exporting import opentelemetry, prometheus
from kohort.coordinator_client.metrics.metrics_table import FIGURES, ConsumerMetrics
from kohort.network.exporting.prometheus import PARTITION_LABELS
from kohort.network.exporting.readings import (
    BASES,
    ClientRegistry,
    base_name,
    opentelemetry_name,
    prometheus_name,
    samples,
)
from kohort.network.metric_spec import MetricKind
from kohort.testing import FakeBroker
from tests.coordinator_client.consumer_helpers import PATIENCE_S, in_a_child, numbers, produce, read
from tests.support.broker_selection import SelectedBroker

LABELS = (*ConsumerMetrics.labels, ConsumerMetrics.client, *PARTITION_LABELS)


def scraped(registry: CollectorRegistry) -> dict[str, dict[tuple[str, ...], float]]:
    """The result of a scrape: sample's name -> values of its labels -> value; each family typed as the table has it."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    kinds = {prometheus_name(ConsumerMetrics, one): one.kind.value for one in FIGURES.values()}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        assert family.type == kinds[family.name]
        assert family.documentation
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in LABELS if name in sample.labels)
            assert len(labels) == len(sample.labels)
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def observed(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float, str]]]:
    """The result of a reader's collection: instrument's name -> (attributes, value, unit)."""
    data = reader.get_metrics_data()
    return {
        metric.name: [_reported(point, metric.unit or "") for point in metric.data.data_points]
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def _reported(point: Any, unit: str) -> tuple[dict[str, Any], float, str]:
    return dict(point.attributes), point.value, unit


class Still:
    """A consumer whose figures stand still."""

    def __init__(self, metrics: ConsumerMetrics) -> None:
        self.seen = metrics
        self.looks = 0

    def metrics(self) -> ConsumerMetrics:
        self.looks += 1
        return self.seen


@pytest.fixture
def nothing_yet() -> ConsumerMetrics:
    consumer = Consumer("127.0.0.1:1", client_id="app", group="g")
    try:
        return consumer.metrics()
    finally:
        consumer.close(0.1)


def changed(metrics: ConsumerMetrics, **figures: Any) -> ConsumerMetrics:
    from dataclasses import replace

    return replace(metrics, **figures)


@pytest.mark.broker
def test_a_scrape_and_a_reader_have_the_values_of_metrics(
    broker: SelectedBroker, topic: str, unique: Callable[[str], str]
) -> None:
    produce(broker.bootstrap, topic, numbers(0, 100))
    group = unique("group")
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    with Consumer(
        broker.bootstrap, client_id="app", group=group, auto_offset_reset="earliest", max_poll_records=60
    ) as consumer:
        registry.register(prometheus.ConsumerCollector(consumer))
        opentelemetry.ConsumerInstruments(MeterProvider([reader]).get_meter("test"), consumer)
        consumer.subscribe([topic])
        read(consumer, 60)
        consumer.commit()
        seen = consumer.metrics()  # first, because a moment later more may be known
        lines, points = scraped(registry), observed(reader)
        who = ("app", group, "1")
        assert lines["kohort_consumer_records_consumed_total"] == {who: 60}
        assert lines["kohort_consumer_assigned_partitions"] == {who: 3}
        assert lines["kohort_consumer_records_lag"][(*who, topic, "0")] == 40
        assert lines["kohort_consumer_rebalance_total"] == {who: 1}
        assert seen.rebalance_latency_max_ms is not None
        assert lines["kohort_consumer_rebalance_latency_max_seconds"][who] == pytest.approx(
            seen.rebalance_latency_max_ms / 1000
        )
        (reported,) = points["kohort.consumer.records_consumed"]
        attributes = {
            "messaging.system": "kafka",
            "messaging.client.id": "app",
            "messaging.consumer.group.name": group,
            "kohort.consumer": 1,
        }
        assert reported[0] == attributes
        assert reported[1:] == (60.0, "1")
        lag = {
            point[0]["messaging.destination.partition.id"]: point[1] for point in points["kohort.consumer.records_lag"]
        }
        assert lag["0"] == 40
        ((_, latency_s, unit),) = points["kohort.consumer.rebalance_latency_max"]
        assert unit == "s"
        assert latency_s == pytest.approx(seen.rebalance_latency_max_ms / 1000)
        known = {reading.figure.name for reading in samples(seen)}
        assert {opentelemetry_name(ConsumerMetrics, FIGURES[name]) for name in known} <= set(points)
        assert {prometheus_name(ConsumerMetrics, FIGURES[name]) for name in known} <= {
            name.removesuffix("_total") for name in lines
        }
    assert scraped(registry) == {}, "a closed consumer is exported no more"
    assert observed(reader).get("kohort.consumer.records_consumed", []) == []


def test_names_are_distinct_and_in_base_units() -> None:
    names = [prometheus_name(ConsumerMetrics, one) for one in FIGURES.values()]
    assert len(set(names)) == len(names)
    assert len({opentelemetry_name(ConsumerMetrics, one) for one in FIGURES.values()}) == len(names)
    for one in FIGURES.values():
        name = prometheus_name(ConsumerMetrics, one)
        word = BASES[one.unit].word
        assert not name.endswith(("_ms", "_s", "_total")), name
        assert word in name.split("_") or not word, name
    assert base_name(FIGURES["rebalance_latency_total_ms"]) == "rebalance_latency"
    assert base_name(FIGURES["bytes_consumed_total"]) == "bytes_consumed"
    assert prometheus_name(ConsumerMetrics, FIGURES["throttled_ms_total"]) == "kohort_consumer_throttled_seconds"


def test_what_is_not_known_is_not_told_and_what_is_comes_in_base_units(nothing_yet: ConsumerMetrics) -> None:
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    metrics = changed(
        nothing_yet,
        fetch_latency_avg_ms=250.0,
        throttled_ms_total=1500,
        last_poll_ago_s=3.5,
        records_lag={one: 7, two: 0},
    )
    reported = [(reading.figure.name, reading.value, reading.partition) for reading in samples(metrics)]
    assert ("fetch_latency_avg_ms", 0.25, None) in reported
    assert ("throttled_ms_total", 1.5, None) in reported
    assert ("last_poll_ago_s", 3.5, None) in reported
    assert [tell for tell in reported if tell[0] == "records_lag"] == [("records_lag", 7, one), ("records_lag", 0, two)]
    assert not any(name in ("fetch_latency_max_ms", "records_lag_max") for name, _, _ in reported)


def test_several_consumers_of_one_name_are_several_series(nothing_yet: ConsumerMetrics) -> None:
    first, second = (Still(changed(nothing_yet, closed=False, records_consumed_total=n)) for n in (3, 4))
    registry = CollectorRegistry()
    collector = prometheus.ConsumerCollector(first)
    registry.register(collector)
    collector.add(second)
    assert scraped(registry)["kohort_consumer_records_consumed_total"] == {("app", "g", "1"): 3, ("app", "g", "2"): 4}
    second.seen = changed(second.seen, closed=True)
    assert scraped(registry)["kohort_consumer_records_consumed_total"] == {("app", "g", "1"): 3}
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(prometheus.ConsumerCollector(first))


def test_a_watched_consumer_may_go_without_a_close(nothing_yet: ConsumerMetrics) -> None:
    still = Still(changed(nothing_yet, closed=False))
    watch = ClientRegistry(still)
    assert [number for number, _ in watch.snapshots()] == [1]
    del still
    gc.collect()
    assert watch.snapshots() == []


@pytest.mark.proves("B-35")
def test_a_forked_child_exports_its_own_consumers(nothing_yet: ConsumerMetrics) -> None:
    with FakeBroker() as fake, Consumer(fake.bootstrap, group="g") as inherited:
        watch = ClientRegistry(inherited)

        def collect() -> None:
            own = Still(changed(nothing_yet, closed=False))
            watch.add(own)
            assert [number for number, _ in watch.snapshots()] == [2]

        assert in_a_child(collect) == []
        assert [number for number, _ in watch.snapshots()] == [1]


@pytest.mark.proves("B-35")
def test_a_child_that_is_forked_during_a_collection_collects(nothing_yet: ConsumerMetrics) -> None:
    collecting, go_on = threading.Event(), threading.Event()

    class Slow(Still):
        def metrics(self) -> ConsumerMetrics:
            collecting.set()
            go_on.wait(PATIENCE_S)
            return super().metrics()

    slow = Slow(changed(nothing_yet, closed=False, records_consumed_total=5))
    instruments = opentelemetry.ConsumerInstruments(MeterProvider().get_meter("test"), slow)
    thread = threading.Thread(target=instruments._observe, args=("records_consumed_total",))
    thread.start()
    assert collecting.wait(PATIENCE_S)

    def collect() -> None:
        signal.alarm(int(PATIENCE_S))
        go_on.set()
        assert [one.value for one in instruments._observe("records_consumed_total")] == [5]

    assert in_a_child(collect) == []
    go_on.set()
    thread.join()


def test_a_collection_looks_once(nothing_yet: ConsumerMetrics) -> None:
    still = Still(changed(nothing_yet, closed=False, records_consumed_total=5))
    reader = InMemoryMetricReader()
    opentelemetry.ConsumerInstruments(MeterProvider([reader]).get_meter("test"), still)
    for looks in (1, 2, 3):
        assert [value for _, value, _ in observed(reader)["kohort.consumer.records_consumed"]] == [5]
        assert still.looks == looks
    counters = {opentelemetry_name(ConsumerMetrics, one) for one in FIGURES.values() if one.kind is MetricKind.COUNTER}
    monotonic = {
        metric.name
        for resource in (reader.get_metrics_data() or pytest.fail("nothing")).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if getattr(metric.data, "is_monotonic", False)
    }
    assert monotonic == counters
