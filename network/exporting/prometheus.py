"""Metrics of a client for Prometheus, read at each scrape. Needs the extra `kohort[prometheus]`."""

from collections.abc import Iterable
from typing import Any, ClassVar, Generic

from kohort.common.optional_libraries import needed
from kohort.network.exporting.readings import ClientRegistry, Seen, Watched, prometheus_name, samples
from kohort.network.metric_spec import MetricKind, MetricSpec

with needed("an exporter for Prometheus", "'kohort[prometheus]'"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.metrics_core import Metric
    from prometheus_client.registry import Collector

PARTITION_LABELS = ("topic", "partition")


class ClientCollector(Collector, Generic[Seen]):
    """Collects from `clients` and from those added later; closed clients are left out. `table`: their metrics."""

    table: ClassVar[type[Any]]  # one to a subclass

    def __init__(self, *clients: Watched[Seen]) -> None:
        self._watch = ClientRegistry(*clients)

    def add(self, client: Watched[Seen]) -> None:
        """Collect from another client."""
        self._watch.add(client)

    def describe(self) -> Iterable[Metric]:
        """Every family without samples, by which a registry detects duplicate collectors."""
        return [self._family(figure) for figure in self.table.figures.values()]

    def collect(self) -> Iterable[Metric]:
        """Every family that has samples."""
        families = {name: self._family(figure) for name, figure in self.table.figures.items()}
        for number, metrics in self._watch.snapshots():
            labels = [*(getattr(metrics, name) or "" for name in self.table.labels), str(number)]
            for reading in samples(metrics):
                of = [] if reading.partition is None else [reading.partition.topic, str(reading.partition.partition)]
                families[reading.figure.name].add_metric([*labels, *of], reading.value)
        return [one for one in families.values() if one.samples]

    def _family(self, figure: MetricSpec) -> CounterMetricFamily | GaugeMetricFamily:
        """The family of one metric, without samples."""
        labels = (*self.table.labels, self.table.client, *(PARTITION_LABELS if figure.by_partition else ()))
        kind = CounterMetricFamily if figure.kind is MetricKind.COUNTER else GaugeMetricFamily
        return kind(prometheus_name(self.table, figure), figure.about, labels=labels)
