"""Settings of the fake's coordinators and topics."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """The coordinator's settings, by Kafka's names. Delays are shorter than on a broker."""

    auto_create_topics_enable: bool = False
    group_min_session_timeout_ms: int = 100
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 100
    group_consumer_assignment_interval_ms: int = 0
    group_consumer_max_size: int = 2**31 - 1
    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 100
    group_share_record_lock_duration_ms: int = 30_000
    group_share_delivery_count_limit: int = 5
    group_share_partition_max_record_locks: int = 2_000
    group_share_max_size: int = 200
    group_share_max_share_sessions: int = 2_000
    group_streams_session_timeout_ms: int = 45_000
    group_streams_heartbeat_interval_ms: int = 100
