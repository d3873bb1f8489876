"""Metrics for OpenTelemetry, as observable instruments. Needs the extra `kohort[opentelemetry]`.

    from opentelemetry import metrics
    from kohort.coordinator_client.exporting.opentelemetry import ConsumerInstruments

    ConsumerInstruments(metrics.get_meter("my.service"), consumer)

Names are `kohort.consumer.` and the metric's name, in base units, without unit and kind: `fetch_latency_avg_ms` is
`kohort.consumer.fetch_latency_avg` in s. Attributes have the names of the semantic conventions for messaging.
"""

import threading
from collections.abc import Callable, Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from kohort.common import TopicPartition
from kohort.coordinator_client.exporting.readings import BASES, ConsumerRegistry, Watched, opentelemetry_name, samples
from kohort.coordinator_client.metrics.metrics_table import FIGURES, ConsumerMetrics
from kohort.network.metric_spec import MetricKind

Attributes = dict[str, str | int]


class ConsumerInstruments:
    """One instrument per metric, observing `consumers` and those added later, while open."""

    def __init__(self, meter: Meter, *consumers: Watched) -> None:
        self._watch = ConsumerRegistry(*consumers)
        self._lock = threading.Lock()
        self._seen: dict[str, list[Observation]] = {}
        for figure in FIGURES.values():
            make = (
                meter.create_observable_counter if figure.kind is MetricKind.COUNTER else meter.create_observable_gauge
            )
            make(opentelemetry_name(figure), [self._observer(figure.name)], BASES[figure.unit].symbol, figure.about)

    def add(self, consumer: Watched) -> None:
        """Observe another consumer."""
        self._watch.add(consumer)

    def _observer(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _options: self._observe(name)

    def _observe(self, name: str) -> list[Observation]:
        # Instruments are read one by one, but belong to one snapshot. A second read of one takes a new snapshot.
        with self._lock:
            if name not in self._seen:
                self._seen = self._look()
            return self._seen.pop(name)

    def _look(self) -> dict[str, list[Observation]]:
        seen: dict[str, list[Observation]] = {name: [] for name in FIGURES}
        for number, metrics in self._watch.snapshots():
            for reading in samples(metrics):
                attributes = _attributes(number, metrics, reading.partition)
                seen[reading.figure.name].append(Observation(reading.value, attributes))
        return seen


def _attributes(number: int, metrics: ConsumerMetrics, partition: TopicPartition | None) -> Attributes:
    found: Attributes = {
        "messaging.system": "kafka",
        "messaging.client.id": metrics.client_id,
        "kohort.consumer": number,
    }
    if metrics.group is not None:
        found["messaging.consumer.group.name"] = metrics.group
    if partition is not None:
        found["messaging.destination.name"] = partition.topic
        found["messaging.destination.partition.id"] = str(partition.partition)
    return found
