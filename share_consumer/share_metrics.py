# ruff: noqa: E501 -- one metric a line keeps the table readable, and `figure` is a dataclass field
"""The table of all metrics of a share consumer: name, Java's group and name, kind, unit, description.

It is loaded at first use, so that share consumers without monitoring do not pay for it.
"""

from dataclasses import dataclass
from typing import Final

from kohort.network.metric_spec import (
    ClientMetrics,
    MetricKind,
    ago,
    connection_values,
    figure,
    figures_of,
    poll_values,
    spread,
)
from kohort.share_consumer.errors import ShareConsumerClosed
from kohort.share_consumer.share_core import ShareConsumerCore

COUNTER, GAUGE = MetricKind.COUNTER, MetricKind.GAUGE
POLLS, FETCHES = "consumer-share", "consumer-share-fetch-manager"
COORDINATOR, CONNECTIONS = "consumer-share-coordinator", "consumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerMetrics(ClientMetrics):
    """A share consumer's metrics at one time: attributes, and a mapping by the same names.

    None: no such event has occurred, or not recently. Averages and maxima are over the last 30 to 60 s. `closed`: true
    once close was called.
    """

    # fmt: off
    # --- identity
    client_id: str
    group: str
    closed: bool

    # --- polls
    last_poll_ago_s: float | None = figure(GAUGE, "s", f"{POLLS}/last-poll-seconds-ago", "Time since the last call of poll.")
    time_between_poll_avg_ms: float | None = figure(GAUGE, "ms", f"{POLLS}/time-between-poll-avg", "Average time between two calls of poll. Above max_poll_interval_ms the member leaves the group.")
    time_between_poll_max_ms: float | None = figure(GAUGE, "ms", f"{POLLS}/time-between-poll-max", "Maximum time between two calls of poll.")
    poll_idle_ratio_avg: float | None = figure(GAUGE, "ratio", f"{POLLS}/poll-idle-ratio-avg", "Fraction of the time inside poll. Near 1 the handler waits for records, near 0 records wait for the handler.")

    # --- records and acknowledgements
    records_consumed_total: int = figure(COUNTER, "", f"{FETCHES}/records-consumed-total", "Records that poll returned.")
    bytes_consumed_total: int = figure(COUNTER, "bytes", f"{FETCHES}/bytes-consumed-total", "Bytes of fetched record batches, as on the wire (Java: uncompressed, when returned).")
    redelivered_records_total: int = figure(COUNTER, "", None, "Records that poll returned with a delivery count above 1.")
    acknowledgements_send_total: int = figure(COUNTER, "", f"{FETCHES}/acknowledgements-send-total", "Acknowledged ranges of offsets with an outcome (Java: offsets).")
    acknowledgements_error_total: int = figure(COUNTER, "", f"{FETCHES}/acknowledgements-error-total", "Acknowledged ranges that failed (Java: offsets).")
    lost_locks_total: int = figure(COUNTER, "", None, "Acknowledged or held ranges that failed with LockLost.")
    acquisition_lock_ms: int | None = figure(GAUGE, "ms", None, "The duration of locks, as the last response had it.")

    # --- fetches
    fetch_total: int = figure(COUNTER, "", f"{FETCHES}/fetch-total", "ShareFetch requests.")
    fetch_latency_avg_ms: float | None = figure(GAUGE, "ms", f"{FETCHES}/fetch-latency-avg", "Average time from a ShareFetch request to its response. A broker without records waits fetch_max_wait_ms.")
    fetch_latency_max_ms: float | None = figure(GAUGE, "ms", f"{FETCHES}/fetch-latency-max", "Maximum time from a ShareFetch request to its response.")
    fetch_size_avg_bytes: float | None = figure(GAUGE, "bytes", f"{FETCHES}/fetch-size-avg", "Average bytes of record batches in a ShareFetch response with records.")
    fetch_size_max_bytes: float | None = figure(GAUGE, "bytes", f"{FETCHES}/fetch-size-max", "Maximum bytes of record batches in a ShareFetch response.")
    records_per_request_avg: float | None = figure(GAUGE, "", f"{FETCHES}/records-per-request-avg", "Average acquired offsets in a ShareFetch response with records.")
    records_per_request_max: float | None = figure(GAUGE, "", f"{FETCHES}/records-per-request-max", "Maximum acquired offsets in a ShareFetch response.")
    fetch_throttle_time_avg_ms: float | None = figure(GAUGE, "ms", f"{FETCHES}/fetch-throttle-time-avg", "Average throttle time of ShareFetch responses, because of a quota.")
    fetch_throttle_time_max_ms: float | None = figure(GAUGE, "ms", f"{FETCHES}/fetch-throttle-time-max", "Maximum throttle time of ShareFetch responses.")

    # --- the group
    rebalance_total: int = figure(COUNTER, "", f"{COORDINATOR}/rebalance-total", "Changes of the assignment.")
    heartbeat_total: int = figure(COUNTER, "", f"{COORDINATOR}/heartbeat-total", "Heartbeats with a response.")
    heartbeat_rate: float = figure(GAUGE, "", f"{COORDINATOR}/heartbeat-rate", "Heartbeats with a response, a second.")
    heartbeat_response_time_max_ms: float | None = figure(GAUGE, "ms", f"{COORDINATOR}/heartbeat-response-time-max", "Maximum time from a heartbeat to its response.")
    last_heartbeat_ago_s: float | None = figure(GAUGE, "s", f"{COORDINATOR}/last-heartbeat-seconds-ago", "Time since the last heartbeat with a response was sent.")

    # --- connections
    connection_count: int = figure(GAUGE, "", f"{CONNECTIONS}/connection-count", "Connections that are open or being opened.")
    connection_creation_total: int = figure(COUNTER, "", f"{CONNECTIONS}/connection-creation-total", "Opened connections.")
    connection_close_total: int = figure(COUNTER, "", f"{CONNECTIONS}/connection-close-total", "Closed connections.")
    request_total: int = figure(COUNTER, "", f"{CONNECTIONS}/request-total", "Finished requests.")
    request_failures_total: int = figure(COUNTER, "", None, "Requests without a response.")
    throttled_ms_total: int = figure(COUNTER, "ms", None, "Total throttle time of all responses.")
    # fmt: on


