# ruff: noqa: E501 -- one metric a line keeps the table readable, and `figure` is a dataclass field
"""The table of all producer metrics: name, Java's group and name, kind, unit, description.

It is loaded at first use, so that producers without monitoring do not pay for it.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from kohort.network.metric_spec import ClientMetrics, MetricKind, connection_values, figure, figures_of, spread
from kohort.producer.producer_context import ProducerContext

COUNTER, GAUGE = MetricKind.COUNTER, MetricKind.GAUGE
CLIENT = "producer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerMetrics(ClientMetrics):
    """A producer's metrics at one time: attributes, and a mapping by the same names.

    None: no such event has occurred, or not recently. Averages and maxima are over the last 30 to 60 s. `closed`: true
    once close was called.
    """

    # fmt: off
    # --- identity
    client_id: str
    transactional_id: str | None
    closed: bool

    # --- records
    record_send_total: int = figure(COUNTER, "", f"{CLIENT}/record-send-total", "Sent records. One that is sent again counts again.")
    record_retry_total: int = figure(COUNTER, "", f"{CLIENT}/record-retry-total", "Records that have to be sent again.")
    record_error_total: int = figure(COUNTER, "", f"{CLIENT}/record-error-total", "Records that have failed.")
    record_queue_time_avg_ms: float | None = figure(GAUGE, "ms", f"{CLIENT}/record-queue-time-avg", "Average time from the first record of a batch until it is sent.")
    record_queue_time_max_ms: float | None = figure(GAUGE, "ms", f"{CLIENT}/record-queue-time-max", "Maximum time from the first record of a batch until it is sent.")
    buffer_total_bytes: int = figure(GAUGE, "bytes", f"{CLIENT}/buffer-total-bytes", "Maximum bytes of unacknowledged records: buffer_bytes.")
    buffer_available_bytes: int = figure(GAUGE, "bytes", f"{CLIENT}/buffer-available-bytes", "Bytes that more records may take.")

    # --- batches and requests
    batch_size_avg_bytes: float | None = figure(GAUGE, "bytes", f"{CLIENT}/batch-size-avg", "Average bytes of a batch, after compression.")
    batch_size_max_bytes: float | None = figure(GAUGE, "bytes", f"{CLIENT}/batch-size-max", "Maximum bytes of a batch, after compression.")
    batch_split_total: int = figure(COUNTER, "", f"{CLIENT}/batch-split-total", "Batches that were too large for the broker and were split.")
    compression_rate_avg: float | None = figure(GAUGE, "ratio", f"{CLIENT}/compression-rate-avg", "Average size of a batch after compression, as a fraction of the size before. Small batches are compressed later and count as 1.")
    records_per_request_avg: float | None = figure(GAUGE, "", f"{CLIENT}/records-per-request-avg", "Average records in a Produce request.")
    request_latency_avg_ms: float | None = figure(GAUGE, "ms", f"{CLIENT}/request-latency-avg", "Average time from a Produce request to its response.")
    request_latency_max_ms: float | None = figure(GAUGE, "ms", f"{CLIENT}/request-latency-max", "Maximum time from a Produce request to its response.")
    requests_in_flight: int = figure(GAUGE, "", f"{CLIENT}/requests-in-flight", "Produce requests without a response.")
    produce_throttle_time_avg_ms: float | None = figure(GAUGE, "ms", f"{CLIENT}/produce-throttle-time-avg", "Average throttle time of Produce responses, because of a quota.")
    produce_throttle_time_max_ms: float | None = figure(GAUGE, "ms", f"{CLIENT}/produce-throttle-time-max", "Maximum throttle time of Produce responses.")

    # --- connections
    metadata_age_s: float | None = figure(GAUGE, "s", f"{CLIENT}/metadata-age", "Time since the last metadata.")
    connection_count: int = figure(GAUGE, "", f"{CLIENT}/connection-count", "Connections that are open or being opened.")
    connection_creation_total: int = figure(COUNTER, "", f"{CLIENT}/connection-creation-total", "Opened connections.")
    connection_close_total: int = figure(COUNTER, "", f"{CLIENT}/connection-close-total", "Closed connections.")
    request_total: int = figure(COUNTER, "", f"{CLIENT}/request-total", "Finished requests.")
    request_failures_total: int = figure(COUNTER, "", None, "Requests without a response.")
    throttled_ms_total: int = figure(COUNTER, "ms", None, "Total throttle time of all responses.")
    # fmt: on


PRODUCER_FIGURES: Final = figures_of(ProducerMetrics)
ProducerMetrics.figures = PRODUCER_FIGURES
ProducerMetrics.client = CLIENT
ProducerMetrics.labels = MappingProxyType(
    {"client_id": "messaging.client.id", "transactional_id": "kohort.transactional_id"}
)


def metrics_of(
    context: ProducerContext, *, buffered: int, requests_in_flight: int, closed: bool, now: float
) -> ProducerMetrics:
    """The metrics at `now` (monotonic s); called under the driver's lock."""
    config, sensors, responded_at = context.config, context.sensors, context.metadata.responded_at
    return ProducerMetrics(
        client_id=config.client_id,
        transactional_id=config.transactional_id,
        closed=closed,
        record_send_total=sensors.sent_records,
        record_retry_total=sensors.retried_records,
        record_error_total=sensors.failed_records,
        **spread("record_queue_time_{}_ms", sensors.queue_ms, now),
        buffer_total_bytes=config.buffer_bytes,
        buffer_available_bytes=max(config.buffer_bytes - buffered, 0),
        **spread("batch_size_{}_bytes", sensors.batch_bytes, now),
        batch_split_total=sensors.splits,
        compression_rate_avg=sensors.compression.mean(now),
        records_per_request_avg=sensors.request_records.mean(now),
        **spread("request_latency_{}_ms", sensors.request_ms, now),
        requests_in_flight=requests_in_flight,
        **spread("produce_throttle_time_{}_ms", sensors.throttle_ms, now),
        metadata_age_s=now - responded_at if responded_at > float("-inf") else None,
        **connection_values(context.counters),
    )
