"""Metrics of a client for OpenTelemetry, as observable instruments. Needs the extra `kohort[opentelemetry]`."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic

from kohort.common import TopicPartition
from kohort.common.optional_libraries import needed
from kohort.network.exporting.readings import BASES, ClientRegistry, Seen, Watched, opentelemetry_name, samples
from kohort.network.metric_spec import ClientMetrics, MetricKind

with needed("an exporter for OpenTelemetry", "'kohort[opentelemetry]'"):
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

Attributes = dict[str, str | int]


class ClientInstruments(Generic[Seen]):
    """One instrument per metric, observing `clients` and those added later, while open. `table`: their metrics."""

    table: ClassVar[type[Any]]  # one to a subclass

    def __init__(self, meter: Meter, *clients: Watched[Seen]) -> None:
        self._watch = ClientRegistry(*clients)
        self._seen: dict[str, list[Observation]] = {}
        for figure in self.table.figures.values():
            make = (
                meter.create_observable_counter if figure.kind is MetricKind.COUNTER else meter.create_observable_gauge
            )
            name, unit = opentelemetry_name(self.table, figure), BASES[figure.unit].symbol
            make(name, [self._observer(figure.name)], unit, figure.about)

    def add(self, client: Watched[Seen]) -> None:
        """Observe another client."""
        self._watch.add(client)

    def _observer(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda _options: self._observe(name)

    def _observe(self, name: str) -> list[Observation]:
        # Instruments are read one by one, but belong to one snapshot. A second read of one takes a new snapshot. There
        # is no lock, which a forked child could inherit locked.
        observations = self._seen.pop(name, None)
        if observations is None:
            seen = self._look()
            observations = seen.pop(name)
            self._seen = seen
        return observations

    def _look(self) -> dict[str, list[Observation]]:
        seen: dict[str, list[Observation]] = {name: [] for name in self.table.figures}
        for number, metrics in self._watch.snapshots():
            for reading in samples(metrics):
                attributes = _attributes(number, metrics, reading.partition)
                seen[reading.figure.name].append(Observation(reading.value, attributes))
        return seen


def _attributes(number: int, metrics: ClientMetrics, partition: TopicPartition | None) -> Attributes:
    found: Attributes = {"messaging.system": "kafka", f"kohort.{metrics.client}": number}
    for name, attribute in metrics.labels.items():
        value = getattr(metrics, name)
        if value is not None:
            found[attribute] = value
    if partition is not None:
        found["messaging.destination.name"] = partition.topic
        found["messaging.destination.partition.id"] = str(partition.partition)
    return found
