"""ShareConsumer and AsyncShareConsumer: members of a share group (KIP-932), over the same driver as Consumer.

AsyncShareConsumer is imported at first use, because asyncio takes 30 ms to load.
"""

from typing import TYPE_CHECKING

from kohort.share_consumer.consumer import ShareConsumer
from kohort.share_consumer.errors import LockLost, ShareConsumerClosed, ShareGroupsUnsupported
from kohort.share_consumer.share_config import ShareConsumerConfig
from kohort.share_consumer.share_records import AcknowledgeOutcome, AcknowledgeType, ShareRecords

if TYPE_CHECKING:
    from kohort.share_consumer.async_consumer import AsyncShareConsumer

SETTINGS = ShareConsumerConfig.table

__all__ = [
    "SETTINGS",
    "AcknowledgeOutcome",
    "AcknowledgeType",
    "AsyncShareConsumer",
    "LockLost",
    "ShareConsumer",
    "ShareConsumerClosed",
    "ShareConsumerConfig",
    "ShareGroupsUnsupported",
    "ShareRecords",
]


if not TYPE_CHECKING:  # a name that is missing is an error of a type checker

    def __getattr__(name: str) -> object:
        if name != "AsyncShareConsumer":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from kohort.share_consumer.async_consumer import AsyncShareConsumer

        return AsyncShareConsumer
