"""Metrics as OpenTelemetry's MetricsData, for KIP-714. Needs the extra `kohort[opentelemetry]`.

A metric that Java has uses the name that KIP-714 derives from Java's, such as
`org.apache.kafka.consumer.coordinator.commit.total`, and Java's unit. One broker plugin then handles both clients.
Other metrics are named `kohort.`, the kind of client, and their own name.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from kohort.common import KohortError, TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.fastpath.compression import CODECS
from kohort.network.metric_spec import ClientMetrics, MetricKind, MetricSpec

if TYPE_CHECKING:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

LIBRARY: Final = "opentelemetry.proto.metrics.v1.metrics_pb2"
NS_OF_MS: Final = 1_000_000
UNITS: Final = {"ms": "ms", "s": "s", "bytes": "By", "ratio": "1", "": "1"}


class TooLarge(KohortError):
    """The requested metrics exceed the broker's size limit, even without the partition metrics."""


class OtlpSpan(NamedTuple):
    """The period of a push, in ms since the epoch. `before`: counters at its start; None for cumulative counters."""

    since_ms: int
    until_ms: int
    before: Mapping[str, float] | None


def available() -> bool:
    """True if the OpenTelemetry library is installed."""
    try:
        return find_spec(LIBRARY) is not None
    except ModuleNotFoundError:
        return False


def name_of(table: type[ClientMetrics], figure: MetricSpec) -> str:
    """The metric's name in a push."""
    if figure.java is None:
        return f"kohort.{table.client}.{figure.name}"
    return ".".join(("org.apache.kafka", *figure.java)).replace("-", ".")


def counters(metrics: ClientMetrics) -> dict[str, float]:
    """The counters to subtract in the next push with delta temporality."""
    return {name: metrics[name] for name, figure in metrics.figures.items() if figure.kind is MetricKind.COUNTER}


def payload(
    metrics: ClientMetrics,
    span: OtlpSpan,
    *,
    wants: Callable[[str], bool],
    about: Mapping[str, str],
    codec: int,
    most_bytes: int,
) -> bytes:
    """The requested metrics, compressed with the codec of that Kafka number. Raises TooLarge.

    `about`: resource attributes, such as the client's group.
    """
    sizes = []
    for partitions in (True, False):
        plain = _data(metrics, span, wants, about, partitions=partitions).SerializeToString()
        packed = CODECS[codec].compress(plain, None) if codec else plain
        if len(packed) <= most_bytes:
            return packed
        sizes.append(len(packed))
    raise TooLarge("the metrics do not fit in the broker's limit", bytes=sizes[-1], telemetry_max_bytes=most_bytes)


def _data(
    metrics: ClientMetrics,
    span: OtlpSpan,
    wants: Callable[[str], bool],
    about: Mapping[str, str],
    *,
    partitions: bool,
) -> "MetricsData":
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    data = MetricsData()
    resource = data.resource_metrics.add()
    _label(resource.resource.attributes, about)
    scope = resource.scope_metrics.add()
    scope.scope.name = "kohort"
    for figure in metrics.figures.values():
        name = name_of(type(metrics), figure)
        if not wants(name) or (figure.by_partition and not partitions):
            continue
        values = list(_values(metrics, figure, span.before))
        if values:
            _fill(scope.metrics.add(name=name), figure, values, span)
    return data


def _values(
    metrics: ClientMetrics, figure: MetricSpec, before: Mapping[str, float] | None
) -> Iterator[tuple[TopicPartition | None, float]]:
    found = metrics[figure.name]
    if figure.by_partition:
        yield from found.items()
    elif found is not None:
        counted = figure.kind is MetricKind.COUNTER and before is not None
        yield None, found - (before or {}).get(figure.name, 0) if counted else found


def _fill(
    metric: "Metric", figure: MetricSpec, values: list[tuple[TopicPartition | None, float]], span: OtlpSpan
) -> None:
    from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

    metric.unit = UNITS[figure.unit]
    if figure.kind is MetricKind.COUNTER:
        metric.sum.is_monotonic = True
        metric.sum.aggregation_temporality = (
            AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
            if span.before is None
            else AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        )
    points = metric.sum.data_points if figure.kind is MetricKind.COUNTER else metric.gauge.data_points
    for partition, value in values:
        point = points.add()
        point.start_time_unix_nano = span.since_ms * NS_OF_MS
        point.time_unix_nano = span.until_ms * NS_OF_MS
        point.as_double = value
        if partition is not None:
            _label(point.attributes, {"topic": partition.topic, "partition": str(partition.partition)})


def _label(attributes: Any, labels: Mapping[str, str]) -> None:
    for name, value in labels.items():
        attribute = attributes.add()
        attribute.key, attribute.value.string_value = name, value
