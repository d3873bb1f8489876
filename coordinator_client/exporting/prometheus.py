"""Metrics for Prometheus, read at each scrape. Needs the extra `kohort[prometheus]`.

    from prometheus_client import REGISTRY, start_http_server
    from kohort.coordinator_client.exporting.prometheus import ConsumerCollector

    REGISTRY.register(ConsumerCollector(consumer))
    start_http_server(9100)

Names are `kohort_consumer_` and the metric's name, in base units: `fetch_latency_avg_ms` becomes
`kohort_consumer_fetch_latency_avg_seconds`. Labels: client_id, group, consumer (a number, since several may share the
rest). Partition metrics also have topic and partition.
"""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from kohort.coordinator_client.exporting.readings import ConsumerRegistry, Watched, prometheus_name, samples
from kohort.coordinator_client.metrics.metrics_table import FIGURES, ConsumerMetrics
from kohort.network.metric_spec import MetricKind, MetricSpec

LABELS = ("client_id", "group", "consumer")
PARTITION_LABELS = (*LABELS, "topic", "partition")


class ConsumerCollector(Collector):
    """Collects from `consumers` and from those added later; closed consumers are left out."""

    def __init__(self, *consumers: Watched) -> None:
        self._watch = ConsumerRegistry(*consumers)

    def add(self, consumer: Watched) -> None:
        """Collect from another consumer."""
        self._watch.add(consumer)

    def describe(self) -> Iterable[Metric]:
        """Every family without samples, by which a registry detects duplicate collectors."""
        return [family(figure) for figure in FIGURES.values()]

    def collect(self) -> Iterable[Metric]:
        """Every family that has samples."""
        families = {name: family(figure) for name, figure in FIGURES.items()}
        for number, metrics in self._watch.snapshots():
            labels = _labels(number, metrics)
            for reading in samples(metrics):
                of = [] if reading.partition is None else [reading.partition.topic, str(reading.partition.partition)]
                families[reading.figure.name].add_metric([*labels, *of], reading.value)
        return [one for one in families.values() if one.samples]


def family(figure: MetricSpec) -> CounterMetricFamily | GaugeMetricFamily:
    """The family of one metric, without samples."""
    labels = PARTITION_LABELS if figure.by_partition else LABELS
    kind = CounterMetricFamily if figure.kind is MetricKind.COUNTER else GaugeMetricFamily
    return kind(prometheus_name(figure), figure.about, labels=labels)


def _labels(number: int, metrics: ConsumerMetrics) -> list[str]:
    return [metrics.client_id, metrics.group or "", str(number)]
