"""Samples in base units, derived names, and the observed consumers, for all exporters."""

import threading
import weakref
from collections.abc import Iterator
from typing import Final, Protocol

from kohort.common import TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.metrics.metrics_table import FIGURES, ConsumerMetrics
from kohort.network.metric_spec import MetricSpec


class Base(NamedTuple):
    """The base unit of a unit: its word in Prometheus' names, its UCUM symbol, and the factor."""

    word: str
    symbol: str
    factor: float


BASES: Final = {
    "ms": Base("seconds", "s", 0.001),
    "s": Base("seconds", "s", 1),
    "bytes": Base("bytes", "By", 1),
    "ratio": Base("ratio", "1", 1),
    "": Base("", "1", 1),
}


class Sample(NamedTuple):
    """One metric's value in base units, with the partition of a partition metric."""

    figure: MetricSpec
    value: float
    partition: TopicPartition | None


def base_name(figure: MetricSpec) -> str:
    """The name without unit and kind: fetch_latency_avg, throttled, bytes_consumed."""
    words = figure.name.split("_")
    return "_".join(word for place, word in enumerate(words) if not place or word not in ("total", "ms", "s", "bytes"))


def prometheus_name(figure: MetricSpec) -> str:
    """The Prometheus name, without the `_total` that a counter's samples get."""
    bare, word = base_name(figure), BASES[figure.unit].word
    unit = "" if not word or word in bare.split("_") else f"_{word}"
    return f"kohort_consumer_{bare}{unit}"


def opentelemetry_name(figure: MetricSpec) -> str:
    """The OpenTelemetry name; the unit is not part of it."""
    return f"kohort.consumer.{base_name(figure)}"


def samples(metrics: ConsumerMetrics) -> Iterator[Sample]:
    """The samples of all metrics; values of None are left out."""
    for name, figure in FIGURES.items():
        found = getattr(metrics, name)
        factor = BASES[figure.unit].factor
        if figure.by_partition:
            for partition, value in found.items():
                yield Sample(figure, value * factor, partition)
        elif found is not None:
            yield Sample(figure, found * factor, None)


class Watched(Protocol):
    """A Consumer or an AsyncConsumer."""

    def metrics(self) -> ConsumerMetrics: ...


class ConsumerRegistry:
    """The consumers that an exporter reads, each with its own number.

    Several may share client id and group. Consumers are held by weak references; closed consumers are removed.
    """

    def __init__(self, *consumers: Watched) -> None:
        self._lock = threading.Lock()
        self._next = 1
        self._consumers: dict[int, weakref.ref[Watched]] = {}
        for consumer in consumers:
            self.add(consumer)

    def add(self, consumer: Watched) -> None:
        """Add a consumer."""
        with self._lock:
            self._consumers[self._next] = weakref.ref(consumer)
            self._next += 1

    def snapshots(self) -> list[tuple[int, ConsumerMetrics]]:
        """The current metrics of each open consumer, with its number."""
        with self._lock:
            known = [(number, reference()) for number, reference in self._consumers.items()]
        found = [(number, consumer.metrics()) for number, consumer in known if consumer is not None]
        alive = [(number, metrics) for number, metrics in found if not metrics.closed]
        with self._lock:
            for number in {number for number, _ in known} - {number for number, _ in alive}:
                self._consumers.pop(number, None)
        return alive
