"""Metrics for OpenTelemetry, as observable instruments. Needs the extra `kohort[opentelemetry]`.

    from opentelemetry import metrics
    from kohort.coordinator_client.exporting.opentelemetry import ConsumerInstruments

    ConsumerInstruments(metrics.get_meter("my.service"), consumer)

Names are `kohort.consumer.` and the metric's name, in base units, without unit and kind: `fetch_latency_avg_ms` is
`kohort.consumer.fetch_latency_avg` in s. Attributes have the names of the semantic conventions for messaging.
"""

from kohort.coordinator_client.metrics.metrics_table import ConsumerMetrics
from kohort.network.exporting.opentelemetry import ClientInstruments


class ConsumerInstruments(ClientInstruments[ConsumerMetrics]):
    """One instrument per metric, observing `consumers` and those added later, while open."""

    table = ConsumerMetrics
