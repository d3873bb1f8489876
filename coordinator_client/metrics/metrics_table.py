# ruff: noqa: E501 -- one metric a line keeps the table readable, and `figure` is a dataclass field
"""The table of all consumer metrics: name, Java's group and name, kind, unit, description.

`ConsumerMetrics` is an immutable set of values, returned by `Consumer.metrics()`. `FIGURES` is the table, used by every
exporter and by docs/metrics.md. It is loaded at first use, so that consumers without monitoring do not pay for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from types import MappingProxyType
from typing import Final

from kohort.common import TopicPartition
from kohort.common.named_tuple import NamedTuple
from kohort.coordinator_client.consumer_context import ConsumerContext
from kohort.coordinator_client.fetch.fetcher import Fetcher
from kohort.coordinator_client.group.states import MemberState, RebalanceRecord
from kohort.coordinator_client.offsets.positions import Positions
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

COUNTER, GAUGE = MetricKind.COUNTER, MetricKind.GAUGE
CLIENT, GROUP, FETCH = "consumer", "consumer-coordinator", "consumer-fetch-manager"
BY_PARTITION: Final = ("records_lag", "records_lead")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMetrics(ClientMetrics):
    """A consumer's metrics at one time: attributes, and a mapping by the same names.

    None: no such event has occurred, or not recently. Averages and maxima are over the last 30 to 60 s. Those of
    rebalances are over the last 100 rebalances. `generation` is -1 and `member_id` empty outside of the group.
    `closed`: true once close was called.
    """

    # fmt: off
    # --- identity
    client_id: str
    group: str | None
    member_id: str
    generation: int
    closed: bool

    # --- polling
    polls_total: int = figure(COUNTER, "", None, "Calls of poll.")
    last_poll_ago_s: float | None = figure(GAUGE, "s", f"{CLIENT}/last-poll-seconds-ago", "Time since the last call of poll.")
    time_between_poll_avg_ms: float | None = figure(GAUGE, "ms", f"{CLIENT}/time-between-poll-avg", "Average time between two calls of poll. Above max_poll_interval_ms the member leaves the group.")
    time_between_poll_max_ms: float | None = figure(GAUGE, "ms", f"{CLIENT}/time-between-poll-max", "Maximum time between two calls of poll.")
    poll_idle_ratio_avg: float | None = figure(GAUGE, "ratio", f"{CLIENT}/poll-idle-ratio-avg", "Fraction of the time inside poll. Near 1 the handler waits for records, near 0 records wait for the handler.")

    # --- records
    records_consumed_total: int = figure(COUNTER, "", f"{FETCH}/records-consumed-total", "Records that poll returned.")
    slices_total: int = figure(COUNTER, "", None, "RecordColumns that poll returned.")
    bytes_consumed_total: int = figure(COUNTER, "bytes", f"{FETCH}/bytes-consumed-total", "Bytes of fetched record batches, as on the wire (Java: uncompressed, when returned).")
    records_lag_max: int | None = figure(GAUGE, "", f"{FETCH}/records-lag-max", "Maximum lag of a partition: records between position and log end (read_committed: last stable offset).")
    records_lead_min: int | None = figure(GAUGE, "", f"{FETCH}/records-lead-min", "Minimum lead of a partition: records between log start and position. Near 0 retention may soon delete unread records.")
    records_lag: Mapping[TopicPartition, int] = figure(GAUGE, "", f"{FETCH}/records-lag", "Lag of each partition, where the log end offset is known from a Fetch response.", by_partition=True)
    records_lead: Mapping[TopicPartition, int] = figure(GAUGE, "", f"{FETCH}/records-lead", "Lead of each partition.", by_partition=True)
    corrupt_batches_total: int = figure(COUNTER, "", None, "Batches skipped under on_corrupt=\"skip_batch\".")
    resets_total: int = figure(COUNTER, "", None, "Positions that were reset by auto_offset_reset.")
    paused_partitions: int = figure(GAUGE, "", None, "Assigned partitions that are paused.")
    parked_bytes: int = figure(GAUGE, "bytes", None, "Bytes of fetched records that poll has not returned.")

    # --- fetching
    fetch_total: int = figure(COUNTER, "", f"{FETCH}/fetch-total", "Finished Fetch requests.")
    fetch_failures_total: int = figure(COUNTER, "", None, "Fetch requests without a response.")
    fetches_in_flight: int = figure(GAUGE, "", None, "Fetch requests in flight.")
    fetch_latency_avg_ms: float | None = figure(GAUGE, "ms", f"{FETCH}/fetch-latency-avg", "Average time from a Fetch request to its response. A broker without new records waits fetch_max_wait_ms.")
    fetch_latency_max_ms: float | None = figure(GAUGE, "ms", f"{FETCH}/fetch-latency-max", "Maximum time from a Fetch request to its response.")
    fetch_size_avg_bytes: float | None = figure(GAUGE, "bytes", f"{FETCH}/fetch-size-avg", "Average bytes of record batches in a Fetch response.")
    fetch_size_max_bytes: float | None = figure(GAUGE, "bytes", f"{FETCH}/fetch-size-max", "Maximum bytes of record batches in a Fetch response.")
    fetch_throttle_time_avg_ms: float | None = figure(GAUGE, "ms", f"{FETCH}/fetch-throttle-time-avg", "Average throttle time of Fetch responses, because of a quota.")
    fetch_throttle_time_max_ms: float | None = figure(GAUGE, "ms", f"{FETCH}/fetch-throttle-time-max", "Maximum throttle time of Fetch responses.")

    # --- the group
    assigned_partitions: int = figure(GAUGE, "", f"{GROUP}/assigned-partitions", "Assigned partitions.")
    rebalance_total: int = figure(COUNTER, "", f"{GROUP}/rebalance-total", "Rebalances that ended with an assignment.")
    failed_rebalance_total: int = figure(COUNTER, "", f"{GROUP}/failed-rebalance-total", "Rebalances that ended with a fatal error, or because poll was not called in time.")
    rebalance_latency_avg_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/rebalance-latency-avg", "Average time from the cause of a rebalance to the assignment, with hooks and retries.")
    rebalance_latency_max_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/rebalance-latency-max", "Maximum time of a rebalance.")
    rebalance_latency_total_ms: float = figure(COUNTER, "ms", f"{GROUP}/rebalance-latency-total", "Total time of rebalances.")
    last_rebalance_ago_s: float | None = figure(GAUGE, "s", f"{GROUP}/last-rebalance-seconds-ago", "Time since the end of the last rebalance.")
    rebalances_kept: int = figure(GAUGE, "", None, "Rebalances in timeline().")
    join_total: int = figure(COUNTER, "", f"{GROUP}/join-total", "JoinGroup requests with a response.")
    join_time_avg_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/join-time-avg", "Average time from JoinGroup to its response. The coordinator waits for every member.")
    join_time_max_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/join-time-max", "Maximum time from JoinGroup to its response.")
    sync_total: int = figure(COUNTER, "", f"{GROUP}/sync-total", "SyncGroup requests with a response.")
    sync_time_avg_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/sync-time-avg", "Average time from SyncGroup to its response. The coordinator waits for the leader.")
    sync_time_max_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/sync-time-max", "Maximum time from SyncGroup to its response.")
    heartbeat_total: int = figure(COUNTER, "", f"{GROUP}/heartbeat-total", "Heartbeats with a response.")
    heartbeat_rate: float = figure(GAUGE, "", f"{GROUP}/heartbeat-rate", "Heartbeats with a response, a second.")
    heartbeat_response_time_max_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/heartbeat-response-time-max", "Maximum time from a heartbeat to its response.")
    last_heartbeat_ago_s: float | None = figure(GAUGE, "s", f"{GROUP}/last-heartbeat-seconds-ago", "Time since the last successful heartbeat was sent.")
    hooks_total: int = figure(COUNTER, "", None, "Calls of the user's rebalance hooks.")
    partition_revoked_latency_avg_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/partition-revoked-latency-avg", "Average time of the user's on_revoked.")
    partition_revoked_latency_max_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/partition-revoked-latency-max", "Maximum time of the user's on_revoked.")
    partition_assigned_latency_avg_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/partition-assigned-latency-avg", "Average time of the user's on_assigned.")
    partition_assigned_latency_max_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/partition-assigned-latency-max", "Maximum time of the user's on_assigned.")
    partition_lost_latency_avg_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/partition-lost-latency-avg", "Average time of the user's on_lost.")
    partition_lost_latency_max_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/partition-lost-latency-max", "Maximum time of the user's on_lost.")
    commit_total: int = figure(COUNTER, "", f"{GROUP}/commit-total", "Successful commits.")
    commits_refused_total: int = figure(COUNTER, "", None, "Commits that failed, as a whole or in part.")
    commits_waiting: int = figure(GAUGE, "", None, "Commits without a result.")
    commit_latency_avg_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/commit-latency-avg", "Average time from OffsetCommit to its response.")
    commit_latency_max_ms: float | None = figure(GAUGE, "ms", f"{GROUP}/commit-latency-max", "Maximum time from OffsetCommit to its response.")

    # --- connections
    connection_count: int = figure(GAUGE, "", f"{CLIENT}/connection-count", "Connections that are open or being opened.")
    connection_creation_total: int = figure(COUNTER, "", f"{CLIENT}/connection-creation-total", "Opened connections.")
    connection_close_total: int = figure(COUNTER, "", f"{CLIENT}/connection-close-total", "Closed connections.")
    request_total: int = figure(COUNTER, "", f"{CLIENT}/request-total", "Finished requests.")
    request_failures_total: int = figure(COUNTER, "", None, "Requests without a response.")
    throttled_ms_total: int = figure(COUNTER, "ms", None, "Total throttle time of all responses.")
    # fmt: on

    def __post_init__(self) -> None:
        for name in BY_PARTITION:
            object.__setattr__(self, name, MappingProxyType(getattr(self, name)))

    def __reduce__(self) -> tuple[object, ...]:  # a mappingproxy has no pickle
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return partial(ConsumerMetrics, **values | {name: dict(values[name]) for name in BY_PARTITION}), ()


FIGURES: Final = figures_of(ConsumerMetrics)
ConsumerMetrics.figures = FIGURES
ConsumerMetrics.client = CLIENT
ConsumerMetrics.labels = MappingProxyType(
    {"client_id": "messaging.client.id", "group": "messaging.consumer.group.name"}
)


class MetricsSources(NamedTuple):
    """Everything that metrics are made of; `paused` counts partitions, `commits_waiting` commits."""

    context: ConsumerContext
    fetcher: Fetcher
    positions: Positions
    rebalances: tuple[RebalanceRecord, ...]
    visible: frozenset[TopicPartition]
    paused: int
    commits_waiting: int


def metrics_of(sources: MetricsSources, now: float) -> ConsumerMetrics:
    """The metrics at `now` (monotonic s); called under the driver's lock."""
    context, history = sources.context, sources.rebalances
    counters, meters, config, view = context.counters, context.sensors, context.config, context.view()
    ended = [one.ended_at for one in history if one.ended_at is not None]
    took_ms = [
        (one.ended_at - one.started_at) * 1000
        for one in history
        if one.ended_at is not None and one.outcome is MemberState.STABLE
    ]
    lag, lead = _lag_and_lead(sources)
    joins, syncs = meters.requested["JoinGroup"], meters.requested["SyncGroup"]
    beats = meters.requested["Heartbeat" if config.protocol == "classic" else "ConsumerGroupHeartbeat"]
    beat_at = view.last_beat_at if view is not None else None
    revoked, assigned, lost = meters.hooks["Revoked"], meters.hooks["Assigned"], meters.hooks["Lost"]
    return ConsumerMetrics(
        client_id=config.client_id,
        group=config.group,
        member_id=view.identity.member_id if view is not None else "",
        generation=view.identity.generation if view is not None else -1,
        closed=context.closing(),
        polls_total=meters.polls.begun,
        **poll_values(meters.polls, now),
        records_consumed_total=counters.records,
        slices_total=counters.slices,
        bytes_consumed_total=counters.fetched_bytes,
        records_lag_max=max(lag.values(), default=None),
        records_lead_min=min(lead.values(), default=None),
        records_lag=lag,
        records_lead=lead,
        corrupt_batches_total=counters.corrupt_batches,
        resets_total=counters.resets,
        paused_partitions=sources.paused,
        parked_bytes=sources.fetcher.parked.total_bytes,
        fetch_total=counters.fetches,
        fetch_failures_total=counters.fetch_failures,
        fetches_in_flight=len(sources.fetcher.in_flight),
        **spread("fetch_latency_{}_ms", meters.fetch_ms, now),
        **spread("fetch_size_{}_bytes", meters.fetch_bytes, now),
        **spread("fetch_throttle_time_{}_ms", meters.fetch_throttle_ms, now),
        assigned_partitions=len(sources.visible),
        rebalance_total=meters.rebalances,
        failed_rebalance_total=meters.failed_rebalances,
        rebalance_latency_avg_ms=sum(took_ms) / len(took_ms) if took_ms else None,
        rebalance_latency_max_ms=max(took_ms, default=None),
        rebalance_latency_total_ms=meters.rebalancing_s * 1000,
        last_rebalance_ago_s=ago(max(ended, default=None), now),
        rebalances_kept=len(history),
        join_total=joins.count,
        **spread("join_time_{}_ms", joins, now),
        sync_total=syncs.count,
        **spread("sync_time_{}_ms", syncs, now),
        heartbeat_total=beats.count,
        heartbeat_rate=beats.rate(now),
        heartbeat_response_time_max_ms=beats.most(now),
        last_heartbeat_ago_s=ago(beat_at, now),
        hooks_total=counters.hooks,
        **spread("partition_revoked_latency_{}_ms", revoked, now),
        **spread("partition_assigned_latency_{}_ms", assigned, now),
        **spread("partition_lost_latency_{}_ms", lost, now),
        commit_total=counters.commits,
        commits_refused_total=counters.commits_refused,
        commits_waiting=sources.commits_waiting,
        **spread("commit_latency_{}_ms", meters.commit_ms, now),
        **connection_values(counters),
    )


def _lag_and_lead(sources: MetricsSources) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Lag and lead of the positions, from the log offsets of the last Fetch responses."""
    lag: dict[TopicPartition, int] = {}
    lead: dict[TopicPartition, int] = {}
    for partition, end in sources.fetcher.known_ends(sorted(sources.visible)).items():
        position = sources.positions.known_position(partition) if partition in sources.positions else None
        if position is None:
            continue
        lag[partition] = max(end - position, 0)
        start = sources.fetcher.ends[partition].log_start
        if start >= 0:
            lead[partition] = max(position - start, 0)
    return lag, lead
