"""Samples in base units, derived names, and the observed clients, for all exporters."""

import weakref
from collections.abc import Iterator
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

from kohort.common import TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.network.errors import ForkError
from kohort.network.metric_spec import ClientMetrics, MetricSpec

Seen = TypeVar("Seen", bound=ClientMetrics)
Shown = TypeVar("Shown", bound=ClientMetrics, covariant=True)


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


def prometheus_name(table: type[ClientMetrics], figure: MetricSpec) -> str:
    """The Prometheus name, without the `_total` that a counter's samples get."""
    bare, word = base_name(figure), BASES[figure.unit].word
    unit = "" if not word or word in bare.split("_") else f"_{word}"
    return f"kohort_{table.client}_{bare}{unit}"


def opentelemetry_name(table: type[ClientMetrics], figure: MetricSpec) -> str:
    """The OpenTelemetry name; the unit is not part of it."""
    return f"kohort.{table.client}.{base_name(figure)}"


def samples(metrics: ClientMetrics) -> Iterator[Sample]:
    """The samples of all metrics; values of None are left out."""
    for name, figure in metrics.figures.items():
        found = getattr(metrics, name)
        factor = BASES[figure.unit].factor
        if figure.by_partition:
            for partition, value in found.items():
                yield Sample(figure, value * factor, partition)
        elif found is not None:
            yield Sample(figure, found * factor, None)


class Watched(Protocol[Shown]):
    """A client whose metrics are exported."""

    def metrics(self) -> Shown: ...


def _metrics(client: Watched[Seen]) -> Seen | None:
    """The metrics of a client. None if the client belongs to the parent process."""
    try:
        return client.metrics()
    except ForkError:
        return None


class ClientRegistry(Generic[Seen]):
    """The clients that an exporter reads, each with its own number.

    Several may share their labels. Clients are held by weak references; closed clients are removed. A forked child
    removes the clients of its parent. There is no lock, which a child could inherit locked: each step on the dict is
    one call.
    """

    def __init__(self, *clients: Watched[Seen]) -> None:
        self._numbers = count(1)
        self._clients: dict[int, weakref.ref[Watched[Seen]]] = {}
        for client in clients:
            self.add(client)

    def add(self, client: Watched[Seen]) -> None:
        """Add a client."""
        self._clients[next(self._numbers)] = weakref.ref(client)

    def snapshots(self) -> list[tuple[int, Seen]]:
        """The current metrics of each open client, with its number."""
        known = [(number, reference()) for number, reference in list(self._clients.items())]
        found = [(number, _metrics(client)) for number, client in known if client is not None]
        alive = [(number, metrics) for number, metrics in found if metrics is not None and not metrics.closed]
        for number in {number for number, _ in known} - {number for number, _ in alive}:
            self._clients.pop(number, None)
        return alive
