"""What exporters share: figures in base units under derived names, and which consumers are watched."""

import threading
import weakref
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from kohort.common import TopicPartition
from kohort.coordinator_client.metrics.metrics_table import FIGURES, ConsumerMetrics, MetricSpec


class Base(NamedTuple):
    """What a unit is told in: its word in Prometheus' names, its symbol in UCUM, and what to multiply by."""

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
    """One figure's value in base units, of one partition if it is told by partition."""

    figure: MetricSpec
    value: float
    partition: TopicPartition | None


def base_name(figure: MetricSpec) -> str:
    """Its name without what says unit and kind: fetch_latency_avg, throttled, bytes_consumed."""
    words = figure.name.split("_")
    return "_".join(word for place, word in enumerate(words) if not place or word not in ("total", "ms", "s", "bytes"))


def prometheus_name(figure: MetricSpec) -> str:
    """Prometheus' name of it, without the `_total` that a counter's samples get."""
    bare, word = base_name(figure), BASES[figure.unit].word
    unit = "" if not word or word in bare.split("_") else f"_{word}"
    return f"kohort_consumer_{bare}{unit}"


def opentelemetry_name(figure: MetricSpec) -> str:
    """OpenTelemetry's name of it; its unit is not part of the name."""
    return f"kohort.consumer.{base_name(figure)}"


def samples(metrics: ConsumerMetrics) -> Iterator[Sample]:
    """What is known, figure by figure; what is None is left out."""
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
    """The consumers that an exporter reads, each under a number of its own: several may share client id and group.

    None is kept alive by being watched, and one that was closed is forgotten.
    """

    def __init__(self, *consumers: Watched) -> None:
        self._lock = threading.Lock()
        self._next = 1
        self._consumers: dict[int, weakref.ref[Watched]] = {}
        for consumer in consumers:
            self.add(consumer)

    def add(self, consumer: Watched) -> None:
        """Watch one more."""
        with self._lock:
            self._consumers[self._next] = weakref.ref(consumer)
            self._next += 1

    def snapshots(self) -> list[tuple[int, ConsumerMetrics]]:
        """The figures of each, now."""
        with self._lock:
            known = [(number, reference()) for number, reference in self._consumers.items()]
        found = [(number, consumer.metrics()) for number, consumer in known if consumer is not None]
        alive = [(number, metrics) for number, metrics in found if not metrics.closed]
        with self._lock:
            for number in {number for number, _ in known} - {number for number, _ in alive}:
                self._consumers.pop(number, None)
        return alive
