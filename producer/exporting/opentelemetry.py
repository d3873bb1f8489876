"""Metrics for OpenTelemetry, as observable instruments. Needs the extra `kohort[opentelemetry]`.

    from opentelemetry import metrics
    from kohort.producer.exporting.opentelemetry import ProducerInstruments

    ProducerInstruments(metrics.get_meter("my.service"), producer)

Names are `kohort.producer.` and the metric's name, in base units, without unit and kind: `request_latency_avg_ms` is
`kohort.producer.request_latency_avg` in s.
"""

from kohort.network.exporting.opentelemetry import ClientInstruments
from kohort.producer.producer_metrics import ProducerMetrics


class ProducerInstruments(ClientInstruments[ProducerMetrics]):
    """One instrument per metric, observing `producers` and those added later, while open."""

    table = ProducerMetrics
