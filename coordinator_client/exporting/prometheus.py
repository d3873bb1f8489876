"""Metrics for Prometheus, read at each scrape. Needs the extra `kohort[prometheus]`.

    from prometheus_client import REGISTRY, start_http_server
    from kohort.coordinator_client.exporting.prometheus import ConsumerCollector

    REGISTRY.register(ConsumerCollector(consumer))
    start_http_server(9100)

Names are `kohort_consumer_` and the metric's name, in base units: `fetch_latency_avg_ms` becomes
`kohort_consumer_fetch_latency_avg_seconds`. Labels: client_id, group, consumer (a number, since several may share the
rest). Partition metrics also have topic and partition.
"""

from kohort.coordinator_client.metrics.metrics_table import ConsumerMetrics
from kohort.network.exporting.prometheus import ClientCollector


class ConsumerCollector(ClientCollector[ConsumerMetrics]):
    """Collects from `consumers` and from those added later; closed consumers are left out."""

    table = ConsumerMetrics
