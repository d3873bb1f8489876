"""The settings of a consumer by name and type. Made by `make docs` from `ConsumerConfig`."""

from typing import Literal

from kohort.network.client_settings import ClientSettings

GroupProtocol = Literal["classic", "consumer"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
OnCorrupt = Literal["raise", "skip_batch"]


class ConsumerSettings(ClientSettings, total=False):
    """Keyword arguments of a consumer."""

    group_instance_id: str | None
    """Makes the member static: it keeps its partitions if it returns within the session timeout (KIP-345)."""

    enable_metrics_push: bool
    """Push metrics to brokers that request them (KIP-714). Needs kohort[opentelemetry]. Nothing is sent without a
    request."""

    rack: str | None
    """The client's rack. Records are read from a replica there if the broker offers one (KIP-392)."""

    protocol: GroupProtocol
    """classic: a member computes the assignment. consumer: the coordinator does (KIP-848)."""

    remote_assignor: str | None
    """The requested assignor of the coordinator, under protocol consumer. Default: the group's."""

    session_timeout_ms: int
    """Time without a heartbeat after which the coordinator removes the member."""

    heartbeat_interval_ms: int
    """Time between heartbeats. Use at most a third of the session timeout. A third of max_poll_interval_ms is used if
    that is less."""

    max_poll_interval_ms: int
    """Maximum time between polls, after which the member leaves the group. Also the rebalance timeout."""

    exclude_internal_topics: bool
    """Exclude Kafka's internal topics from patterns."""

    allow_auto_create_topics: bool
    """Let Metadata requests create missing topics, if the broker allows it."""

    auto_offset_reset: str
    """The start without a valid committed offset, or if the leader does not have its epoch: earliest, latest, none (an
    error), nearest, or by_duration:PT1H (KIP-1106). nearest is latest for a position above the log's end, otherwise
    earliest. After a truncation reading continues at the end of the common log, and none raises Truncation."""

    enable_auto_commit: bool
    """Commit the records of earlier polls at intervals, before a rebalance and on close. An unchanged offset is stored
    again every 10 minutes."""

    auto_commit_interval_ms: int
    """Time between automatic commits."""

    isolation_level: IsolationLevel
    """read_committed hides records of open and aborted transactions."""

    fetch_min_bytes: int
    """Minimum bytes of a Fetch response, for which a broker waits."""

    fetch_max_wait_ms: int
    """Maximum time that a broker waits for fetch_min_bytes."""

    fetch_max_bytes: int
    """Maximum bytes of records in a Fetch response. A single larger batch is still returned. If many brokers are read,
    half of max_buffered_bytes is shared among them, at least 1 MiB each."""

    max_partition_fetch_bytes: int
    """Maximum bytes of one partition in a Fetch response. A single larger batch is still returned."""

    max_buffered_bytes: int
    """Maximum fetched bytes that are not polled yet. No Fetch is sent while there are more."""

    max_poll_records: int
    """Maximum records of one poll. 0 means one fetched slice of each partition."""

    on_corrupt: OnCorrupt
    """Handling of a corrupt batch. raise: raise CorruptRecord and stay before the batch. skip_batch: log it and list it
    in `columns.corrupt`."""

    max_decompressed_bytes: int
    """Maximum decompressed bytes of a batch. A larger batch is an error."""

    bootstrap_timeout_ms: int
    """Time at the start without a reachable broker after which calls raise ConnectionFailed."""

    default_api_timeout_ms: int
    """Time-out of calls without a timeout argument."""
