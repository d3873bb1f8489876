"""Metrics for Prometheus, read at each scrape. Needs the extra `kohort[prometheus]`.

    from prometheus_client import REGISTRY, start_http_server
    from kohort.producer.exporting.prometheus import ProducerCollector

    REGISTRY.register(ProducerCollector(producer))
    start_http_server(9100)

Names are `kohort_producer_` and the metric's name, in base units: `request_latency_avg_ms` becomes
`kohort_producer_request_latency_avg_seconds`. Labels: client_id, transactional_id, producer (a number, since several
may share the rest).
"""

from kohort.network.exporting.prometheus import ClientCollector
from kohort.producer.producer_metrics import ProducerMetrics


class ProducerCollector(ClientCollector[ProducerMetrics]):
    """Collects from `producers` and from those added later; closed producers are left out."""

    table = ProducerMetrics
