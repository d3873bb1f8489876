"""ShareConsumer: a member of a share group (KIP-932), over the same driver as Consumer."""

from kohort.share_consumer.consumer import ShareConsumer
from kohort.share_consumer.errors import LockLost, ShareConsumerClosed, ShareGroupsUnsupported
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.share_records import AcknowledgeOutcome, AcknowledgeType, ShareRecords

SETTINGS = ShareConsumerConfig.table

__all__ = [
    "SETTINGS",
    "AcknowledgeOutcome",
    "AcknowledgeType",
    "LockLost",
    "ShareConsumer",
    "ShareConsumerClosed",
    "ShareConsumerConfig",
    "ShareGroupsUnsupported",
    "ShareRecords",
]
