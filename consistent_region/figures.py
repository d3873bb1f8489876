"""What a member of a region counts: `ConsistentRegion.metrics()`. Names that end in `_total` only grow."""

from typing import Final

FIGURES: Final = (
    "partitions_assigned",
    "consumed_topics",
    "partition_rebalances_total",
    "partitions_handed_over_total",
    "drain_ms_last",
    "drain_ms_max",
    "queue_full_pauses_total",
    "low_memory_pauses_total",
    "failed_control_requests_total",
    "commit_failures_total",
    "resets_total",
    "checkpoints_total",
    "records_submitted_total",
)
