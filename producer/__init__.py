"""Producer and AsyncProducer, idempotent and transactional, over the same driver as Consumer.

AsyncProducer is imported at first use, because asyncio takes 30 ms to load.
"""

from typing import TYPE_CHECKING

from kohort.producer._open_batch import Delivery
from kohort.producer.errors import (
    BufferFull,
    DeliveryTimeout,
    PartitionerError,
    ProducerClosed,
    ProducerFenced,
    RecordTooLarge,
    TransactionAborted,
    TransactionError,
)
from kohort.producer.producer import Producer
from kohort.producer.producer_batch import Delivered, Deliveries
from kohort.producer.producer_config import ProducerConfig

if TYPE_CHECKING:
    from kohort.producer.async_producer import AsyncDeliveries as AsyncDeliveries
    from kohort.producer.async_producer import AsyncDelivery as AsyncDelivery
    from kohort.producer.async_producer import AsyncProducer as AsyncProducer

SETTINGS = ProducerConfig.table

__all__ = [
    "SETTINGS",
    "AsyncDeliveries",
    "AsyncDelivery",
    "AsyncProducer",
    "BufferFull",
    "Deliveries",
    "Delivered",
    "Delivery",
    "DeliveryTimeout",
    "PartitionerError",
    "Producer",
    "ProducerClosed",
    "ProducerConfig",
    "ProducerFenced",
    "RecordTooLarge",
    "TransactionAborted",
    "TransactionError",
]

_ASYNC = frozenset({"AsyncDeliveries", "AsyncDelivery", "AsyncProducer"})


if not TYPE_CHECKING:  # a name that is missing is an error of a type checker

    def __getattr__(name: str) -> object:
        if name not in _ASYNC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from kohort.producer import async_producer

        return getattr(async_producer, name)