SHARE_FIGURES: Final = figures_of(ShareConsumerMetrics)
ShareConsumerMetrics.figures = SHARE_FIGURES


def metrics_of(core: ShareConsumerCore, now: float) -> ShareConsumerMetrics:
    """The metrics at `now` (monotonic s); called under the driver's lock."""
    config, counters, sensors, fetcher = core.config, core.counters, core.sensors, core.fetcher
    return ShareConsumerMetrics(
        client_id=config.client_id,
        group=config.group,
        closed=isinstance(core.fatal, ShareConsumerClosed),
        **poll_values(sensors.polls, now),
        records_consumed_total=counters.records,
        bytes_consumed_total=counters.fetched_bytes,
        redelivered_records_total=sensors.redelivered,
        acknowledgements_send_total=fetcher.acknowledgements_sent,
        acknowledgements_error_total=fetcher.acknowledgements_failed,
        lost_locks_total=sensors.locks_lost,
        acquisition_lock_ms=fetcher.lock_timeout_ms,
        fetch_total=counters.fetches,
        **spread("fetch_latency_{}_ms", sensors.fetch_ms, now),
        **spread("fetch_size_{}_bytes", sensors.fetch_bytes, now),
        **spread("records_per_request_{}", sensors.fetch_records, now),
        **spread("fetch_throttle_time_{}_ms", sensors.throttle_ms, now),
        rebalance_total=sensors.rebalances,
        heartbeat_total=sensors.heartbeat_ms.count,
        heartbeat_rate=sensors.heartbeat_ms.rate(now),
        heartbeat_response_time_max_ms=sensors.heartbeat_ms.most(now),
        last_heartbeat_ago_s=ago(sensors.heartbeat_at, now),
        **connection_values(counters),
    )
